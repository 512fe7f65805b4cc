"""All of maintenance on a real table, in any order, with writers, branches, strays, kills and others who get in between.

Whatever happens: every snapshot that the table has reads the rows that it always had, every file that its metadata names is in
its place, and every file that was ever there is in its place or in the trash, until a purge that had waited long enough.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from neve.api import Neve
from neve.errors import BadRequestError, LeaseHeldError, NeveError
from neve.maintenance.quarantine import Fate, Quarantined, is_trash
from neve.maintenance.record import MaintenanceRecord
from neve.operations.requests import OrphansRequest
from neve.rewrite.group import Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from tests.builders.java_tables import DAY, AheadClock, WrittenTable, digest
from tests.builders.machine_writers import Writers, chosen, step, steps_of, which
from tests.builders.port_fuses import CALLS, Fuse
from tests.builders.spark_connections import opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
FUSE = Fuse()
GRACE_MS, TRASH_KEEP_MS, ORPHAN_AGE_MS, TTL_MS = DAY, 7 * DAY, 3 * DAY, 30 * DAY
T = TypeVar("T")

waits = st.sampled_from([100, 0, 30, 200])
"""Hours that pass before an operation that goes by ages."""


@dataclass(frozen=True)
class Trouble:
    """What happens at some call of an operation: a kill, or a deed of somebody else."""

    at: int | tuple[str, ...] = ()
    deed: str | None = None
    which: int = 0


UNDER_LEASE = (
    "history",
    "record_candidates",
    "list_files",
    "judge",
    "needed",
    "settle_candidates",
    "_rename",
    "publish",
    "change_tags",
)
calls = st.one_of(st.integers(1, 40), st.lists(st.sampled_from(CALLS), min_size=6, max_size=6, unique=True).map(tuple))
deeds = st.sampled_from([None, None, None, "append", "make_or_drop_ref", "move_branch", "close_writer", "another run"])
troubles = st.one_of(st.just(Trouble()), st.builds(Trouble, calls, deeds, which))
BEFORE_THE_LOOK = ("list_files", "after list_files")


class Upkeep(Writers):
    """Operations among all that. `seen` is what was ever on the disk, with its content."""

    def __init__(self, make: Callable[[], tuple[WrittenTable, Path]]) -> None:
        super().__init__()
        self.make = make

    @initialize(version=st.sampled_from([2, 3]))
    def begin(self, version: int) -> None:
        self.table, self.state = self.make()
        self.table.create(version)
        self.seen: dict[str, tuple[tuple[int, ...], str]] = {}
        self.purged: set[str] = set()
        self.may_go: frozenset[str] = frozenset()
        """What the operation at work is free to remove for good."""
        self.operation, self.cutoff_ms, self.at = "", 0, 0
        self.neighbour = self._settle_beside()
        self.start()

    @rule(data=st.data(), skip=st.integers(0, 99))
    def do(self, data: st.DataObject, skip: int) -> None:
        """The next of all steps, or one further on: where hypothesis always draws the least, it still comes round to each."""
        self.at += 1 + skip
        name, words = STEPS[self.at % len(STEPS)]
        getattr(self, name)(**data.draw(words, label=name))

    def _settle_beside(self) -> dict[Path, bytes]:
        """Another table's files beside the table, whose place begins with the same letters."""
        home = self.table.home.with_name(f"{self.table.bench.name}_2")
        files = {home / "data" / "x.parquet": b"x", home / "metadata" / "v1.metadata.json": b"{}"}
        for path, content in files.items():
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return files

    @step(hours=waits)
    def time_passes(self, hours: int) -> None:
        self.table.clock.ahead_ms += hours * 3_600_000

    def _carry_out(self, operation: str, work: Callable[[Neve], T], trouble: Trouble) -> T | None:
        """With a Neve that knows nothing but the state store; None if it was killed, or lost to others."""
        self.operation, done = operation, list[T]()
        strike = (lambda: self._strike(trouble)) if trouble.deed else None
        with FUSE.lit(UNDER_LEASE if trouble.deed == "another run" else trouble.at, strike), self._neve() as neve:
            try:
                done.append(work(neve))
            except NeveError:
                if not FUSE.where:
                    raise
        self._look()
        self.every_file_is_somewhere_until_it_is_purged()
        self.may_go = frozenset()
        return done[0] if done and not FUSE.where else None

    def _neve(self) -> Any:
        bench = self.table.bench
        return opened(bench.spark, bench.warehouse, self.state, clock=self.table.clock)

    def _strike(self, trouble: Trouble) -> None:
        self._look()
        self._account()
        if trouble.deed == "append":
            self.append_to("main", 1, 0)
        elif trouble.deed == "make_or_drop_ref":
            self.make_or_drop_ref(chosen(["Branch", "Tag"], trouble.which), second=False, at=trouble.which // 2, days=None)
        elif trouble.deed == "move_branch":
            self.move_branch("main", trouble.which)
        # Between the second look and the move nobody can help a writer that took longer than orphan-age and grace.
        elif trouble.deed == "close_writer" and self.operation != "settle":
            self.close_writer(trouble.which)
        elif trouble.deed == "another run":
            self._run_beside()
        self._account()

    def _run_beside(self) -> None:
        """A second process while the first has the table's lease."""
        with self._neve() as neve, pytest.raises(LeaseHeldError, match="is at work on it"):
            neve.settle(self.table.name, at_once=True)

    def _look(self) -> None:
        """What the operation at work did to snapshots and refs."""
        metadata, now = self.table.metadata(), self.table.clock.now_ms()
        found = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
        for gone in self.snapshots.keys() - found.keys():
            assert self.operation == "expire", f"{self.operation} expired snapshot {gone}"
            assert self.snapshots[gone] < self.cutoff_ms
        for new in sorted(found.keys() - self.snapshots.keys(), key=lambda new: found[new]["sequence-number"]):
            self.rows[new] = self._rows_by_us(new, found[new]["parent-snapshot-id"], now)
        for name, ref in self.refs.items():
            if name not in metadata["refs"]:
                age = ref.get("max-ref-age-ms")
                assert self.operation == "expire", f"{self.operation} dropped {name}"
                assert age is not None, name
                assert self.snapshots[ref["snapshot-id"]] < now - age, name
            elif metadata["refs"][name] != ref:
                assert name == "main"
                assert self._leads_to(found, metadata["refs"][name]["snapshot-id"], ref["snapshot-id"])
        for name in metadata["refs"].keys() - self.refs.keys():
            assert self.operation == "tags", f"{self.operation} made {name}"
            assert name.startswith("neve-daily-")
        self.adopt(metadata)

    def _rows_by_us(self, snapshot: int, parent: int, now: int) -> frozenset[int]:
        shown, before = self.table.rows(snapshot), self.rows[parent]
        if self.operation == "ttl":
            assert before - self._past(now - TTL_MS) <= shown <= before
        else:
            assert shown == before, f"{self.operation} changed rows"
        return shown

    def _leads_to(self, found: dict[int, Any], new: int, old: int) -> bool:
        while new != old and new not in self.snapshots and new in found:
            new = found[new].get("parent-snapshot-id")
        return new == old

    def _past(self, cutoff_ms: int) -> frozenset[int]:
        return frozenset(i for i, moment in self.table.moments.items() if moment < cutoff_ms)

    @step(2, trouble=troubles, tier=st.sampled_from([Tier.FULL, Tier.MAJOR]))
    def compact(self, trouble: Trouble, tier: Tier) -> None:
        request = Request(tier=tier, force=True)
        record = self._carry_out("compact", lambda neve: neve.compact(self.table.name, request=request), trouble)
        assert record is None or record.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO), record

    @step(trouble=troubles)
    def resume(self, trouble: Trouble) -> None:
        """Runs that were killed are taken up. What they wrote for nothing is theirs to delete."""
        with self._neve() as neve:
            begun = neve.unfinished()
        for run in begun:
            prefixes = tuple(group.output_prefix for group in run.groups)
            self.may_go = frozenset(path for path in self.seen.keys() - self.table.named() if path.startswith(prefixes))
            self._carry_out("resume", methodcaller("resume", run.run_id), trouble)

    @step(3, trouble=troubles, at=st.one_of(st.none(), which), keep=st.sampled_from([1, 3]), metadata_only=st.booleans())
    def expire(self, trouble: Trouble, at: int | None, keep: int, metadata_only: bool) -> None:
        """What is older than the policy says, or than some snapshot that there is."""
        self.cutoff_ms = self.table.clock.now_ms() - 7 * DAY
        words: dict[str, Any] = {"keep": keep, "metadata_only": metadata_only}
        if at is not None:
            self.cutoff_ms = chosen(self.snapshots.values(), at) + 1
            words["older_than"] = datetime.fromtimestamp(self.cutoff_ms / 1000, UTC).isoformat()
        chain = self.ancestors("main")[:keep]
        self._check_recorded(self._carry_out("expire", lambda neve: neve.expire(self.table.name, **words), trouble))
        if trouble.deed is None:
            assert self.ancestors("main")[:keep] == chain

    @step(trouble=troubles, n=st.integers(1, 3))
    def expire_by_id(self, trouble: Trouble, n: int) -> None:
        """Whatever their age. Those are refused that a run which was killed will go on from."""
        heads = {ref["snapshot-id"] for ref in self.refs.values()}
        self.cutoff_ms, words = 2**60, {"snapshot_ids": sorted(self.snapshots.keys() - heads)[:n]}
        if words["snapshot_ids"]:
            try:
                self._check_recorded(self._carry_out("expire", lambda neve: neve.expire(self.table.name, **words), trouble))
            except BadRequestError as error:
                if "was planned from it and has not ended" not in str(error):
                    raise

    @step(3, trouble=troubles, hours=waits, limit=st.sampled_from([2, 1000]))
    def orphans(self, trouble: Trouble, hours: int, limit: int) -> None:
        self.time_passes(hours)
        before = self._quarantine()
        cutoff = self.table.clock.now_ms() - ORPHAN_AGE_MS
        asked = OrphansRequest(limit=limit)
        record = self._carry_out("orphans", lambda neve: neve.orphans(self.table.name, asked), trouble)
        for path, row in self._quarantine().items():
            if path not in before or before[path].run_id != row.run_id:
                assert row.reason.startswith("orphan")
                assert self.seen[path][0][1] // 1_000_000 < cutoff, f"{path} is too young for an orphan"
                assert path not in self.table.named() or FUSE.where not in BEFORE_THE_LOOK, f"{path} was listed, then committed"
        self._check_recorded(record)

    def _check_recorded(self, record: MaintenanceRecord | None) -> None:
        """What an operation to which nobody came in between wrote down is needed by nothing."""
        if record is not None:
            unread = "could not be found out, and is left for orphan removal" in str(record.reason)
            assert unread or record.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO), record
            ours = {
                path for path, row in self._quarantine().items() if (row.run_id, row.fate) == (record.run_id, Fate.RECORDED)
            }
            assert not ours & self.table.named()

    @step(3, trouble=troubles, hours=waits, at_once=st.booleans(), limit=st.sampled_from([None, 2]))
    def settle(self, trouble: Trouble, hours: int, at_once: bool, limit: int | None) -> None:
        self.time_passes(hours)
        before, now = self._quarantine(), self.table.clock.now_ms()
        words: dict[str, Any] = {"at_once": at_once, "limit": limit}
        record = self._carry_out("settle", lambda neve: neve.settle(self.table.name, **words), trouble)
        assert record is None or record.failed == 0, record
        for path, row in self._quarantine().items():
            if row.fate is Fate.TRASHED and before[path].fate is Fate.RECORDED and not at_once:
                assert before[path].changed_ms < now + 60_000 - GRACE_MS

    @step(3, trouble=troubles, hours=waits, limit=st.sampled_from([None, 2]))
    def purge(self, trouble: Trouble, hours: int, limit: int | None) -> None:
        self.time_passes(hours)
        old = self.table.clock.now_ms() + 60_000 - TRASH_KEEP_MS
        trashed = (row for row in self._quarantine().values() if row.fate is Fate.TRASHED)
        self.may_go = frozenset(row.path for row in trashed if row.changed_ms < old)
        record = self._carry_out("purge", lambda neve: neve.purge(self.table.name, limit=limit), trouble)
        assert record is None or record.failed == 0, record

    @step(trouble=troubles, at=which)
    def restore(self, trouble: Trouble, at: int) -> None:
        if runs := {row.run_id for row in self._quarantine().values()}:
            self._restore(chosen(runs, at), trouble)

    def _restore(self, run: str, trouble: Trouble) -> None:
        paths = {path for path, row in self._quarantine().items() if row.run_id == run}
        try:
            record = self._carry_out("restore", lambda neve: neve.restore(run, table=self.table.name), trouble)
        except BadRequestError as error:
            if not paths <= self.purged or "all of its files are purged" not in str(error):
                raise
            return
        if record is not None:
            assert all(Path(path).exists() for path in paths - self.purged)

    @step(trouble=troubles, operation=st.sampled_from(["manifests", "stats", "tags"]))
    def keep(self, trouble: Trouble, operation: str) -> None:
        record = self._carry_out(operation, lambda neve: getattr(neve, operation)(self.table.name), trouble)
        assert record is None or record.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO), record

    @step(trouble=troubles)
    def ttl(self, trouble: Trouble) -> None:
        seen = self._carry_out("ttl", lambda neve: neve.ttl(self.table.name), Trouble())
        assert seen is not None
        assert seen.cutoff_ms is not None
        left = self.shown("main") - self._past(seen.cutoff_ms)
        record = self._carry_out("ttl", lambda neve: neve.ttl(self.table.name, enforce=True), trouble)
        assert record is None or (record.outcome is not RunOutcome.FAILED and self.shown("main") == left), record

    def _quarantine(self) -> dict[str, Quarantined]:
        uuid = self.table.metadata()["table-uuid"]
        with StateStore.open(f"sqlite:///{self.state}") as store:
            return {row.path: row for row in store.quarantined(uuid)}

    @invariant()
    def every_file_is_somewhere_until_it_is_purged(self) -> None:
        for path in self.table.on_disk():
            if not is_trash(path):
                self.seen.setdefault(path, (_stamp(path), digest(path)))
        self._account()

    def _account(self) -> None:
        disk, rows = self.table.on_disk(), self._quarantine()
        for path in self.seen.keys() - self.purged:
            row = rows.get(path)
            place = path if path in disk or row is None else str(row.trash_path)
            if place not in disk:
                assert path in self.may_go, f"{path} is gone, and the quarantine says {row}"
                self.purged.add(path)
            else:
                stamp, content = self.seen[path]
                assert _stamp(place) == stamp or digest(place) == content, path
        assert {path for path in disk if is_trash(path)} <= {row.trash_path for row in rows.values()}
        for path, row in rows.items():
            assert row.fate not in (Fate.NEEDED, Fate.RESTORED) or path in disk, row

    @invariant()
    def every_file_that_the_metadata_names_is_in_its_place(self) -> None:
        assert not self.table.named() - self.table.on_disk(), self.operation

    @invariant()
    def the_neighbour_is_as_it_was(self) -> None:
        assert {path: path.read_bytes() for path in self.neighbour} == self.neighbour

    def teardown(self) -> None:
        """In the end every run is restored, and every snapshot read again."""
        if not hasattr(self, "neighbour"):
            return
        try:
            for run in sorted({row.run_id for row in self._quarantine().values()}):
                self._restore(run, Trouble())
            self.every_file_is_somewhere_until_it_is_purged()
            assert not [path for path in self.table.on_disk() if is_trash(path)]
            assert self.seen.keys() - self.purged <= self.table.on_disk()
            for snapshot in self.snapshots:
                assert self.table.rows(snapshot) == self.rows[snapshot]
            assert len(self.table.bench.duckdb()) == len(self.shown("main"))
        finally:
            with closing(self.table.bench.catalog()) as catalog:
                catalog.drop_table((self.table.bench.namespace, self.table.bench.name))
            for path in (self.table.home, self.table.home.with_name(f"{self.table.bench.name}_2")):
                shutil.rmtree(path)


def _stamp(path: str) -> tuple[int, ...]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


STEPS = steps_of(Upkeep)
Make = Callable[[], tuple[WrittenTable, Path]]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.machine_of_maintenance")

    def make() -> tuple[WrittenTable, Path]:
        bench = Bench(spark, warehouse, "machine_of_maintenance", f"t{next(NUMBERS)}")
        return WrittenTable(bench, AheadClock()), tmp_path_factory.mktemp("state") / "state.db"

    with pytest.MonkeyPatch.context() as patch:
        FUSE.put_into(patch)
        yield make


FEW = settings(
    max_examples=3,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    database=None,
)


def test_nothing_is_lost_whatever_maintenance_and_others_do(make: Make) -> None:
    run_state_machine_as_test(lambda: Upkeep(make), settings=FEW)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_over_many_histories(make: Make) -> None:
    run_state_machine_as_test(lambda: Upkeep(make), settings=settings(FEW, max_examples=6, stateful_step_count=40))  # type: ignore[arg-type]
