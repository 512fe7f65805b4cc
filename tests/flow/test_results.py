"""Results of work orders that are committed twice, or again beside new ones: the first outcome holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from neve.operations.results import commit_results
from neve.operations.rollback import roll_back
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.rewrite.run_summary import keep
from neve.rewrite.work_order import WorkResult
from neve.state import StateStore
from tests.builders.commit_scenes import tools_of
from tests.builders.compaction_runs import compact_partition, results_of, two_partitions
from tests.builders.fake_tables import FakeEngine, FakeTable, FakeWriter, plan_of


@dataclass
class Lake:
    """A table, results of two groups of it, and the state store of whoever commits them."""

    table: FakeTable = field(default_factory=two_partitions)
    store: StateStore = field(default_factory=lambda: StateStore.open("sqlite://"))

    def __post_init__(self) -> None:
        self.plan = plan_of(self.table)
        self.engine = FakeEngine(self.table, self.plan)
        self.results = results_of(self.table, self.engine)

    def commit(self, *results: WorkResult, store: bool = True) -> RunRecord:
        """As `operations` does it: a run that is new is kept."""
        tools = tools_of(FakeWriter(self.table), self.engine)
        tools = replace(tools, journal=self.store, leases=self.store) if store else tools
        record = commit_results(self.plan, results, tools)
        found = self.store.run(record.recorded_id)
        if store and (found is None or found.finished_ms is None):
            keep(self.store, record, self.plan)
        return record

    def assert_untouched(self, head: int | None) -> None:
        assert (self.table.head, self.table.properties, self.engine.quarantine.paths) == (head, {}, [])
        assert self.table.visible() == [0, 1, 2, 3]


@pytest.fixture
def lake() -> Lake:
    return Lake()


def test_committing_the_same_results_twice_returns_the_first_record(lake: Lake) -> None:
    first = lake.commit(*lake.results)
    assert first.outcome is RunOutcome.DONE
    head = lake.table.head
    assert lake.commit(*lake.results) == first
    assert lake.commit(*reversed(lake.results)) == first
    assert lake.commit(lake.results[0]) == first
    assert [run.run_id for run in lake.store.runs()] == [first.run_id]
    lake.assert_untouched(head)


def test_the_first_record_is_returned_also_after_others_rewrote_the_files_and_expired_the_snapshot(lake: Lake) -> None:
    first = lake.commit(*lake.results)
    compact_partition(lake.table, "a")
    compact_partition(lake.table, "b")
    lake.table.expire()
    head = lake.table.head
    assert lake.commit(*lake.results) == first
    lake.assert_untouched(head)


def test_results_that_others_superseded_stay_superseded(lake: Lake) -> None:
    compact_partition(lake.table, "a")
    compact_partition(lake.table, "b")
    first = lake.commit(*lake.results)
    assert (first.outcome, [group.state for group in first.groups]) == (RunOutcome.DONE, [GroupState.SUPERSEDED] * 2)
    assert lake.commit(*lake.results) == first


def test_a_host_without_the_first_record_finds_the_files_in_the_table(lake: Lake) -> None:
    first = lake.commit(*lake.results)
    head = lake.table.head
    again = lake.commit(*lake.results, store=False)
    assert again.run_id != first.run_id
    assert (again.outcome, again.files_compacted, again.snapshots) == (RunOutcome.DONE, 0, ())
    assert [(group.state, group.snapshot_id, group.reason) for group in again.groups] == [
        (GroupState.COMMITTED, first.snapshots[0], "its files are in the table already")
    ] * 2
    lake.assert_untouched(head)


def test_results_that_came_later_are_committed_beside_those_that_were_committed_before(lake: Lake) -> None:
    first = lake.commit(lake.results[0])
    both = lake.commit(*lake.results)
    assert (both.outcome, len(both.snapshots)) == (RunOutcome.DONE, 1)
    assert [(group.state, group.snapshot_id) for group in both.groups] == [
        (GroupState.COMMITTED, first.snapshots[0]),
        (GroupState.COMMITTED, both.snapshots[0]),
    ]
    assert (both.files_compacted, both.files_written, both.rows) == (2, 1, 2)
    assert both.groups[0].reason == f"committed in snapshot {first.snapshots[0]}, by run {first.recorded_id[:8]}"
    lake.assert_untouched(both.snapshots[0])


def test_results_are_committed_again_after_their_run_was_rolled_back(lake: Lake) -> None:
    first = lake.commit(*lake.results)
    roll_back(first, FakeWriter(lake.table))
    again = lake.commit(*lake.results)
    assert again.run_id != first.run_id
    assert again.outcome is RunOutcome.DONE
    assert set(lake.table.now.data) == {result.outputs[0].path for result in lake.results}
    assert lake.table.visible() == [0, 1, 2, 3]
