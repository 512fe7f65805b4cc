"""Commits of groups whose rows go to another partition spec (docs/adr/0007): no delete is lost on the way, none is gained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.commit.batch import BatchOutcome
from neve.commit.late_deletes import WrittenGroup
from neve.commit.rewrite_files import Committer
from tests.builders.fake_tables import FakeTable, FakeWriter, Still, plan_of, write_groups

LATE = "a late equality delete applies, and not to files of another partition spec"
Strike = Callable[[FakeTable], object]


class Scene:
    """Two partitions of an older spec, `a` and `b`, whose rows go to `new`, where a file is already; `c` keeps its spec."""

    def __init__(self, *before: Strike) -> None:
        self.table = FakeTable()
        self.a = [self.table.append(1, 2, partition="a"), self.table.append(3, 4, partition="a")]
        self.b = [self.table.append(5, 6, partition="b")]
        self.table.append(7, 8, partition="new")
        self.c = [self.table.append(9, 10, partition="c")]
        for strike in before:
            strike(self.table)
        self.plan = plan_of(self.table)
        writer = FakeWriter(self.table)
        self.planned = {file.path: file for file in writer.scan(writer.head())}
        written = write_groups(self.table, self.plan, {0: self.a, 1: self.b, 2: self.c})
        self.moved, self.kept = [moved(group) for group in written[:2]], written[2]

    def commit(self, *groups: WrittenGroup, at_commit: Strike | None = None) -> BatchOutcome:
        hooks = [lambda: at_commit(self.table)] if at_commit is not None else []
        writer = FakeWriter(self.table, before_rewrite=hooks)
        committer = Committer(self.plan, writer, self.planned, run_id="r", clock=Still(), sleep=lambda _: None)
        return committer.commit(groups or self.moved)


def moved(group: WrittenGroup) -> WrittenGroup:
    """As Spark writes it: into the new partition, without a word on where each row went."""
    outputs = tuple({**file, "spec-id": 1, "partition": ["new"]} for file in group.outputs)
    return replace(group, outputs=outputs, positions=None)


def equal(partition: str, *rows: int) -> Strike:
    return lambda table: table.delete_equal(*rows, partition=partition)


@pytest.mark.parametrize("at_commit", [False, True])
def test_a_late_delete_of_the_new_partition_does_not_reach_rows_that_come_there(at_commit: bool) -> None:
    scene, strike = Scene(), equal("new", 1, 5, 7)
    if not at_commit:
        strike(scene.table)
    outcome = scene.commit(at_commit=strike if at_commit else None)
    assert outcome.committed == [0, 1]
    assert scene.table.visible() == [1, 2, 3, 4, 5, 6, 8, 9, 10]


@pytest.mark.parametrize("at_commit", [False, True])
def test_a_late_delete_of_an_old_partition_stops_its_group_alone(at_commit: bool) -> None:
    scene, strike = Scene(), equal("a", 1)
    if not at_commit:
        strike(scene.table)
    outcome = scene.commit(at_commit=strike if at_commit else None)
    assert (outcome.committed, list(outcome.replan)) == ([1], [0])
    assert outcome.replan[0].startswith(LATE)
    assert scene.table.visible() == [2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_deletes_from_before_the_plan_go_on_meaning_what_they_meant() -> None:
    scene = Scene(equal("a", 1), equal("new", 2, 7))
    assert scene.commit().committed == [0, 1]
    assert scene.table.visible() == [2, 3, 4, 5, 6, 8, 9, 10]


def test_beside_a_group_that_changes_its_spec_no_other_keeps_the_plans_number() -> None:
    scene = Scene()
    scene.table.delete_equal(9, partition="c")
    outcome = scene.commit(*scene.moved, scene.kept)
    assert (outcome.committed, list(outcome.replan)) == ([0, 1], [2])
    assert scene.table.visible() == [1, 2, 3, 4, 5, 6, 7, 8, 10]


strikes = st.lists(st.tuples(st.sampled_from("abc") | st.just("new"), st.sets(st.integers(1, 12), max_size=4)), max_size=3)


@settings(deadline=None, max_examples=60)
@given(before=strikes, between=strikes, last=strikes, mixed=st.booleans())
def test_every_commit_reads_as_the_snapshot_that_it_stands_on(
    before: list[tuple[str, set[int]]],
    between: list[tuple[str, set[int]]],
    last: list[tuple[str, set[int]]],
    mixed: bool,
) -> None:
    scene = Scene(*(equal(partition, *rows) for partition, rows in before))
    for partition, rows in between:
        equal(partition, *rows)(scene.table)

    def strike(table: FakeTable) -> None:
        for partition, rows in last:
            equal(partition, *rows)(table)

    outcome = scene.commit(*scene.moved, *([scene.kept] if mixed else ()), at_commit=strike)
    for version in scene.table.history.values():
        if version.operation == "replace":
            assert scene.table.visible(version.snapshot_id) == scene.table.visible(version.parent_id)
    touched = {partition for partition, _ in (*between, *last)}
    assert {i for i in outcome.committed if i < 2} == {i for i, partition in enumerate("ab") if partition not in touched}
    assert not mixed or 2 in outcome.committed or "c" in touched
