"""A storage, a table and a quarantine in memory; a process can be killed at any of their steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined, QuarantineRecord, StoredFile
from neve.maintenance.record import Operation
from neve.maintenance.removal import Unreachable, require, require_trash
from neve.operations.quarantine import purge, restore, settle
from neve.operations.quarantine_moves import Moving, QuarantineRequest
from neve.state import StateStore
from neve.table.state import TableName
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import FakeTable, FakeWriter

LOCATION = "s3://lake/db/t"
TABLE = TableName(catalog="lake", namespace=("db",), name="t")
HOUR, DAY = 3_600_000, 86_400_000


def proof(*paths: str) -> Unreachable:
    """A proof for these locations, from a table that needs nothing."""
    return Unreachable.judged(paths, lambda _: (), lambda: ("u", "metadata"))


class KilledError(BaseException):
    """The process is gone: nobody catches this."""


class Fuse:
    """Counts steps; the process is killed at the given one."""

    def __init__(self) -> None:
        self.steps = 0
        self.last: int | None = None

    def burn(self) -> None:
        self.steps += 1
        if self.last is not None and self.steps >= self.last:
            raise KilledError


class FakeFiles:
    """Contents by path (`ports.FileStore`). A move is a copy and a delete, as on S3, and each of these is a step."""

    def __init__(self, fuse: Fuse) -> None:
        self.contents: dict[str, str] = {}
        self.modified: dict[str, int] = {}
        """When files were written, where that matters; long ago otherwise."""
        self.versions: dict[str, str] = {}
        self.versioned = False
        self.broken: set[str] = set()
        self.deleted: list[list[str]] = []
        self._fuse = fuse

    def stat(self, paths: Sequence[str]) -> list[StoredFile | None]:
        self._fuse.burn()
        return [self._stat(path) if path in self.contents else None for path in paths]

    def _stat(self, path: str) -> StoredFile:
        return StoredFile(len(self.contents[path]), self.modified.get(path, 0))

    def move(self, moves: Sequence[tuple[str, str]], proof: Unreachable, seen: Mapping[str, StoredFile]) -> dict[str, str]:
        require(proof, (source for source, _ in moves))
        assert all(self._stat(source) == seen[source] for source, _ in moves)
        return self._moved(moves)

    def put_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        require_trash(source for source, _ in moves)
        return self._moved(moves)

    def copy_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        require_trash(source for source, _ in moves)
        before = dict(self.contents)
        failures = self._moved(moves)
        self.contents |= {source: before[source] for source, _ in moves}
        return failures

    def _moved(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        return {source: why for source, target in moves if (why := self._move(source, target))}

    def _move(self, source: str, target: str) -> str | None:
        if source in self.broken:
            return "503 Slow Down"
        assert source in self.contents
        if target in self.contents:
            return f"there is a file at {target}"
        self._fuse.burn()
        self.contents[target] = self.contents[source]
        self._fuse.burn()
        del self.contents[source]
        self._fuse.burn()
        return None

    def delete(self, paths: Sequence[str], proof: Unreachable) -> dict[str, str]:
        require(proof, paths)
        self.deleted += [list(paths)] if paths else []
        for path in paths:
            self._fuse.burn()
            if path not in self.broken and path in self.contents:
                content = self.contents.pop(path)
                self.versions |= {path: content} if self.versioned else {}
        return {path: "503 Slow Down" for path in paths if path in self.broken}

    def keeps_versions(self, path: str) -> bool:  # noqa: ARG002
        return self.versioned

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        for path in paths:
            self._fuse.burn()
            self.contents[path] = self.versions.pop(path)
        return {}


class FusedStore:
    """The real store's list, in which the process may die before or after each call."""

    def __init__(self, store: StateStore, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:
        return self._store.record_candidates(table_uuid, run_id, files, now_ms)

    def quarantined(self, table_uuid: str, **words: Any) -> Iterator[Quarantined]:
        return self._store.quarantined(table_uuid, **words)

    def settle_candidates(self, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:
        self._fuse.burn()
        self._store.settle_candidates(table_uuid, changes, now_ms)
        self._fuse.burn()


class FakeReach:
    """What the table needs (`ports.Reachability`)."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.asked = 0
        self.answer: Callable[[set[str]], set[str]] = lambda needed: needed

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        raise NotImplementedError

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        raise NotImplementedError

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        self.asked += 1
        return iter(sorted(self.answer(self.all & set(paths))))


class MovedClock:
    """A clock that tests set, and that sleeping moves. It is ahead: real files were written before they are recorded."""

    def __init__(self) -> None:
        self.ms = 4_000_000_000_000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class World:
    """A table's storage, its quarantine, and the operations on it."""

    store: StateStore
    uuid: str = "t"
    location: str = LOCATION
    fuse: Fuse = field(default_factory=Fuse)
    reach: FakeReach = field(default_factory=FakeReach)
    clock: MovedClock = field(default_factory=MovedClock)
    table: FakeTable = field(init=False)
    slept: list[float] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    """The tables with the same uuid that files were recorded for, by path."""

    def __post_init__(self) -> None:
        self.files = FakeFiles(self.fuse)
        self.table = FakeTable(uuid=self.uuid)

    def moving(self, operation: Operation, request: QuarantineRequest, files: Any = None) -> Moving:
        context: Any = FakeContext(
            FakeWriter(self.table),
            self.clock,
            self._sleep,
            leases=self.store,
            quarantine=FusedStore(self.store, self.fuse),
        )
        access: dict[str, Any] = {"files": files or self.files, "recorded_for": lambda file: self.copies.get(file.path)}
        return Moving(operation, request, context, reach=self.reach, **access)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.ms += round(seconds * 1000)

    def put(self, *names: str) -> list[str]:
        """Files of the table's directory, each with a content of its own."""
        paths = [f"{LOCATION}/data/{name}" for name in names]
        self.files.contents |= {path: f"of {path}" for path in paths}
        return paths

    def record(self, *paths: str, run_id: str = "run1", size_bytes: int | None = 10, modified_ms: int | None = None) -> int:
        facts: dict[str, Any] = {"size_bytes": size_bytes, "modified_ms": modified_ms}
        files = [Candidate(path=path, reason="no snapshot needs it", **facts) for path in paths]
        return self.store.record_candidates(self.uuid, run_id, files, self.clock.ms)

    def settle(self, *, at_once: bool = False, delete: bool = False, **words: Any) -> QuarantineRecord:
        return settle(
            self.moving(Operation.SETTLE, self.request(**words)), grace_seconds=86_400, at_once=at_once, delete=delete
        )

    def purge(self, *, rate: float = 1000.0, **words: Any) -> QuarantineRecord:
        return purge(self.moving(Operation.PURGE, self.request(**words)), keep_seconds=7 * 86_400, rate=rate)

    def restore(self, run_id: str = "run1", **words: Any) -> QuarantineRecord:
        return restore(self.moving(Operation.RESTORE, self.request(run_id=run_id, **words)))

    def request(self, **words: Any) -> QuarantineRequest:
        return QuarantineRequest(TABLE, self.uuid, self.location, **words)

    def fates(self) -> dict[str, Fate]:
        return {file.path: file.fate for file in self.store.quarantined(self.uuid)}

    def rows(self) -> dict[str, Quarantined]:
        return {file.path: file for file in self.store.quarantined(self.uuid)}
