"""Moving and deleting whole files by location, many at a time (`neve.ports.FileStore`): on local disks, and on S3 by boto3.

Used by the quarantine alone: a file leaves its place only with a proof (`maintenance.removal`). On S3 pyarrow would not do: it
leaves an empty object behind where it deletes one, cannot copy more than 5 GB, and deletes one object at a time. Other storage
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from neve.errors import BadRequestError, NeveError, StorageError
from neve.kernels.request_counts import count
from neve.maintenance.quarantine import TRASH, StoredFile
from neve.maintenance.removal import Unreachable, require, require_trash
from neve.storage.files import kind_of, local_path, rewritten, translated

if TYPE_CHECKING:
    from neve.ports import FileStore

_T = TypeVar("_T")


class StoredFiles:
    """Files wherever a table has them; made from the properties that `Storage` takes."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def stat(self, paths: Sequence[str]) -> list[StoredFile | None]:
        """The size and time of each; None where there is no such file."""
        found: dict[str, StoredFile | None] = {}
        for store, ours in self._by_store(paths, str):
            found.update(zip(ours, store.stat(ours), strict=True))
        return [found[path] for path in paths]

    def move(self, moves: Sequence[tuple[str, str]], proof: Unreachable, seen: Mapping[str, StoredFile]) -> dict[str, str]:
        """Moves files within their storage, and overwrites none."""
        require(proof, (source for source, _ in moves))
        return _joined(store.move(ours, proof, seen) for store, ours in self._by_store(moves, lambda move: move[0]))

    def put_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Moves files out of a trash, and overwrites none."""
        require_trash(source for source, _ in moves)
        return _joined(store.put_back(ours) for store, ours in self._by_store(moves, lambda move: move[0]))

    def copy_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Copies files out of a trash and leaves them there as well."""
        require_trash(source for source, _ in moves)
        return _joined(store.copy_back(ours) for store, ours in self._by_store(moves, lambda move: move[0]))

    def delete(self, paths: Sequence[str], proof: Unreachable) -> dict[str, str]:
        """Removes files; one that is not there is fine."""
        require(proof, paths)
        return _joined(store.delete(ours, proof) for store, ours in self._by_store(paths, str))

    def keeps_versions(self, path: str) -> bool:
        """Whether what is deleted there can be had again."""
        return self._store(kind_of(path)).keeps_versions(path)

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Brings files back that were deleted where versions are kept."""
        return _joined(store.undelete(ours) for store, ours in self._by_store(paths, str))

    def _by_store(self, items: Sequence[_T], path: Callable[[_T], str]) -> Iterator[tuple[FileStore, list[_T]]]:
        def kind(item: _T) -> str:
            return kind_of(path(item))

        return ((self._store(name), list(ours)) for name, ours in groupby(sorted(items, key=kind), key=kind))

    def _store(self, kind: str) -> FileStore:
        if kind == "s3":
            return self._s3
        if kind != "file":
            raise BadRequestError(
                f"Cannot move files on {kind}: only those on local disks and on S3 can be moved to the trash",
                hint="They stay in the quarantine's list, and in their place.",
            )
        return LocalFiles()

    @cached_property
    def _s3(self) -> FileStore:
        from neve.storage.s3 import S3Files

        return S3Files(self._properties)


class LocalFiles:
    """Files on a disk of this machine. A move is a rename, so that it happens wholly or not at all."""

    def stat(self, paths: Sequence[str]) -> list[StoredFile | None]:
        """The size and time of each; None where there is no such file."""
        return [_stat(path) for path in paths]

    def move(self, moves: Sequence[tuple[str, str]], proof: Unreachable, seen: Mapping[str, StoredFile]) -> dict[str, str]:
        """Renames files that are still those that were seen, and overwrites none."""
        require(proof, (source for source, _ in moves))
        return _tried(((move[0], move) for move in moves), lambda move: _rename_seen(*move, seen[move[0]]))

    def put_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The same for files in a trash."""
        require_trash(source for source, _ in moves)
        return _renamed(moves)

    def copy_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Gives files in a trash their old names as well. Files of a table never change, so two names for one file are safe."""
        require_trash(source for source, _ in moves)
        return _tried(((source, (source, target)) for source, target in moves), lambda move: _link(*move))

    def delete(self, paths: Sequence[str], proof: Unreachable) -> dict[str, str]:
        """Removes files; one that is not there is fine."""
        require(proof, paths)
        return _tried(((path, path) for path in paths), _unlink)

    def keeps_versions(self, path: str) -> bool:  # noqa: ARG002 - no disk does
        """Never."""
        return False

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Nothing can be had again."""
        return dict.fromkeys(paths, "a disk keeps no older versions")


def _tried(items: Iterable[tuple[str, _T]], act: Callable[[_T], None]) -> dict[str, str]:
    failures = {}
    for path, item in items:
        try:
            act(item)
        except NeveError as error:
            failures[path] = str(error)
    return failures


def _renamed(moves: Sequence[tuple[str, str]]) -> dict[str, str]:
    return _tried(((source, (source, target)) for source, target in moves), lambda move: _rename(*move))


def _stat(path: str) -> StoredFile | None:
    count("read")
    with translated(path, "look at"):
        try:
            found = Path(local_path(path)).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(found.st_size, found.st_mtime_ns // 1_000_000)


def _rename_seen(source: str, target: str, seen: StoredFile) -> None:
    """Renames a file unless it was written again. A writer may come between the check and the rename, so what has arrived is
    checked too."""
    if _stat(source) not in (None, seen):
        raise rewritten(source)
    _rename(source, target)
    if _stat(target) != seen:
        _link(target, source)  # overwrites nothing
        _unlink(target)
        raise rewritten(source)


def _rename(source: str, target: str) -> None:
    old, new = Path(local_path(source)), Path(local_path(target))
    with translated(source, "move"):
        new.parent.mkdir(parents=True, exist_ok=True)
        if new.exists():
            raise StorageError(f"Cannot move {source}: there is a file at {target}")
        count("write")
        old.rename(new)
    _clear_trash(old)


def _link(source: str, target: str) -> None:
    new = Path(local_path(target))
    with translated(source, "copy"):
        new.parent.mkdir(parents=True, exist_ok=True)
        count("write")
        new.hardlink_to(local_path(source))  # fails where a file is already there


def _unlink(path: str) -> None:
    file = Path(local_path(path))
    count("delete")
    with translated(path, "delete"):
        file.unlink(missing_ok=True)
    _clear_trash(file)


def _clear_trash(file: Path) -> None:
    """Removes the trash directories that a file was the last one in."""
    inside = [parent for parent in file.parents if TRASH in parent.parts]
    with suppress(OSError):  # one is not empty, or not there
        for directory in inside:
            directory.rmdir()


def _joined(failures: Iterable[dict[str, str]]) -> dict[str, str]:
    return {path: why for some in failures for path, why in some.items()}
