"""One run of the Ivy that ships inside PySpark: coordinates in, downloaded files out. Called by `jars` only.

Every run starts from an empty directory that is ours, so neither the user's Maven and Ivy caches nor an earlier failure
can spoil it. No repository is named here: Ivy knows the central one, NEVE_MAVEN_MIRROR another.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from neve.errors import EnvironmentFaultError
from neve.spark.runtime.coordinates import Coordinate
from neve.spark.runtime.java import Java

_TIMEOUT_SECONDS = 900
_CURE = (
    "Check the network (NEVE_MAVEN_MIRROR takes the URL of a mirror), or on a closed network set NEVE_JARS to the jar "
    f"files, separated by {os.pathsep!r}."
)


def fetch(
    coordinates: Sequence[Coordinate],
    *,
    java: Java,
    ivy_jar: Path,
    directory: Path,
    transitive: bool,
    exclusions: Iterable[str] = (),
    environ: Mapping[str, str],
) -> tuple[Path, ...]:
    """Downloads into `directory`, which should be empty, and returns the jars. One clear error for all that may fail."""
    settings, module, listing = directory / "settings.xml", directory / "ivy.xml", directory / "jars.txt"
    settings.write_text(settings_xml(directory / "cache", environ.get("NEVE_MAVEN_MIRROR")), encoding="utf-8")
    module.write_text(module_xml(coordinates, transitive=transitive, exclusions=exclusions), encoding="utf-8")
    command = [str(java.executable), *_proxy_options(), f"-Divy.home={directory}", "-jar", str(ivy_jar)]
    command += ["-settings", str(settings), "-ivy", str(module), "-cachepath", str(listing), "-confs", "default"]
    output = _run(command, coordinates)
    if not listing.is_file():
        raise _failed(coordinates, output)
    return tuple(Path(name) for name in listing.read_text(encoding="utf-8").strip().split(os.pathsep) if name)


def settings_xml(cache: Path, mirror: str | None) -> str:
    """Settings with one repository and one cache, both ours to name."""
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    return (
        f'<ivysettings><settings defaultResolver="maven"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>'
    )


def module_xml(coordinates: Sequence[Coordinate], *, transitive: bool, exclusions: Iterable[str] = ()) -> str:
    """The wish as an Ivy module. Versions asked for here win over those that dependencies ask for, as in Maven."""
    ordered = sorted(coordinates)
    modules = groupby(ordered, key=lambda c: (c.group, c.artifact, c.version))
    dependencies = "".join(_dependency(list(same), transitive=transitive) for _, same in modules)
    excludes = "".join(_exclude(text) for text in exclusions)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="neve" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}{excludes}</dependencies>'
        "</ivy-module>"
    )


def _dependency(same: list[Coordinate], *, transitive: bool) -> str:
    """One module; Ivy wants all its classifiers in one element."""
    first = same[0]
    attributes = f"org={quoteattr(first.group)} name={quoteattr(first.artifact)} rev={quoteattr(first.version)}"
    chosen = f'force="true" transitive="{str(transitive).lower()}" conf="default->{"default" if transitive else "master"}"'
    artifacts = ""
    if any(coordinate.classifier for coordinate in same):
        artifacts = "".join(_artifact(coordinate) for coordinate in same)
    return f"<dependency {attributes} {chosen}>{artifacts}</dependency>"


def _artifact(coordinate: Coordinate) -> str:
    classifier = f" m:classifier={quoteattr(coordinate.classifier)}" if coordinate.classifier else ""
    return f'<artifact name={quoteattr(coordinate.artifact)} type="jar" ext="jar"{classifier}/>'


def _exclude(text: str) -> str:
    group, _, artifact = text.partition(":")
    return f"<exclude org={quoteattr(group)} module={quoteattr(artifact or '*')}/>"


def _proxy_options() -> list[str]:
    """Java does not read the proxy variables that everything else on the machine reads."""
    options = []
    for scheme, address in urllib.request.getproxies().items():
        parts = urlsplit(address if "//" in address else f"//{address}")
        if scheme in ("http", "https") and parts.hostname:
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    return options


def _run(command: list[str], coordinates: Sequence[Coordinate]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFaultError(f"Cannot fetch {_names(coordinates)}: {error}", hint=_CURE) from error
    output = run.stdout + run.stderr
    if run.returncode:
        raise _failed(coordinates, output)
    return output


def _failed(coordinates: Sequence[Coordinate], output: str) -> EnvironmentFaultError:
    return EnvironmentFaultError(f"Cannot fetch {_guilty(output) or _names(coordinates)}: {reason(output)}", hint=_CURE)


def _names(coordinates: Sequence[Coordinate]) -> str:
    return ", ".join(str(coordinate) for coordinate in coordinates)


def _guilty(output: str) -> str:
    """The modules that Ivy could not get, written as coordinates."""
    found = re.findall(r":: ([\w.\-]+)#([\w.\-]+);([\w.\-]+)(?:!\S+)?:? ", output)
    return ", ".join(dict.fromkeys(":".join(match) for match in found))


def reason(output: str) -> str:
    """The first line of Ivy's output that says what went wrong."""
    access = re.search(r"Server access error at url \S+ \((.+)\)", output)
    if access:
        return f"the repository cannot be reached ({access.group(1)})"
    if "not found" in output or "download failed" in output.lower():
        return "the repository does not have it"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"
