"""What a resume does with groups whose inputs others have rewritten, what its dry run shows, and how long it says it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from neve.commit.takeover import abandon
from neve.operations.resume import preview, resume
from neve.rewrite.record import GroupState, RunOutcome
from neve.rewrite.remaining import NextStep
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from tests.builders.commit_scenes import tools_of
from tests.builders.compaction_runs import Notes, compact_partition, two_partitions
from tests.builders.contexts import compact
from tests.builders.fake_tables import FakeEngine, FakeTable, FakeWriter, Still, plan_of


class Watched(FakeEngine):
    """Remembers which groups were executed."""

    executed: tuple[int, ...] = ()

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        self.executed += tuple(order.group_id for order in orders)
        yield from super().run(orders)


def interrupted(table: FakeTable, written: int) -> tuple[Notes, Watched]:
    """A run over two groups that was stopped when this many were written, and nothing was committed."""
    notes, plan = Notes(), plan_of(table)
    engine = FakeEngine(table, plan)

    def stopped(orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        for result, _ in zip(FakeEngine.run(engine, orders), range(written), strict=False):
            notes.written("", [result])  # type: ignore[list-item]
            yield result
        raise KeyboardInterrupt

    engine.run = stopped  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(FakeWriter(table), engine), journal=notes))
    return notes, Watched(table, plan)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_groups_whose_inputs_are_gone_are_not_executed_and_count_as_superseded(written: int) -> None:
    table = two_partitions()
    notes, engine = interrupted(table, written)
    compact_partition(table, "a")
    compact_partition(table, "b")
    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert engine.executed == ()
    assert engine.reopened == []
    assert [(group.state, group.reason) for group in record.groups] == [
        (GroupState.SUPERSEDED, "its inputs are no longer live")
    ] * 2
    assert record.outcome is RunOutcome.DONE
    assert table.visible() == [0, 1, 2, 3]


def test_only_the_group_whose_inputs_are_live_is_executed() -> None:
    table = two_partitions()
    notes, engine = interrupted(table, 0)
    compact_partition(table, "a")
    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert engine.executed == (1,)
    assert [group.state for group in record.groups] == [GroupState.SUPERSEDED, GroupState.COMMITTED]
    assert table.visible() == [0, 1, 2, 3]


def test_a_written_group_whose_inputs_are_gone_is_in_doubt_where_its_commit_could_be_expired() -> None:
    table = two_partitions()
    notes, engine = interrupted(table, 2)
    compact_partition(table, "a")
    compact_partition(table, "b")
    table.expire()
    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert engine.executed == ()
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT] * 2
    assert {group.reason for group in record.groups} == {"its inputs are no longer live; it may have landed before"}


def test_the_dry_run_shows_what_the_resume_then_does_and_changes_nothing() -> None:
    table = two_partitions()
    notes, engine = interrupted(table, 1)
    tools = replace(tools_of(FakeWriter(table), engine), journal=notes)
    head, noted = table.head, (dict(notes.results), dict(notes.states), dict(notes.prefixes))
    left = preview(notes.found(), FakeWriter(table))
    assert [(group.group_id, group.step, group.input_files) for group in left.groups] == [
        (0, NextStep.COMMIT, 2),
        (1, NextStep.REWRITE, 2),
    ]
    assert (table.head, table.properties, engine.executed, engine.quarantine.paths) == (head, {}, (), [])
    assert (notes.results, notes.states, notes.prefixes) == noted
    record = resume(notes.found(), tools)
    assert engine.executed == (1,)
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 2


class At:
    """A clock that a test sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        self.ms += 1_000
        return self.ms


def test_a_resumed_run_reports_the_time_since_it_was_resumed() -> None:
    table = two_partitions()
    notes, engine = interrupted(table, 0)
    days_later = Still().now_ms() + 3 * 86_400_000
    record = resume(notes.found(), replace(tools_of(FakeWriter(table), engine), clock=At(days_later)))
    assert record.started_ms == Still().now_ms()
    assert record.resumed_ms == days_later + 1_000
    assert 1 <= record.seconds < 60
    assert record.seconds == (record.finished_ms - days_later - 1_000) / 1000


def test_an_abandoned_run_did_not_work_for_days() -> None:
    table = two_partitions()
    notes, _ = interrupted(table, 0)
    record = abandon(notes.found(), notes, At(Still().now_ms() + 3 * 86_400_000), "given up")
    assert record.seconds == 0
