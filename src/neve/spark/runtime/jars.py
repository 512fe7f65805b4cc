"""Maven coordinates to local jar files. Called by `session`, `doctor` and the test stack.

Jars live in one directory of ours, with a record per wish: a second call starts no JVM and only looks at sizes. A file
that is missing or of the wrong size is fetched again. Safe when several processes resolve at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from neve.errors import EnvironmentFaultError
from neve.spark.runtime import ivy
from neve.spark.runtime.coordinates import Coordinate
from neve.spark.runtime.java import Java


@dataclass(frozen=True)
class _Wish:
    """What is asked for in one go; its key names the record of the answer."""

    coordinates: tuple[Coordinate, ...]
    transitive: bool
    exclusions: tuple[str, ...]

    @property
    def key(self) -> str:
        facts = [sorted(map(str, self.coordinates)), self.transitive, sorted(self.exclusions)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def default_cache(environ: Mapping[str, str] | None = None) -> Path:
    """NEVE_JARS_CACHE, else a directory in the user's cache."""
    import platformdirs

    named = (os.environ if environ is None else environ).get("NEVE_JARS_CACHE")
    return Path(named).expanduser() if named else platformdirs.user_cache_path("neve") / "jars"


def given_jars(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The jars of NEVE_JARS, which win over everything; empty when it is not set."""
    text = (os.environ if environ is None else environ).get("NEVE_JARS", "")
    return existing(text.split(os.pathsep), origin="NEVE_JARS")


def existing(names: Iterable[str], *, origin: str) -> tuple[Path, ...]:
    """The named jars, made absolute. A missing one is an error that says where the name came from."""
    paths = tuple(Path(name).expanduser().absolute() for name in names if name.strip())
    for path in paths:
        if not path.is_file():
            raise EnvironmentFaultError(
                f"Cannot use jar {path}: there is no such file", hint=f"It is named in {origin}; correct or remove it."
            )
    return paths


def resolve(
    coordinates: Sequence[str],
    *,
    java: Java,
    cache: Path | None = None,
    transitive: bool = False,
    exclusions: Sequence[str] = (),
    check_content: bool = False,
    environ: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """Local files for `group:artifact:version[:classifier]`, fetched on first use.

    Without `transitive` there is one jar per coordinate, in the order asked for; with it, the whole class path.
    `exclusions` are `group:artifact` or `group`. `check_content` compares hashes, not only sizes, and takes a second or so.
    Raises EnvironmentFaultError with the coordinate and the cure.
    """
    parsed = tuple(dict.fromkeys(Coordinate.parse(text) for text in coordinates))
    environ = os.environ if environ is None else environ
    cache = cache or default_cache(environ)
    wishes = _wishes(parsed, transitive=transitive, exclusions=tuple(exclusions))
    known = {wish: _recorded(cache, wish, check_content=check_content) for wish in wishes}
    if not all(known.values()):
        with _locked(cache):
            for wish in wishes:
                known[wish] = known[wish] or _recorded(cache, wish, check_content=check_content)
                known[wish] = known[wish] or _fetch(cache, wish, java=java, environ=environ)
    return tuple(path for wish in wishes for path in known[wish])


def _wishes(parsed: tuple[Coordinate, ...], *, transitive: bool, exclusions: tuple[str, ...]) -> tuple[_Wish, ...]:
    """A class path is one wish, since versions are chosen together; single jars are remembered one by one."""
    if transitive:
        return (_Wish(parsed, True, exclusions),)
    return tuple(_Wish((coordinate,), False, ()) for coordinate in parsed)


def _recorded(cache: Path, wish: _Wish, *, check_content: bool) -> tuple[Path, ...]:
    """The files of an earlier answer; empty when there is none, or when a file is gone or has changed."""
    try:
        record = json.loads((cache / "records" / f"{wish.key}.json").read_text(encoding="utf-8"))
        whole = all(_is_whole(cache / entry["path"], entry, check_content=check_content) for entry in record["files"])
        return tuple(cache / entry["path"] for entry in record["files"]) if whole else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _is_whole(path: Path, entry: Mapping[str, Any], *, check_content: bool) -> bool:
    return path.stat().st_size == entry["bytes"] and (not check_content or _sha256(path) == entry["sha256"])


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """One process at a time; the operating system frees the lock of a process that dies."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / ".lock").open("w")
    except OSError as error:
        raise EnvironmentFaultError(
            f"Cannot keep jars in {cache}: {error.strerror or error}",
            hint="Set NEVE_JARS_CACHE to a directory that can be written.",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(cache: Path, wish: _Wish, *, java: Java, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Downloads, checks, moves into place, and only then writes the record. A broken download is tried once more."""
    for _attempt in range(2):
        staging = Path(tempfile.mkdtemp(dir=cache, prefix=".fetch-"))
        try:
            found = ivy.fetch(
                wish.coordinates,
                java=java,
                ivy_jar=_ivy_jar(),
                directory=staging,
                transitive=wish.transitive,
                exclusions=wish.exclusions,
                environ=environ,
            )
            broken = [path.name for path in found if not _readable(path)]
            if not broken:
                return _keep(cache, wish, found)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    raise EnvironmentFaultError(
        f"Cannot use {', '.join(broken)}: what the repository sent is not a jar",
        hint="A proxy may be answering in its place; see NEVE_MAVEN_MIRROR and NEVE_JARS.",
    )


def _ivy_jar() -> Path:
    from neve.spark.runtime.distribution import spark_home

    found = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise EnvironmentFaultError(
            f"Cannot fetch jars: {spark_home()} has no Ivy", hint="Reinstall pyspark, or set NEVE_JARS to the jar files."
        )
    return found[-1]


def _readable(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _keep(cache: Path, wish: _Wish, found: Sequence[Path]) -> tuple[Path, ...]:
    """Moves the jars to their place and writes the record. A jar that is there already, and whole, stays."""
    entries = [_place(cache, path) for path in found]
    record = {"coordinates": [str(coordinate) for coordinate in wish.coordinates], "files": entries}
    _write(cache / "records" / f"{wish.key}.json", json.dumps(record, indent=1))
    return tuple(cache / str(entry["path"]) for entry in entries)


def _place(cache: Path, path: Path) -> dict[str, str | int]:
    place = cache / "files" / _group_of(path) / path.name
    entry: dict[str, str | int] = {"path": str(place.relative_to(cache)), "bytes": path.stat().st_size, "sha256": _sha256(path)}
    if not (place.is_file() and _is_whole(place, entry, check_content=True)):
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)  # a JVM that has the old file open keeps it
    return entry


def _group_of(path: Path) -> str:
    """Ivy keeps jars as group/artifact/jars/file."""
    return path.parent.parent.parent.name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
