"""Commits that let a writer go first which changes rows, against a table with a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from neve.commit.batch import BatchOutcome
from neve.commit.gaps import wait_for_gap
from neve.commit.rewrite_files import Committer
from neve.errors import CatalogUnreachableError
from neve.policy.model import Policy
from tests.builders.commit_scenes import ALL_ROWS, Scene
from tests.builders.fake_tables import FakeTable, FakeWriter

S = 1000


@dataclass
class Timed:
    """A table and a clock that only sleeping moves. What happens at some moment happens while somebody sleeps past it."""

    table: FakeTable = field(default_factory=FakeTable)
    events: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.table.now_ms

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.table.now_ms + round(1000 * seconds)
        while self.events and self.events[0][0] <= until:
            self.table.now_ms, event = self.events.pop(0)
            event()
        self.table.now_ms = until

    def update(self, *at_seconds: float) -> None:
        """An UPDATE is committed at these moments."""
        for seconds in at_seconds:
            self.table.now_ms = round(seconds * S)
            self.table.append(1000 + self.table.now_ms)
            self.table.overwrite(sorted(self.table.now.data)[-1])

    def later(self, seconds: float, event: Callable[[], object]) -> None:
        self.events.append((round(seconds * S), event))

    def wait(self, limit: float = 60) -> float:
        """When it ended."""
        wait_for_gap(FakeWriter(self.table), "main", clock=self, sleep=self.sleep, limit_seconds=limit)
        return self.table.now_ms / S


def at(timed: Timed, seconds: float) -> Timed:
    timed.table.now_ms = round(seconds * S)
    return timed


def test_waits_until_the_writer_has_committed_and_no_longer() -> None:
    timed = Timed()
    timed.update(10, 15, 20)
    timed.later(25.3, lambda: timed.table.overwrite(timed.table.append(1)))
    assert at(timed, 22).wait() == 25.3
    assert set(timed.slept) == {0.1}


def test_an_append_meanwhile_is_not_what_it_waits_for() -> None:
    timed = Timed()
    timed.update(10, 15, 20)
    timed.later(23, lambda: timed.table.append(7))
    timed.later(25, lambda: timed.table.delete_positions(timed.table.append(8), 8))
    timed.later(26, lambda: timed.table.overwrite(timed.table.append(9)))
    assert at(timed, 22).wait() == 26


@pytest.mark.parametrize(
    ("commits", "now", "limit"),
    [
        ((), 22, 60),  # nobody changes rows
        ((20,), 22, 60),  # a single change is no rhythm
        ((10, 15, 20), 20.4, 60),  # the gap has just begun
        ((10, 15, 20), 36, 60),  # the writer has stopped
        ((0, 3600), 3700, 60),  # the next is an hour away
        ((10, 15, 20), 22, 0),  # not wanted
    ],
)
def test_does_not_wait_without_a_writer_whose_next_commit_is_near(commits: tuple[float, ...], now: float, limit: float) -> None:
    timed = Timed()
    timed.table.append(1)
    timed.update(*commits)
    assert at(timed, now).wait(limit) == now
    assert timed.slept == []


def test_a_writer_that_does_not_come_is_waited_for_one_period_more() -> None:
    timed = Timed()
    timed.update(10, 15, 20)
    assert at(timed, 22).wait() == 30


def test_a_clock_that_stands_does_not_make_it_wait_for_ever() -> None:
    timed = Timed()
    timed.update(10, 15, 20)
    at(timed, 22)
    slept: list[float] = []
    wait_for_gap(FakeWriter(timed.table), "main", clock=timed, sleep=slept.append, limit_seconds=60)
    assert sum(slept) == pytest.approx(8.1)


def test_the_limit_holds() -> None:
    timed = Timed()
    timed.update(10, 50, 90)
    assert at(timed, 120).wait(15) == 135


def test_a_catalog_that_does_not_answer_ends_the_wait_and_nothing_else() -> None:
    class Silent(FakeWriter):
        def refresh(self) -> None:
            raise CatalogUnreachableError("503")

    timed = Timed()
    timed.update(10, 15, 20)
    writer = Silent(at(timed, 22).table)
    assert wait_for_gap(writer, "main", clock=timed, sleep=timed.sleep, limit_seconds=60)
    assert timed.slept == []


def test_metadata_is_loaded_again_only_where_the_history_shows_a_writer_that_changes_rows() -> None:
    class Counting(FakeWriter):
        loads = 0

        def refresh(self) -> None:
            self.loads += 1
            super().refresh()

    for commits, loads in (((), 0), ((20,), 0), ((10, 20), 1)):
        timed = Timed()
        timed.table.append(1)
        timed.update(*commits)
        writer = Counting(at(timed, 3600).table)
        assert wait_for_gap(writer, "main", clock=timed, sleep=timed.sleep, limit_seconds=60) is bool(loads)
        assert writer.loads == loads


@dataclass
class TimedScene(Scene):
    """The scene of the commit tests, with a clock and a writer that changes rows every 5 s."""

    def __post_init__(self) -> None:
        self.timed = Timed(self.table)
        super().__post_init__()

    def run(self) -> BatchOutcome:
        plan = self.plan.model_copy(update={"policy": Policy()})
        committer = Committer(
            plan, self.writer, self.planned, run_id="r", clock=self.timed, sleep=self.timed.sleep, jitter=lambda: 1.0
        )
        return committer.commit(self.groups)


def test_the_commit_lands_right_after_the_writers_and_a_group_that_it_changed_is_given_up() -> None:
    scene = TimedScene()
    scene.timed.update(10, 15, 20)
    at(scene.timed, 22)
    scene.timed.later(25, lambda: scene.table.overwrite(scene.first[0]))
    outcome = scene.commit()
    assert outcome.committed == [1]
    assert list(outcome.superseded) == [0]
    landed = scene.table.now
    assert (landed.snapshot_id, landed.timestamp_ms) == (outcome.snapshot_id, 25_000)
    assert scene.table.visible() == [row for row in ALL_ROWS if row not in (1, 2)]


def test_rows_that_the_writer_deletes_while_the_commit_waits_stay_deleted() -> None:
    scene = TimedScene()
    scene.timed.update(10, 15, 20)
    at(scene.timed, 22)
    scene.timed.later(25, lambda: scene.table.overwrite(scene.second[0]))
    outcome = scene.commit()
    assert outcome.committed == [0]
    assert scene.table.visible() == [row for row in ALL_ROWS if row not in (5, 6)]
