"""A table in memory for operations other than the rewrite: manifests, refs, statistics; commits answer as a test asks.

Implements what `TableContext`, `ManifestRewriter`, `StatisticsWriter` and `Tagger` need. Every change of a concurrent writer
goes through `append` and similar methods, as its own commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, overload

from neve.errors import CommitConflictError, CommitUnknownError
from neve.maintenance.manifests import Entries, ManifestPlan, WrittenManifests
from neve.maintenance.quarantine import Candidate
from neve.maintenance.statistics import THETA
from neve.maintenance.tags import Tag
from neve.policy.model import Policy
from neve.rewrite.live_files import Ancestor
from neve.table.state import Manifest, Ref, RefKind, Sketch, Snapshot, StatisticsFile, TableState
from tests.builders.contexts import FakeContext
from tests.builders.tables import make_table

KIB = 1024


class Answer(StrEnum):
    """How a commit is answered."""

    TRUE = "true"
    LOST = "lost"  # it landed, nobody was told
    REFUSED = "refused"  # it did not land, for certain
    SILENT = "silent"  # it did not land, nobody was told


@dataclass(frozen=True)
class Version:
    """One snapshot's list: manifests with their first row ids."""

    snapshot: Snapshot
    manifests: Mapping[str, int | None]


@dataclass
class Clock:
    now: int = 1_750_000_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


@dataclass
class FakeTable:
    """The table and one client of it."""

    format_version: int = 2
    versions: list[Version] = field(default_factory=list)
    refs: dict[str, Ref] = field(default_factory=dict)
    statistics: list[StatisticsFile] = field(default_factory=list)
    properties_: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    """For the next commits; TRUE afterwards."""
    before_commit: list[Callable[[], object]] = field(default_factory=list)
    """What others do just before each of the next commits: after the last look, so that only the catalog can notice."""
    before_write: list[Callable[[], object]] = field(default_factory=list)
    """The same between a plan and what is written for it."""
    retries: bool = False
    """Whether the client moves a commit to a newer head by itself, as Iceberg does."""
    on_disk: set[str] = field(default_factory=set)
    doomed: list[Candidate] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    sent: int = 0
    wrong_entries: bool = False

    def context(self, policy: Policy | None = None) -> Any:
        name, given = self.state().name, policy or Policy()
        return FakeContext(self, self.clock, name=name, reader=lambda: self, quarantine=self, given=given)

    # What others do.

    def append(self, *, rows: bool = True) -> int:
        """A commit of one manifest; in version 3 every manifest without a first row id is given one."""
        last = self.versions[-1] if self.versions else None
        number = len(self.versions) + 1
        manifests = {f"m{number}": None, **(dict(last.manifests) if last else {})}
        return self.commit_list(manifests, "append" if rows else "replace", {"added-records": "10"})

    def commit_list(self, manifests: Mapping[str, int | None], operation: str, summary: Mapping[str, str]) -> int:
        last = self.versions[-1] if self.versions else None
        number = len(self.versions) + 1
        totals = {**summary, "total-records": str(10 * number)}
        snapshot = Snapshot(
            snapshot_id=number,
            parent_id=last.snapshot.snapshot_id if last else None,
            sequence_number=number,
            timestamp_ms=self.clock.now_ms(),
            operation=operation,
            summary=totals,
        )
        given = dict(manifests)
        if self.format_version >= 3:
            given = {path: 1000 * number + i if first is None else first for i, (path, first) in enumerate(given.items())}
        self.versions.append(Version(snapshot, given))
        return number

    # TableReader.

    def state(self) -> TableState:
        last = self.versions[-1].snapshot.snapshot_id if self.versions else None
        return make_table(
            format_version=self.format_version,
            snapshot_id=last,
            snapshots=tuple(version.snapshot for version in self.versions),
            history=tuple((version.snapshot.timestamp_ms, version.snapshot.snapshot_id) for version in self.versions),
            refs=tuple(self.refs.values()),
            properties=dict(self.properties_),
            statistics=tuple(file for file in self.statistics if file.sketches),
            partition_statistics=tuple(file for file in self.statistics if not file.sketches),
        )

    def manifests(self) -> tuple[Manifest, ...]:
        line: dict[str, Any] = {
            "length_bytes": KIB,
            "holds_deletes": False,
            "spec_id": 0,
            "sequence_number": 1,
            "live_files": 1,
        }
        last = self.versions[-1]
        return tuple(
            Manifest(path=path, added_snapshot_id=1, first_row_id=first, **line) for path, first in last.manifests.items()
        )

    # TableWriter.

    def refresh(self) -> None:
        """Always new."""

    def uuid(self) -> str | None:
        return None

    def follow(self) -> str | None:
        return None

    def location(self) -> str:
        return "/t"

    def head(self, branch: str = "main") -> int | None:  # noqa: ARG002
        return self.versions[-1].snapshot.snapshot_id if self.versions else None

    def knows(self, snapshot_id: int) -> bool:
        return any(version.snapshot.snapshot_id == snapshot_id for version in self.versions)

    def shape(self) -> dict[str, int]:
        return {"format version": self.format_version}

    def properties(self) -> dict[str, str]:
        return dict(self.properties_)

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        return self.swap_properties({key: expected}, {key: value})

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        if any(self.properties_.get(key) != value for key, value in expected.items()):
            return False
        for key, value in values.items():
            self.properties_.pop(key, None)
            if value is not None:
                self.properties_[key] = value
        return True

    def ancestry(self, snapshot_id: int, until: int | None, *, most: int | None = None) -> list[Ancestor]:
        found = [version.snapshot for version in self.versions if (until or 0) < version.snapshot.snapshot_id <= snapshot_id]
        return [
            Ancestor(s.snapshot_id, s.parent_id, s.operation, dict(s.summary), s.timestamp_ms, removed_deletes=dict)
            for s in [*reversed(found)][:most]
        ]

    def snapshots_with(self, key: str, value: str) -> list[int]:
        return [v.snapshot.snapshot_id for v in self.versions if dict(v.snapshot.summary).get(key) == value]

    def roll_back(self, snapshot_id: int, to: int, branch: str = "main") -> bool:  # noqa: ARG002
        if self.head() != snapshot_id:
            return False
        self.versions.append(self._version(to))
        return True

    def _version(self, snapshot_id: int) -> Version:
        return next(version for version in self.versions if version.snapshot.snapshot_id == snapshot_id)

    # ManifestRewriter.

    @overload
    def write(self, plan: ManifestPlan) -> WrittenManifests: ...

    @overload
    def write(self, snapshot_id: int, *, columns: Sequence[str], partitions: bool) -> tuple[StatisticsFile, ...]: ...

    def write(self, plan: Any, **words: Any) -> Any:  # type: ignore[misc]
        """Writes manifests or statistics: one fake stands for both ports, which call it by position."""
        return self._write_manifests(plan) if isinstance(plan, ManifestPlan) else self._write_statistics(plan, **words)

    def _write_manifests(self, plan: ManifestPlan) -> WrittenManifests:
        if self.before_write:
            self.before_write.pop(0)()
        there = self.versions[-1].manifests
        replaced = {path: there[path] for path in there if path in plan.replaced}
        added = (f"new{len(self.on_disk)}",) if replaced else ()
        staged = f"list{len(self.on_disk)}"
        self.on_disk |= {*added, staged}
        entries = Entries(files=len(there), digest="d")
        after = entries.model_copy(update={"files": entries.files - 1}) if self.wrong_entries else entries
        return WrittenManifests(
            replaced=replaced,
            added=added,
            leftovers=(staged,),
            format_version=self.format_version,
            before=entries,
            after=after,
        )

    def listed(self, snapshot_id: int) -> dict[str, int | None]:
        return dict(self._version(snapshot_id).manifests)

    def commit(self, written: WrittenManifests, summary: Mapping[str, str]) -> None:
        head = self.head()
        answer = self._asked()
        there = self.versions[-1].manifests
        if not written.replaced.keys() <= there.keys() or (self.head() != head and not self.retries):
            raise CommitConflictError("Cannot commit the rewrite: a manifest is missing")
        kept = {path: first for path, first in there.items() if path not in written.replaced}
        self._answered(answer, lambda: self.commit_list({**dict.fromkeys(written.added), **kept}, "replace", summary))

    # Tagger.

    def change_tags(self, created: Sequence[Tag], dropped: Sequence[Tag]) -> bool:
        seen, answer = dict(self.refs), self._asked()
        if self.refs != seen:
            return False

        def change() -> None:
            for tag in dropped:
                del self.refs[tag.name]
            for tag in created:
                self.refs[tag.name] = Ref(name=tag.name, kind=RefKind.TAG, snapshot_id=tag.snapshot_id)

        return self._swapped(answer, change)

    # StatisticsWriter.

    def _write_statistics(self, snapshot_id: int, *, columns: Sequence[str], partitions: bool) -> tuple[StatisticsFile, ...]:
        ids = {column.name: column.field_id for column in self.state().fields}
        sketches = tuple(Sketch(field_ids=(ids[name],), kind=THETA, distinct=7) for name in columns)
        path = f"stats{len(self.on_disk)}"
        files = [StatisticsFile(snapshot_id=snapshot_id, path=path, size_bytes=1, sketches=sketches)] if columns else []
        files += [StatisticsFile(snapshot_id=snapshot_id, path=f"by-{path}", size_bytes=1)] if partitions else []
        self.on_disk |= {file.path for file in files}
        return tuple(files)

    def publish(self, files: Sequence[StatisticsFile], *, in_place_of: Collection[str]) -> bool:
        answer = self._asked()
        others = {file.path for file in self.statistics if file.snapshot_id == files[0].snapshot_id} - set(in_place_of)
        if others or not self.knows(files[0].snapshot_id):
            return False

        def change() -> None:
            kept = [file for file in self.statistics if file.snapshot_id != files[0].snapshot_id]
            self.statistics = [*kept, *files]

        return self._swapped(answer, change)

    # Quarantine.

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:  # noqa: ARG002
        new = list(files)
        self.doomed += new
        return len(new)

    def _asked(self) -> Answer:
        self.sent += 1
        if self.before_commit:
            self.before_commit.pop(0)()
        return self.answers.pop(0) if self.answers else Answer.TRUE

    def _answered(self, answer: Answer, change: Callable[[], object]) -> None:
        if answer is Answer.REFUSED:
            raise CommitConflictError("Cannot commit the rewrite: refused")
        if answer is not Answer.SILENT:
            change()
        if answer is not Answer.TRUE:
            raise CommitUnknownError("Cannot tell whether the commit landed: silence")

    def _swapped(self, answer: Answer, change: Callable[[], object]) -> bool:
        if answer is Answer.REFUSED:
            return False
        self._answered(answer, change)
        return True
