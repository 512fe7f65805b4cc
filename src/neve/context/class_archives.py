"""Makes class-data archives: for `neve setup`, and in the background after the first run without one.

The work is done by `archive_recording`, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.spark.runtime.class_archive import Wanted
    from neve.spark.runtime.session import SparkOptions


@dataclass(frozen=True)
class Recording:
    """What a recording process needs to know. Holds no secret: it stands on a command line."""

    jars: tuple[str, ...]
    java_home: str | None
    extra_class_path: str
    background: bool

    @classmethod
    def parse(cls, text: str) -> Recording:
        """Reads what `text` wrote."""
        values = json.loads(text)
        return cls(**{**values, "jars": tuple(values["jars"])})

    @property
    def text(self) -> str:
        """As one argument."""
        return json.dumps(asdict(self))

    @property
    def conf(self) -> dict[str, str]:
        """The user's own Spark properties that matter for the class path."""
        return {"spark.driver.extraClassPath": self.extra_class_path} if self.extra_class_path else {}


def wanted_for(options: SparkOptions, needs: Collection[str]) -> tuple[Wanted, Recording]:
    """The archive for sessions with these options, and the recording that makes it."""
    from neve.spark.runtime import class_path, distribution
    from neve.spark.runtime.java import find_java
    from neve.spark.runtime.session import spark_jars, wanted_archive

    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version, java_home=options.java_home)
    paths = spark_jars(options, needs=needs, java=java, installed=installed)
    held = paths if class_path.holds_jars(options.master, options.conf, installed.home) else ()
    extra = options.conf.get("spark.driver.extraClassPath", "")
    recording = Recording(tuple(map(str, paths)), options.java_home, extra, background=False)
    return wanted_archive(options, java, installed, held), recording


@dataclass(frozen=True)
class Prepared:
    """A Java, the jars, and the archive for them: where it is, or why there is none."""

    java: str
    jars: tuple[str, ...]
    archive: str | None
    archive_bytes: int
    made: bool
    reason: str | None


def prepare(options: SparkOptions, needs: Collection[str]) -> Prepared:
    """Fetches the jars, prepares Java, and makes the archive if there is none; waits for it."""
    from neve.spark.runtime import archive_store
    from neve.spark.runtime.class_archive import default_root

    wanted, recording = wanted_for(options, needs)
    root = default_root()
    existed = archive_store.is_made(root, wanted)
    reason = None if existed else _obstacle(options, wanted, root) or _record(recording)
    place = root / wanted.key if archive_store.is_made(root, wanted) else None
    size = sum(path.stat().st_size for path in place.iterdir()) if place else 0
    java = f"Java {wanted.java.version} from {wanted.java.origin}: {wanted.java.home}"
    return Prepared(java, recording.jars, str(place) if place else None, size, bool(place and not existed), reason)


def make_in_background(options: SparkOptions, needs: Collection[str]) -> bool:
    """Starts a recording if there is no archive yet and one can be made. Never raises, never waits."""
    from neve.spark.runtime import archive_store
    from neve.spark.runtime.class_archive import default_root

    try:
        wanted, recording = wanted_for(options, needs)
        root = default_root()
        if archive_store.is_made(root, wanted) or archive_store.has_failed(root, wanted) or _obstacle(options, wanted, root):
            return False
        _detach(_command(replace(recording, background=True)))
    except (NeveError, OSError):
        return False
    return True


def _obstacle(options: SparkOptions, wanted: Wanted, root: Path) -> str | None:
    from neve.spark.runtime import archive_store, class_path
    from neve.spark.runtime.class_archive import is_plain

    if not options.class_archive:
        return "spark.class-archive is off"
    if not class_path.is_one_jvm(options.master):
        return f"archives are for local masters, not for {options.master}"
    if not any(path.name.startswith("iceberg-spark-runtime") for path in wanted.entries):
        return "the jars of spark.jars are not on the class path"
    if not is_plain(root):
        return f"Java cannot read an archive at {root}"
    return wanted.obstacle or (None if archive_store.can_write(root) else f"{root} cannot be written")


def _command(recording: Recording) -> list[str]:
    return [sys.executable, "-P", "-m", "neve.archive_recording", recording.text]


def _detach(command: list[str]) -> None:
    nothing = subprocess.DEVNULL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it is meant to go on after us
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def _record(recording: Recording) -> str | None:
    """Runs a recording to its end; why it failed, None if it did not."""
    run = subprocess.run(_command(recording), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"the recording ended with exit code {run.returncode}"
