"""Commit races as a state machine: writers of every kind, lost answers, and readers who must never notice any of it.

The reference is a plain set of rows, which our commits never touch. Whatever happens in whatever order, the table shows just
that set; no row twice; and no file that we would have discarded is ever live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from neve.commit.batch import BatchOutcome
from neve.commit.late_deletes import WrittenGroup
from neve.commit.rewrite_files import Committer
from neve.errors import CommitIncidentError
from neve.rewrite.plan import Plan
from tests.builders.fake_tables import Answer, FakeDeletes, FakeTable, FakeWriter, Still, plan_of, write_groups

PARTITIONS = ("a", "b")
STRIKES = (
    "append",
    "delete by position",
    "delete by equality",
    "upsert",
    "overwrite",
    "compact",
    "rewrite position deletes",
    "rewrite equality deletes",
    "delete by position in a replace commit",
    "delete by equality in a replace commit",
    "roll back",
    "upgrade",
    "expire",
)
partitions = st.sampled_from(PARTITIONS)
strikes = st.lists(st.tuples(st.sampled_from(STRIKES), partitions, st.integers(0, 99)), max_size=3)


class CommitRaces(RuleBasedStateMachine):
    """`rows` is the truth. A rewrite is planned and written at one moment and committed at another."""

    def __init__(self) -> None:
        super().__init__()
        self.table = FakeTable()
        self.rows: set[int] = set()
        self.truths: dict[int | None, set[int]] = {}
        """The rows after each snapshot of others. Ours change none, so they have those of the snapshot that they are on."""
        self.next_row = 0
        self.pending: tuple[Plan, dict[str, Any], list[WrittenGroup]] | None = None
        self.discarded: set[str] = set()
        self.writers: list[FakeWriter] = []

    @initialize(moves_deletes=st.booleans())
    def begin(self, moves_deletes: bool) -> None:
        self.moves_deletes = moves_deletes
        self.fill()

    def fill(self) -> None:
        for partition in (*PARTITIONS, *PARTITIONS, "a"):
            self._append(partition)

    @rule(name=st.sampled_from(STRIKES), partition=partitions, choice=st.integers(0, 99))
    def others_do(self, name: str, partition: str, choice: int) -> None:
        self._strike(name, partition, choice)

    def _strike(self, name: str, partition: str, choice: int) -> None:
        files = sorted(path for path, file in self.table.now.data.items() if file.partition == partition)
        chosen = files[choice % len(files)] if files else None
        actions: dict[str, Callable[[], object]] = {
            "append": lambda: self._append(partition),
            "delete by equality": lambda: self._delete_equal(partition, choice),
            "delete by equality in a replace commit": lambda: self._delete_equal_by_replace(partition, choice),
            "upsert": lambda: self._upsert(partition, choice),
            "rewrite equality deletes": lambda: self.table.rewrite_equality_deletes(partition),
            "roll back": self._roll_back,
            "upgrade": self.table.upgrade,
            "expire": self.table.expire,
        }
        if chosen is not None:
            actions |= {
                "delete by position": lambda: self._delete_position(chosen, choice),
                "delete by position in a replace commit": lambda: self._delete_position(chosen, choice, operation="replace"),
                "overwrite": lambda: self._overwrite(chosen),
                "compact": lambda: self.table.compact(*files[: 1 + choice % len(files)]),
                "rewrite position deletes": lambda: self.table.rewrite_position_deletes(chosen),
            }
        actions.get(name, lambda: None)()
        self.truths[self.table.head] = set(self.rows)

    def _append(self, partition: str) -> None:
        new = range(self.next_row, self.next_row + 3)
        self.next_row += 3
        self.table.append(*new, partition=partition)
        self.rows |= set(new)
        self.truths[self.table.head] = set(self.rows)

    def _delete_position(self, path: str, choice: int, operation: str = "delete") -> None:
        rows = sorted(self.table.contents[path])
        if rows:
            self.table.delete_positions(path, rows[choice % len(rows)], operation=operation)
            self.rows.discard(rows[choice % len(rows)])

    def _delete_equal(self, partition: str, choice: int) -> None:
        there = [r for p, f in self.table.now.data.items() if f.partition == partition for r in self.table.contents[p]]
        doomed = {row for row in there if row % 4 == choice % 4}
        self.table.delete_equal(*doomed, partition=partition)
        self.rows -= doomed

    def _upsert(self, partition: str, choice: int) -> None:
        there = sorted(r for p, f in self.table.now.data.items() if f.partition == partition for r in self.table.contents[p])
        if there:
            self.table.upsert(there[choice % len(there)], self.next_row, partition=partition)
            self.rows -= {there[choice % len(there)]}
            self.rows.add(self.next_row)
            self.next_row += 1

    def _delete_equal_by_replace(self, partition: str, choice: int) -> None:
        """Iceberg lets a replace commit add a delete of any number; this one has the head's."""
        number = self.table.now.number
        files = [path for path, file in self.table.now.data.items() if file.partition == partition and file.number < number]
        doomed = {row for path in files for row in self.table.contents[path] if row % 4 == choice % 4}
        self.table.delete_equal(*doomed, partition=partition, operation="replace", number=number)
        self.rows -= doomed

    def _roll_back(self) -> None:
        parent = self.table.now.parent_id
        if parent in self.table.history:
            self.table.roll_back(parent)
            self.rows = self._truth_at(parent)

    def _truth_at(self, snapshot: int | None) -> set[int]:
        """Not what is visible there: a commit of ours that nobody has judged yet may be wrong."""
        while snapshot not in self.truths and snapshot in self.table.history:
            snapshot = self.table.history[snapshot].parent_id
        return set(self.truths.get(snapshot, self.table.visible()))

    def _overwrite(self, path: str) -> None:
        self.rows -= self.table.contents[path]
        self.table.overwrite(path)

    @precondition(lambda self: self.pending is None and len(self.table.now.data) > 0)
    @rule(choice=st.integers(0, 99), everything=st.booleans())
    def we_plan_and_write(self, choice: int, everything: bool) -> None:
        plan = plan_of(self.table)
        version = self.table.now
        groups = {}
        for number, partition in enumerate(PARTITIONS):
            files = sorted(path for path, file in version.data.items() if file.partition == partition)
            taken = files if everything else files[: choice % (len(files) + 1)]
            if taken:
                groups[number] = taken
        writer = FakeWriter(self.table)
        planned = {file.path: file for file in writer.scan(version.snapshot_id)}
        if groups:
            self.pending = plan, planned, write_groups(self.table, plan, groups)

    @precondition(lambda self: self.pending is not None)
    @rule(
        answers=st.lists(st.sampled_from(Answer), max_size=6),
        failing=st.sets(st.integers(1, 8), max_size=3),
        between=st.lists(strikes, max_size=3),
        waiting=st.lists(strikes, max_size=4),
        landing=st.integers(0, 5),
    )
    def we_commit(self, answers: list[Answer], failing: set[int], between: list[Any], waiting: list[Any], landing: int) -> None:
        assert self.pending is not None
        (plan, planned, groups), self.pending = self.pending, None
        writer = FakeWriter(self.table, *answers, before_rewrite=[self._later(each) for each in between])
        writer.refreshes_that_fail = failing
        self.writers.append(writer)
        waits = iter(waiting)

        def sleep(_: float) -> None:
            # A snapshot that is expired before we could look at it can only be known by its files, and not be judged.
            self._later([each for each in next(waits, []) if each[0] != "expire" or not writer.sent])()
            if landing % 2:
                writer.land()

        try:
            deletes = FakeDeletes(self.table) if self.moves_deletes else None
            committer = Committer(plan, writer, planned, run_id="r", clock=Still(), sleep=sleep, deletes=deletes)
            outcome = committer.commit(groups)
        except CommitIncidentError:
            assert failing & set(range(1, writer.refreshes))  # otherwise it would have been noticed in time, and taken back
            self._start_over()
        else:
            self._check(outcome, groups)

    def _start_over(self) -> None:
        self.table, self.rows, self.pending, self.discarded, self.writers = FakeTable(), set(), None, set(), []
        self.truths = {}
        self.fill()

    def _later(self, several: list[tuple[str, str, int]]) -> Callable[[], None]:
        def strike() -> None:
            for each in several:
                self._strike(*each)

        return strike

    def _check(self, outcome: BatchOutcome, groups: list[WrittenGroup]) -> None:
        lost = {*outcome.superseded, *outcome.replan, *outcome.dropped}
        assert not lost & set(outcome.committed)
        assert not set(outcome.in_doubt) & set(outcome.committed)
        assert {*lost, *outcome.committed, *outcome.in_doubt} == {group.group_id for group in groups}
        for group in groups:
            if group.group_id in lost - set(outcome.in_doubt):
                self.discarded |= group.output_paths
        self.discarded |= set(outcome.unused)
        if outcome.snapshot_id in self.table.history:
            snapshot = self.table.history[outcome.snapshot_id]
            for group in groups:
                assert (group.output_paths <= set(snapshot.data)) == (group.group_id in outcome.committed or not group.outputs)

    @rule()
    def requests_in_flight_arrive(self) -> None:
        for writer in self.writers:
            writer.land()

    @invariant()
    def readers_see_every_row_once(self) -> None:
        assert self.table.visible() == sorted(self.rows)

    @invariant()
    def nothing_that_was_discarded_is_live(self) -> None:
        assert not self.discarded & {*self.table.now.data, *(path for path, _ in self.table.now.deletes)}


CommitRaces.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestCommitRaces = CommitRaces.TestCase
