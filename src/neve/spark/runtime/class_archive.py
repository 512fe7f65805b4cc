"""Class-data archives: the classes that a run loads, parsed and verified once, then mapped by every later JVM.

Read by `session` at each start, written by `archive_store`. Java checks an archive against its own build and the class path and
ignores one that does not fit; what it does not check is the content. So an archive is used only if size and checksum are those
of its record. Guarantees: never raises, prints nothing, and a run without an archive gives the same result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from neve.spark.runtime.coordinates import ICEBERG_VERSION
from neve.spark.runtime.jars import default_cache
from neve.spark.runtime.java import Java

LAYOUT = 1
"""Counts up when the files of an archive or the job that is recorded change."""
OLDEST_JAVA = 17
"""Java 11 has no dynamic archives."""
BASE, CLASSES, RECORD = "base.jsa", "classes.jsa", "record.json"
QUIET = "-Xlog:cds=off,cds+dynamic=off"
"""Java reports an archive that does not fit on standard output."""

IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""The default of Java 17. Newer ones move the archive to another address and so touch all of its pages: 0.3 CPU s."""

_CHUNK_BYTES = 1 << 20
_GIVEN = re.compile(r"-Xshare|-XX:(SharedArchiveFile|ArchiveClassesAtExit|SharedClassListFile)|-XX:[+]AutoCreateSharedArchive")


@dataclass(frozen=True)
class Wanted:
    """What an archive is made for: one Java, one Spark, one class path."""

    java: Java
    spark_version: str
    entries: tuple[Path, ...]

    @cached_property
    def key(self) -> str:
        """The archive's name; raises OSError where a file is gone."""
        runtime = self.java.runtime_home
        library = runtime / "lib" / "server" / "libjvm.so"
        facts = [LAYOUT, str(self.java.home), self.java.version, _release(runtime), _stamp(library) if library.exists() else 0]
        facts += [self.spark_version, ICEBERG_VERSION, [(str(path), *_stamp(path)) for path in self.entries]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    @property
    def obstacle(self) -> str | None:
        """Why there can be no archive; None if there can."""
        if self.java.version < OLDEST_JAVA:
            return f"Java {self.java.version} has no dynamic archives"
        filled = next((path for path in self.entries if path.is_dir() and any(path.iterdir())), None)
        return f"the directory {filled} is on the class path" if filled else None


@dataclass(frozen=True)
class Archive:
    """A checked archive; `base` only for a Java that ships without one."""

    classes: Path
    base: Path | None

    @property
    def options(self) -> tuple[str, ...]:
        """What the JVM is started with. It starts without the archive if it cannot use it."""
        files = os.pathsep.join(str(path) for path in (self.base, self.classes) if path)
        return (f"-XX:SharedArchiveFile={files}", "-Xshare:auto", QUIET, *IN_PLACE)


def default_root(environ: Mapping[str, str] | None = None) -> Path:
    """Archives are kept beside the jars that they were made from."""
    return default_cache(environ) / "archives"


def find(wanted: Wanted, root: Path | None = None) -> Archive | None:
    """The archive for this class path; None where there is none, or none that is whole."""
    try:
        directory = (root or default_root()) / wanted.key
        if wanted.java.version < OLDEST_JAVA or not is_plain(directory) or not is_whole(directory):
            return None
        with contextlib.suppress(OSError):  # a cache that cannot be written is fine to read
            os.utime(directory / RECORD)
    except OSError:
        return None
    base = directory / BASE
    return Archive(directory / CLASSES, base if base.exists() else None)


def is_plain(directory: Path) -> bool:
    """Whether the path may stand in a list of archives and in a list of Java options."""
    return re.search(r"[\s:'\"\\]", str(directory)) is None


def is_whole(directory: Path) -> bool:
    """Whether every file is as it was recorded."""
    try:
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        files = {name: (entry["bytes"], entry["crc32"]) for name, entry in record["files"].items()}
        return CLASSES in files and all(_matches(directory / name, *facts) for name, facts in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def names_archive(options: str) -> bool:
    """Whether Java options already say how classes are shared; users' options win."""
    return _GIVEN.search(options) is not None


def checksum(path: Path) -> int:
    """CRC-32 of a file: about 0.06 s for an archive of 130 MB."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found = zlib.crc32(chunk, found)
    return found


def _matches(path: Path, size_bytes: int, crc32: int) -> bool:
    return path.stat().st_size == size_bytes and checksum(path) == crc32


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
