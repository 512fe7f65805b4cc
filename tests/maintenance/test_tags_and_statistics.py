"""Tags and statistics against a table that moves: one step or none, nothing of others lost, lost answers found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from neve.operations import statistics
from neve.operations import tags as auto_tags
from neve.operations.requests import StatsRequest
from neve.operations.statistics import keep_statistics
from neve.operations.tags import keep_tags
from neve.rewrite.record import RunOutcome
from neve.table.state import Ref, RefKind, StatisticsFile
from tests.builders.fake_maintenance_tables import Answer, FakeTable
from tests.builders.tagged_tables import FIRST, KEEP, SECOND, tagged_table


@pytest.fixture
def table() -> FakeTable:
    return tagged_table()


@pytest.mark.parametrize("answers", list(product(Answer, repeat=2)))
def test_however_the_change_of_tags_is_answered_it_is_made_once(table: FakeTable, answers: tuple[Answer, Answer]) -> None:
    table.answers = list(answers)
    record = keep_tags(table.context(), table, KEEP, prefix="neve")
    assert {name: ref.snapshot_id for name, ref in table.refs.items()} == {SECOND: 2}
    assert record.outcome is RunOutcome.DONE
    assert ([tag.name for tag in record.created], [tag.name for tag in record.dropped]) == ([SECOND], [FIRST])
    assert keep_tags(table.context(), table, KEEP, prefix="neve").outcome is RunOutcome.NOTHING_TO_DO


def test_tags_that_others_change_meanwhile_are_looked_at_again(table: FakeTable) -> None:
    def moved() -> None:
        table.refs[SECOND] = Ref(name=SECOND, kind=RefKind.TAG, snapshot_id=1)

    table.before_commit = [moved]
    record = keep_tags(table.context(), table, KEEP, prefix="neve")
    assert ([tag.name for tag in record.created], [tag.name for tag in record.dropped]) == ([], [FIRST])
    assert table.refs[SECOND].snapshot_id == 1


def test_a_table_that_never_rests_is_given_up(table: FakeTable) -> None:
    table.answers = [Answer.REFUSED] * auto_tags.ATTEMPTS
    record = keep_tags(table.context(), table, KEEP, prefix="neve")
    assert (record.outcome, record.created, record.dropped) == (RunOutcome.FAILED, (), ())
    assert record.reason == (
        "no attempt to change the tags succeeded; the last one: another writer changed the table at the same moment"
    )
    assert set(table.refs) == {FIRST}


@pytest.mark.parametrize("answers", list(product(Answer, repeat=2)))
def test_however_publishing_is_answered_values_are_counted_once(table: FakeTable, answers: tuple[Answer, Answer]) -> None:
    table.answers = list(answers)
    record = keep_statistics(table.context(), table, StatsRequest(columns=("city",)))
    assert (record.outcome, [file.path for file in table.statistics]) == (RunOutcome.DONE, ["stats0", "by-stats0"])
    assert ([d.column for d in record.distinct], table.on_disk, table.doomed) == (["city"], {"stats0", "by-stats0"}, [])


Strike = Callable[[FakeTable], object]


def _expired(table: FakeTable) -> None:
    table.append()
    del table.versions[1]


def _counted_by_others(table: FakeTable) -> None:
    table.statistics.append(StatisticsFile(snapshot_id=2, path="theirs", size_bytes=1))


@pytest.mark.parametrize("strike", [_expired, _counted_by_others])
def test_statistics_that_came_too_late_are_recorded_and_those_of_others_stay(table: FakeTable, strike: Strike) -> None:
    table.before_commit = [lambda: strike(table)]
    record = keep_statistics(table.context(), table, StatsRequest(columns=("city",)))
    assert record.outcome is RunOutcome.FAILED
    assert record.reason == "snapshot 2 is gone or was given other statistics, or the catalog does not answer"
    assert "stats0" not in {file.path for file in table.statistics}
    assert {doomed.path for doomed in table.doomed} == {"stats0", "by-stats0"}


def test_statistics_that_may_have_been_published_are_not_recorded(table: FakeTable) -> None:
    table.answers = [Answer.SILENT] * statistics.ATTEMPTS
    record = keep_statistics(table.context(), table, StatsRequest())
    assert (record.outcome, table.doomed) == (RunOutcome.FAILED, [])


def test_statistics_of_another_column_that_has_the_name_now_are_not_published(
    table: FakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = table._write_statistics

    def by_name(*args: Any, **words: Any) -> tuple[StatisticsFile, ...]:
        sketched, *others = real(*args, **words)
        strange = tuple(sketch.model_copy(update={"field_ids": (99,)}) for sketch in sketched.sketches)
        return (sketched.model_copy(update={"sketches": strange}), *others)

    monkeypatch.setattr(table, "_write_statistics", by_name)
    record = keep_statistics(table.context(), table, StatsRequest(columns=("city",)))
    assert record.outcome is RunOutcome.FAILED
    assert record.reason == "columns were renamed since snapshot 2: nothing was counted for city"
    assert (table.statistics, {doomed.path for doomed in table.doomed}) == ([], {"stats0", "by-stats0"})
