"""A JAVA_HOME of ours around a Java that lacks a module, such as the one that comes as a wheel. Called by `java` only.

Spark always asks for that module, and the JVM would refuse to start; the launcher drops that one argument. Around the wheel's
Java it also hands over what the machine trusts (`trust`). Needs nothing but /bin/sh.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from neve.errors import EnvironmentFaultError
from neve.spark.runtime import trust

VECTOR = "jdk.incubator.vector"

_LAYOUT = 1  # counts up when the script changes, so that an upgrade never runs an old one

_SCRIPT = """#!/bin/sh
# Starts {java} without the module that it lacks.
for argument do
  shift
  [ "$argument" = --add-modules={vector} ] || set -- "$@" "$argument"
done
exec {java}{options} "$@"
"""


def install_launcher(java: Path, *, environ: Mapping[str, str], cache: Path | None = None, trust_system: bool = True) -> Path:
    """Returns a directory fit to be JAVA_HOME, made on first use. Safe when several processes do it at once.

    A Java that the user installed keeps its own trust store.
    """
    bundle = trust.system_bundle(environ) if trust_system else None
    root = cache or _default_cache()
    home = root / _key(java, bundle)
    if not (home / "bin" / "java").is_file():
        try:
            _build(home, java, bundle)
        except OSError as error:
            raise EnvironmentFaultError(
                f"Cannot prepare Java in {root}: {error.strerror or error}",
                hint="Set XDG_CACHE_HOME to a directory that can be written.",
            ) from error
    return home


def _default_cache() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("neve") / "java"


def _key(java: Path, bundle: Path | None) -> str:
    facts: list[object] = [_LAYOUT, java]
    if bundle:
        status = bundle.stat()
        facts += [bundle, status.st_size, status.st_mtime_ns]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _build(home: Path, java: Path, bundle: Path | None) -> None:
    """Builds beside the target and renames: a half-written launcher is never seen."""
    home.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=home.parent, prefix=".new-"))
    try:
        options = ""
        ders = trust.certificates(bundle) if bundle else ()
        if ders:
            (staging / "trust.jks").write_bytes(trust.java_trust_store(ders))
            options = f" -Djavax.net.ssl.trustStore={shlex.quote(str(home / 'trust.jks'))}"
        (staging / "bin").mkdir()
        script = staging / "bin" / "java"
        script.write_text(_SCRIPT.format(vector=VECTOR, java=shlex.quote(str(java)), options=options), encoding="utf-8")
        script.chmod(0o755)
        staging.chmod(0o755)
        _publish(staging, home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _publish(staging: Path, home: Path) -> None:
    try:
        staging.rename(home)
    except OSError:
        if not (home / "bin" / "java").is_file():  # otherwise another process was first, which is as good
            raise
