"""Files that were written and never committed are recorded; only the quarantine's check over all refs lets them go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import sqlalchemy

from neve.commit.unused_files import set_aside
from neve.errors import StorageError
from neve.maintenance.quarantine import Fate
from neve.operations.results import commit_results
from neve.operations.resume import resume
from neve.rewrite.journal import JournaledRun
from neve.rewrite.record import GroupState, RunRecord
from neve.state import StateStore
from neve.state import quarantine as state_quarantine
from tests.builders.commit_scenes import tools_of
from tests.builders.compaction_runs import Notes, results_of, two_partitions
from tests.builders.contexts import compact
from tests.builders.fake_quarantines import DAY, World
from tests.builders.fake_tables import Answer, FakeEngine, FakeTable, FakeWriter, plan_of


@pytest.fixture
def store() -> Iterator[StateStore]:
    with StateStore.open("sqlite://") as opened:
        yield opened


@dataclass
class Lake:
    """A table with its storage and its quarantine; `table.history` holds what any ref or snapshot needs."""

    store: StateStore
    table: FakeTable = field(default_factory=two_partitions)
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        self.plan = plan_of(self.table)
        self.engine = FakeEngine(self.table, self.plan)

    def tools(self, *answers: Answer) -> Any:
        tools = tools_of(FakeWriter(self.table, *answers), self.engine)
        return replace(tools, journal=self.notes, quarantine=self.store)

    def compact(self, *answers: Answer) -> RunRecord:
        return compact(self.plan, self.tools(*answers))

    def restored(self, *, with_results: bool = False) -> JournaledRun:
        """The run as a state store remembers it that was restored from a backup of before the commit."""
        self.notes = Notes(begun=self.notes.begun, results=self.notes.results if with_results else {})
        return self.notes.found()

    def needed(self) -> set[str]:
        """By any snapshot, whichever ref holds it."""
        return {path for version in self.table.history.values() for path in version.data}

    def clear(self) -> None:
        """Settles and purges, as time goes by."""
        world = World(self.store, uuid="u")
        world.table = self.table
        world.files.contents = dict.fromkeys(self.table.contents, "rows")
        world.reach.all = self.needed()
        world.clock.ms += 2 * DAY
        world.settle()
        world.clock.ms += 10 * DAY
        world.purge()
        self.table.contents = {path: rows for path, rows in self.table.contents.items() if path in world.files.contents}

    def reasons(self) -> dict[str, str]:
        return {file.path: file.reason for file in self.store.quarantined("u")}


def overwrite_all(table: FakeTable) -> None:
    for path in list(table.now.data):
        table.overwrite(path)


def write_on_main(table: FakeTable) -> None:
    """What the run committed is on another branch only."""
    branch = table.head
    overwrite_all(table)
    assert branch in table.history


def roll_back(table: FakeTable) -> None:
    """What the run committed is tagged, and main stands before it."""
    table.roll_back(next(iter(sorted(table.history)[-2:])))


CASES = {
    "the head": lambda _: None,
    "another branch": write_on_main,
    "a tag": overwrite_all,
    "an older snapshot": lambda table: [overwrite_all(table), table.append(7, partition="c")],
    "a tag after a rollback": roll_back,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_results", [False, True], ids=["planned", "written"])
def test_a_resume_from_a_restored_state_store_costs_no_ref_a_file(store: StateStore, case: str, with_results: bool) -> None:
    lake = Lake(store)
    lake.compact()
    CASES[case](lake.table)
    before = {snapshot: lake.table.visible(snapshot) for snapshot in lake.table.history}

    resume(lake.restored(with_results=with_results), lake.tools())
    needed = lake.needed()
    lake.clear()
    assert needed <= lake.table.contents.keys()
    assert {snapshot: lake.table.visible(snapshot) for snapshot in before} == before


def test_what_a_run_wrote_for_nothing_is_explained_and_goes_after_the_grace_time(store: StateStore) -> None:
    lake = Lake(store)
    lake.engine.losing = {0}
    lake.engine.lost = ["/t/data/a/neve-lost.parquet"]
    lake.table.contents["/t/data/a/neve-lost.parquet"] = frozenset()
    lake.engine.after_last = lambda: lake.table.overwrite(next(p for p, f in lake.table.now.data.items() if f.partition == "b"))
    record = lake.compact()
    assert [group.state for group in record.groups] == [GroupState.FAILED, GroupState.SUPERSEDED]

    failed, superseded = (group.outputs[0].path for group in record.groups)
    assert lake.reasons() == {
        failed: "written and never committed: its group failed",
        superseded: "written and never committed: its group was superseded",
        "/t/data/a/neve-lost.parquet": "written and never committed: left by a lost task attempt, or a scratch file",
    }
    assert {file.run_id for file in store.quarantined("u")} == {record.run_id}
    assert lake.reasons().keys() <= lake.table.contents.keys()
    lake.clear()
    assert not lake.reasons().keys() & lake.table.contents.keys()
    assert {file.fate for file in store.quarantined("u")} == {Fate.PURGED}


def test_a_group_whose_written_files_are_gone_is_redone_and_never_committed(store: StateStore) -> None:
    """A restored journal calls groups written whose files were purged since: committing these would make main unreadable."""
    lake = Lake(store)
    lake.compact(*[Answer.CONFLICT] * 5)
    lake.clear()
    redone = resume(lake.restored(with_results=True), lake.tools())
    assert [group.state for group in redone.groups] == [GroupState.COMMITTED] * 2
    assert set(lake.table.now.data) <= lake.table.contents.keys()
    assert lake.table.visible() == [0, 1, 2, 3]


def test_results_whose_files_are_gone_are_not_committed(store: StateStore) -> None:
    """An order ran elsewhere, and its output was taken for an orphan before anybody brought the result."""
    lake = Lake(store)
    first, second = results_of(lake.table, lake.engine)
    path = first.outputs[0].path
    del lake.table.contents[path]
    record = commit_results(lake.plan, [first, second], lake.tools())
    assert [group.state for group in record.groups] == [GroupState.FAILED, GroupState.COMMITTED]
    assert record.groups[0].reason == f"{path} does not exist; run its order again"
    assert lake.notes.states == {0: GroupState.FAILED, 1: GroupState.COMMITTED}
    assert set(lake.table.now.data) <= lake.table.contents.keys()
    assert lake.table.visible() == [0, 1, 2, 3]


def test_a_redone_group_takes_no_name_that_is_in_the_quarantine(store: StateStore) -> None:
    lake = Lake(store)
    lake.compact(*[Answer.CONFLICT] * 5)
    resume(lake.restored(), lake.tools())
    recorded = lake.reasons().keys()
    assert len(recorded) == 2
    assert not recorded & set(lake.table.now.data)


def test_a_state_store_that_is_down_costs_neither_the_run_nor_a_file(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(store)
    lake.engine.losing = {0}
    lake.engine.quarantine.is_down = True
    with caplog.at_level(logging.WARNING, "neve.commit.unused_files"):
        record = compact(lake.plan, tools_of(FakeWriter(lake.table), lake.engine))
    assert [group.state for group in record.groups] == [GroupState.FAILED, GroupState.COMMITTED]
    assert "are left to orphan removal (written and never committed: its group failed)" in caplog.text
    assert record.groups[0].outputs[0].path in lake.table.contents


def test_without_a_state_store_files_stay_where_they_are(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(store)
    lake.engine.losing = {0}
    with caplog.at_level(logging.INFO, "neve.commit.unused_files"):
        record = compact(lake.plan, replace(tools_of(FakeWriter(lake.table), lake.engine), quarantine=None))
    path = record.groups[0].outputs[0].path
    assert f"files such as {path} are left to orphan removal" in caplog.text
    assert path in lake.table.contents
    assert lake.engine.quarantine.paths == []


def test_a_listing_that_fails_halfway_does_not_stop_a_resume(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(store)

    def listing() -> Iterator[str]:
        yield "/t/data/a/neve-1.parquet"
        raise StorageError("Cannot list /t/data/a: 503")

    set_aside(listing(), "left by an interrupted run", lake.tools(), table_uuid="u", run_id="r")
    assert "Cannot list /t/data/a: 503" in caplog.text
    assert lake.reasons() == {}  # a recording is there wholly or not at all


def test_many_files_are_streamed_into_the_quarantine(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.state.quarantine.BATCH", 100)
    most, taken = [0], [0]

    def listing() -> Iterator[str]:
        for number in range(1_000):
            most[0] = max(most[0], number - taken[0])
            yield f"/t/{number}"

    def inserting(table: Any) -> Any:
        taken[0] += 100
        return sqlalchemy.insert(table)

    monkeypatch.setattr(state_quarantine, "insert", inserting)
    set_aside(listing(), "left by an interrupted run", Lake(store).tools(), table_uuid="u", run_id="r")
    assert sum(1 for _ in store.quarantined("u")) == 1_000
    assert most[0] <= 100
