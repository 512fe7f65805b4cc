"""A table in memory whose snapshots are expired, with writers and lost responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neve.errors import (
    CatalogUnreachableError,
    CommitUnknownError,
)
from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.quarantine import Candidate
from neve.maintenance.retention import Rules, SnapshotHistory
from neve.operations.expire_snapshots import ExpiryTerms, expire
from neve.table.state import Ref, RefKind, Snapshot
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import FakeTable, FakeWriter
from tests.builders.quarantine_lists import ListedQuarantine

DAY = 86_400_000
NOW = 1_000 * DAY
RULES = Rules(keep_ms=7 * DAY, min_count=1)
UNKNOWN = CommitUnknownError("Cannot tell whether the commit landed: the line is dead")


class Still:
    def now_ms(self) -> int:
        return NOW


def snapshot(number: int) -> Snapshot:
    """Each is ten days older than the next, the tenth ten days old."""
    return Snapshot(
        snapshot_id=number,
        parent_id=number - 1 or None,
        sequence_number=number,
        timestamp_ms=NOW - (11 - number) * 10 * DAY,
        operation="append",
        summary={},
    )


def lost(path: str) -> Candidate:
    """A file of 100 bytes, or one whose size nobody knows."""
    return Candidate(path=path, reason="lost", size_bytes=100 if path.startswith("own") else None)


@dataclass
class Table:
    """Each snapshot needs a file of its own and one that it shares with the next (implements both ports)."""

    snapshots: dict[int, Snapshot] = field(default_factory=lambda: {i: snapshot(i) for i in range(6, 11)})
    refs: dict[str, Ref] = field(
        default_factory=lambda: {
            "main": Ref(name="main", kind=RefKind.BRANCH, snapshot_id=10),
            "v1": Ref(name="v1", kind=RefKind.TAG, snapshot_id=7),
        }
    )
    properties: dict[str, str] = field(default_factory=dict)
    version: int = 1
    versions: dict[str, set[str]] = field(default_factory=dict)
    strikes: list[Callable[[], object]] = field(default_factory=list)
    """Happen before the commits, one before each."""
    answers: list[str | Exception] = field(default_factory=list)
    """`lost` and `unsent` leave the caller in the dark; an exception is raised by a look."""
    used_again: set[str] = field(default_factory=set)
    commits: int = 0

    def history(self) -> SnapshotHistory:
        if self.answers and isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)  # type: ignore[misc]
        location = f"v{self.version}"
        self.versions[location] = self.files()
        head = self.refs["main"].snapshot_id if "main" in self.refs else None
        return SnapshotHistory(location, dict(self.properties), tuple(self.snapshots.values()), tuple(self.refs.values()), head)

    def files(self) -> set[str]:
        return {path for number in self.snapshots for path in (f"own-{number}", f"shared-{number}", f"shared-{number + 1}")}

    def expire(
        self, history: SnapshotHistory, snapshots: Collection[int], *, refs: Collection[str] = (), properties: Mapping[str, str]
    ) -> bool:
        if self.strikes:
            self.strikes.pop(0)()
        answer = self.answers.pop(0) if self.answers else "said"
        self.commits += 1
        if answer == "unsent":
            raise UNKNOWN
        if history.metadata_location != f"v{self.version}":
            return False
        self.snapshots = {number: found for number, found in self.snapshots.items() if number not in snapshots}
        self.refs = {name: ref for name, ref in self.refs.items() if name not in refs}
        self.properties |= properties
        self.version += 1
        if answer == "lost":
            raise UNKNOWN
        return True

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        if metadata_location not in self.versions:
            raise CatalogUnreachableError(f"Cannot read {metadata_location}: it is gone")
        return map(lost, sorted(self.versions[metadata_location] - self.files()))

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        left = Table(snapshots={number: found for number, found in self.snapshots.items() if number not in snapshots})
        return map(lost, sorted(self.files() - left.files()))

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        return (path for path in paths if path in self.files() | self.used_again)

    def tag(self, name: str, at: int) -> None:
        self.refs[name] = Ref(name=name, kind=RefKind.TAG, snapshot_id=at)
        self.version += 1

    def drop(self, name: str) -> None:
        del self.refs[name]


@dataclass
class Bench:
    table: Table = field(default_factory=Table)
    quarantine: ListedQuarantine = field(default_factory=ListedQuarantine)
    writer: FakeWriter = field(default_factory=lambda: FakeWriter(FakeTable()))
    begun: list[tuple[str, str]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def expire(
        self,
        rules: Rules = RULES,
        tools: Mapping[str, Any] | None = None,
        assert_held: Callable[[], None] | None = None,
        terms_again: Callable[[], ExpiryTerms] | None = None,
        **asked: Any,
    ) -> ExpiryRecord:
        context = FakeContext(self.writer, Still(), self.waits.append, quarantine=self.quarantine)
        made: Any = replace(context, **(tools or {}))
        try:
            return expire(made, self.table, self.table, ExpiryTerms(rules, **asked), assert_held, terms_again)
        finally:
            self.begun += [(run_id, begun["metadata_before"]) for run_id, begun in made.begun]
