"""Every operation that commits, behind one interface: it is run through a script of faults, and what came of it is reported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from neve.commit.lease import Held
from neve.errors import CommitConflictError
from neve.maintenance.delete_files import Upkeep
from neve.maintenance.quarantine import Candidate
from neve.maintenance.retention import Rules, SnapshotHistory
from neve.maintenance.ttl import Tally, TtlLimits, TtlRule, TtlTarget
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn
from neve.operations.delete_files import maintain_deletes
from neve.operations.expire_snapshots import ExpiryTerms, expire
from neve.operations.requests import DeletesRequest, ManifestsRequest, StatsRequest
from neve.operations.rewrite_manifests import rewrite_manifests
from neve.operations.statistics import keep_statistics
from neve.operations.tags import keep_tags
from neve.operations.ttl import expire_rows
from neve.operations.ttl_terms import TtlTerms
from neve.policy.auto_tags import Period
from neve.policy.model import Policy
from neve.rewrite.live_files import Ancestor, DataFile, LiveFile, describe_metrics
from neve.table.metrics import ColumnMetrics, to_bytes
from neve.table.state import PartitionField, PartitionSpec, Ref, RefKind, Snapshot, TableName
from tests.builders.contexts import FakeContext, compact
from tests.builders.fake_maintenance_tables import FakeTable as FakeMetadata
from tests.builders.fake_tables import Data, FakeDeletes, FakeEngine, FakeResolver, FakeTable, FakeWriter, Kind, plan_of
from tests.builders.quarantine_lists import ListedQuarantine
from tests.contracts.commit_faults import Script, Tapped

NAME = TableName(catalog="c", namespace=("db",), name="t")
SPECS = (PartitionSpec(spec_id=0, fields=(PartitionField(name="p", transform="identity", source_id=2, field_id=1000),)),)
DAY = 86_400_000


@dataclass(frozen=True)
class Report:
    """What a run came to."""

    outcome: str
    """That of its record, else the type of what it raised."""
    landed: int
    """Commits in the table when the run ended."""
    content_is_right: bool
    """Whether the table is as it was, or as the operation makes it, by what had landed; also once late requests arrived."""
    sends: int
    slept: list[float]
    set_aside: set[str]
    referenced: set[str]
    """Files that any snapshot of the table needs, those of late requests too."""
    calls: list[str]

    @property
    def is_safe(self) -> bool:
        """What holds whatever happens."""
        return self.landed <= 1 and self.content_is_right and not self.set_aside & self.referenced


class Scenario(ABC):
    """One operation on a table on which it has something to do."""

    name: ClassVar[str]
    after: Any
    """The content once it has landed."""

    def __init__(self) -> None:
        self.quarantine = ListedQuarantine()

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Of the table."""

    @abstractmethod
    def carry_out(self, script: Script) -> Any:
        """Runs the operation, and returns its record."""

    @abstractmethod
    def content(self) -> Any:
        """What readers of the table see."""

    @abstractmethod
    def referenced(self) -> set[str]:
        """Files that any snapshot needs."""

    def undo(self) -> None:
        """Rolls the newest snapshot back, where the operation makes one."""
        raise NotImplementedError


def run(scenario: Scenario, script: Script, **properties: str) -> Report:
    """Runs one scenario. Keywords are table properties below `commit.retry`, with underscores."""
    scenario.properties.update({f"commit.retry.{key.replace('_', '-')}": value for key, value in properties.items()})
    script.undo = scenario.undo
    before = scenario.content()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "assert_held", lambda _: script.assert_held())
        try:
            outcome = str(scenario.carry_out(script).outcome)
        except (Exception, KeyboardInterrupt) as error:
            outcome = type(error).__name__
    landed, right = script.landed, scenario.content() == (scenario.after if script.landed else before)
    script.arrive()
    right = right and scenario.content() == (scenario.after if script.landed else before)
    set_aside = set(scenario.quarantine.recorded)
    return Report(outcome, landed, right, script.sends, script.slept, set_aside, scenario.referenced(), script.calls)


class OnFiles(Scenario):
    """On a table of data files and deletes."""

    version: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self.table = FakeTable(format_version=self.version)
        self.fill()

    @abstractmethod
    def fill(self) -> None:
        """Writes what the table begins with, and sets what comes of it."""

    @property
    def properties(self) -> dict[str, str]:
        return self.table.properties

    def content(self) -> Any:
        kinds = [delete.kind for delete in self.table.now.deletes.values()]
        return self.table.visible(), len(self.table.now.data), kinds.count(Kind.POSITION), kinds.count(Kind.EQUALITY)

    def referenced(self) -> set[str]:
        versions = self.table.history.values()
        return {path for version in versions for path in (*version.data, *(key[0] for key in version.deletes))}

    def undo(self) -> None:
        assert self.table.now.parent_id is not None
        self.table.roll_back(self.table.now.parent_id)

    def tools(self, script: Script) -> Any:
        return FakeContext(
            name=NAME,
            uuid="uuid",
            writer=Tapped(FakeWriter(self.table), script),
            engine=FakeEngine(self.table, plan_of(self.table)),
            specs=SPECS,
            clock=script.clock,
            sleep=script.slept.append,
            deletes=FakeDeletes(self.table),
            resolver=FakeResolver(self.table),
            quarantine=self.quarantine,
        )


class Compaction(OnFiles):
    name = "compaction"

    def fill(self) -> None:
        for row, partition in enumerate("aabb"):
            self.table.append(row, partition=partition)
        self.plan = plan_of(self.table)
        self.after = ([0, 1, 2, 3], 2, 0, 0)

    def carry_out(self, script: Script) -> Any:
        return compact(self.plan, replace(self.tools(script), engine=FakeEngine(self.table, self.plan)))


class LateDeletes(Compaction):
    """A row is deleted after the plan was made: each attempt writes that delete anew, for its outputs."""

    name = "compaction with late deletes"

    def fill(self) -> None:
        super().fill()
        self.plan = plan_of(self.table)
        self.table.delete_positions(next(iter(self.table.now.data)), 0)
        self.table.append(9, partition="c")
        self.after = ([1, 2, 3, 9], 3, 1, 0)


class Conversion(OnFiles):
    """Its scratch file is set aside even if all goes well; in version 2 no vector is committed as it was found."""

    name, operation = "convert", Upkeep.CONVERT

    def fill(self) -> None:
        self.a = [self.table.append(1, 2, 3, partition="a"), self.table.append(4, 5, 6, partition="a")]
        self.b = self.table.append(7, 8, 9, partition="b")
        self.table.delete_positions(self.a[0], 1)
        self.table.delete_equal(2, 5, partition="a")
        self.table.delete_equal(8, partition="b")
        self.after = ([3, 4, 6, 7, 9], 3, 3, 0)

    def carry_out(self, script: Script) -> Any:
        return maintain_deletes(self.tools(script), DeletesRequest(self.operation))


class Rewriting(Conversion):
    name, operation = "rewrite", Upkeep.REWRITE

    def fill(self) -> None:
        super().fill()
        self.table.delete_positions(self.a[0], 3)
        self.after = ([4, 6, 7, 9], 3, 1, 2)


class Pruning(Conversion):
    name, operation = "prune", Upkeep.PRUNE

    def fill(self) -> None:
        super().fill()
        self.table.compact(*self.a)
        self.after = ([3, 4, 6, 7, 9], 2, 0, 1)


@dataclass
class PastRows:
    """Rows below a number are past. Deletes rewrite the files, as copy-on-write does (`ttl_ports.PastRows`)."""

    table: FakeTable

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: TtlLimits) -> list[LiveFile]:  # noqa: ARG002
        found = []
        for file in FakeWriter(self.table).scan(snapshot_id):
            rows = sorted(self.table.contents[file.path])
            lower, upper = to_bytes("date", rows[0]), to_bytes("date", rows[-1])
            described = describe_metrics({1: ColumnMetrics(values=len(rows), nulls=0, lower=lower, upper=upper)})
            found += [LiveFile(file.data_file | described)] if rows[0] < int(limits.high) else []
        return found

    def tallies(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: TtlLimits) -> Mapping[str, Tally]:  # noqa: ARG002
        rows, high = {path: self.table.contents[path] for path in paths}, int(limits.high)
        return {path: Tally(sum(r < high for r in of), sum(r >= high for r in of)) for path, of in rows.items()}

    def stored(self, files: Sequence[LiveFile], rule: TtlRule) -> Mapping[str, FooterFinding]:
        rows = {file.path: self.table.contents[file.path] for file in files}
        return {path: FooterFinding(StoredColumn(rule.type, 0, min(of), max(of))) for path, of in rows.items()}

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], target: TtlTarget) -> None:  # noqa: ARG002
        self._commit([file["file-path"] for file in files], [], summary)

    def delete(
        self,
        rule: TtlRule,  # noqa: ARG002
        limits: TtlLimits,
        summary: Mapping[str, str],
        target: TtlTarget,  # noqa: ARG002
        left_alone: Sequence[str] = (),  # noqa: ARG002
    ) -> None:
        mixed = [path for path in self.table.now.data if min(self.table.contents[path]) < int(limits.high)]
        for path in mixed:
            self.table.contents[f"{path}-kept"] = frozenset(r for r in self.table.contents[path] if r >= int(limits.high))
        self._commit(mixed, [Data(f"{path}-kept", "p", 1) for path in mixed], summary)

    def _commit(self, gone: list[str], added: list[Data], summary: Mapping[str, str]) -> None:
        if missing := [path for path in gone if path not in self.table.now.data]:
            raise CommitConflictError(f"Cannot commit: Missing required files to delete: {missing[0]}")
        removed = sum(len(self.table.contents[path]) for path in gone)
        told = {"deleted-data-files": str(len(gone)), "deleted-records": str(removed)}
        self.table._commit("delete", added=added, removed=gone, summary={**told, **summary})


class DroppedFiles(OnFiles):
    name, after = "ttl drop", ([200, 201], 1, 0, 0)
    rows: tuple[tuple[int, ...], ...] = ((1, 2, 3), (200, 201))

    def fill(self) -> None:
        for rows in self.rows:
            self.table.append(*rows)

    def carry_out(self, script: Script) -> Any:
        rule = TtlRule(column="day", field_id=1, type="date", keep_seconds=86_400)
        request = TtlTerms(NAME, "uuid", rule, 100 * DAY, max_files=100)
        return expire_rows(request, self.tools(script), Tapped(PastRows(self.table), script))


class DeletedRows(DroppedFiles):
    name, rows, after = "ttl delete", ((50, 150), (200, 201)), ([150, 200, 201], 2, 0, 0)


class Metadata(FakeMetadata):
    """With a history that knows what was rolled back."""

    def ancestry(self, snapshot_id: int, until: int | None, *, most: int | None = None) -> list[Ancestor]:
        found, at = list[Ancestor](), {version.snapshot.snapshot_id: version.snapshot for version in self.versions}
        while (s := at.get(snapshot_id)) is not None and snapshot_id != until and len(found) != most:
            summary = dict(s.summary)
            found.append(Ancestor(s.snapshot_id, s.parent_id, s.operation, summary, s.timestamp_ms, removed_deletes=dict))
            snapshot_id = s.parent_id or 0
        return found


class OnMetadata(Scenario):
    """On a table of manifests, refs and statistics: a commit on each of five days, all of which are over."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Metadata()
        for _ in range(5):
            self.table.append()
            self.table.clock.now += DAY

    @property
    def properties(self) -> dict[str, str]:
        return self.table.properties_

    def context(self, script: Script, policy: Policy | None = None) -> tuple[Any, Any]:
        script.clock.now = self.table.clock.now
        tapped: Any = Tapped(self.table, script)
        return replace(
            self.table.context(policy),
            writer=tapped,
            reader=lambda: script.call("look", lambda: tapped),
            clock=script.clock,
            sleep=script.slept.append,
            quarantine=self.quarantine,
        ), tapped


class Manifests(OnMetadata):
    name, after = "manifests", (0, 1)

    def carry_out(self, script: Script) -> Any:
        return rewrite_manifests(*self.context(script, Policy.model_validate({"manifest-min-count": 3})), ManifestsRequest())

    def content(self) -> Any:
        listed = self.table.versions[-1].manifests
        old = sum(path.startswith("m") for path in listed)
        return old, len(listed) - old

    def referenced(self) -> set[str]:
        return {path for version in self.table.versions for path in version.manifests}

    def undo(self) -> None:
        newest = self.table.versions[-1].snapshot
        assert newest.parent_id is not None
        assert self.table.roll_back(newest.snapshot_id, newest.parent_id)


class Statistics(OnMetadata):
    name, after = "statistics", (5, 5)

    def carry_out(self, script: Script) -> Any:
        return keep_statistics(*self.context(script), StatsRequest(columns=("city",)))

    def content(self) -> Any:
        return tuple(file.snapshot_id for file in self.table.statistics)

    def referenced(self) -> set[str]:
        return {file.path for file in self.table.statistics}


class Tags(OnMetadata):
    name, after = "tags", {"neve-daily-2025-06-19": 5}

    def __init__(self) -> None:
        super().__init__()
        self.table.refs["neve-daily-2025-06-15"] = Ref(name="neve-daily-2025-06-15", kind=RefKind.TAG, snapshot_id=1)

    def carry_out(self, script: Script) -> Any:
        return keep_tags(*self.context(script), {Period.DAILY: 1}, prefix="neve")

    def content(self) -> Any:
        return {name: ref.snapshot_id for name, ref in self.table.refs.items()}

    def referenced(self) -> set[str]:
        return set()


@dataclass
class SnapshotsAndFiles:
    """Each snapshot needs a file of its own and one that it shares with the next (`SnapshotRemoval`, `ports.Reachability`)."""

    snapshots: set[int] = field(default_factory=lambda: set(range(6, 11)))
    refs: dict[str, int] = field(default_factory=lambda: {"main": 10, "v1": 7})
    properties: dict[str, str] = field(default_factory=dict)
    version: int = 1
    versions: dict[str, set[str]] = field(default_factory=dict)
    now_ms: int = 0

    def history(self) -> SnapshotHistory:
        self.versions[f"v{self.version}"] = self.files()
        line: dict[str, Any] = {"operation": "append", "summary": {}}
        times = {number: self.now_ms - (11 - number) * 10 * DAY for number in sorted(self.snapshots)}
        snapshots = tuple(
            Snapshot(snapshot_id=i, parent_id=i - 1, sequence_number=i, timestamp_ms=ms, **line) for i, ms in times.items()
        )
        kinds = {"main": RefKind.BRANCH, "v1": RefKind.TAG}
        refs = tuple(Ref(name=name, kind=kinds[name], snapshot_id=at) for name, at in self.refs.items())
        return SnapshotHistory(f"v{self.version}", dict(self.properties), snapshots, refs, self.refs["main"])

    def files(self) -> set[str]:
        return {path for number in self.snapshots for path in (f"own-{number}", f"shared-{number}", f"shared-{number + 1}")}

    def expire(
        self, history: SnapshotHistory, snapshots: Collection[int], *, refs: Collection[str] = (), properties: Mapping[str, str]
    ) -> bool:
        if history.metadata_location != f"v{self.version}":
            return False
        self.snapshots -= set(snapshots)
        self.refs = {name: at for name, at in self.refs.items() if name not in refs}
        self.properties |= properties
        self.version += 1
        return True

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        return (Candidate(path=path, reason="lost") for path in sorted(self.versions[metadata_location] - self.files()))

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        return (path for path in paths if path in self.files())


class Expiry(Scenario):
    name, after = "expire", ([7, 10], {"main": 10, "v1": 7})

    def __init__(self) -> None:
        super().__init__()
        self.table = SnapshotsAndFiles()

    @property
    def properties(self) -> dict[str, str]:
        return self.table.properties

    def carry_out(self, script: Script) -> Any:
        self.table.now_ms = script.clock.now
        tapped: Any = Tapped(self.table, script)
        writer: Any = Tapped(FakeWriter(FakeTable()), script)
        context: Any = FakeContext(writer, script.clock, script.slept.append, name=NAME, quarantine=self.quarantine)
        return expire(context, tapped, tapped, ExpiryTerms(Rules(keep_ms=7 * DAY, min_count=1)))

    def content(self) -> Any:
        return sorted(self.table.snapshots), self.table.refs

    def referenced(self) -> set[str]:
        return self.table.files()


SCENARIOS: tuple[type[Scenario], ...] = (
    Compaction,
    LateDeletes,
    Conversion,
    Rewriting,
    Pruning,
    DroppedFiles,
    DeletedRows,
    Manifests,
    Expiry,
    Statistics,
    Tags,
)
