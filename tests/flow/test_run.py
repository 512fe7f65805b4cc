"""The run around the commit: other hosts, Ctrl-C, incidents, results that were written elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.marker import PROPERTY, Marker
from neve.core.record import GroupState, RunOutcome
from neve.core.work import WorkResult
from neve.errors import BadRequestError
from neve.flow import run as module
from neve.flow.commit import COMMIT_ID, Committer
from neve.flow.run import commit_results, compact, resume
from tests.flow.fakes import Answer, FakeEngine, FakeTable, FakeWriter, Still, plan_of
from tests.flow.test_commit import ALL_ROWS, Scene, tools_of


@dataclass
class Notes:
    """A journal on paper."""

    begun: list[JournaledRun] = field(default_factory=list)
    results: dict[int, WorkResult] = field(default_factory=dict)
    states: dict[int, GroupState] = field(default_factory=dict)

    def begin(self, run: JournaledRun) -> None:
        self.begun.append(run)

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:  # noqa: ARG002
        self.results |= {result.group_id: result for result in results}

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:  # noqa: ARG002
        self.states |= states

    def found(self) -> JournaledRun:
        """The run as the next process finds it."""
        groups = tuple(
            JournaledGroup(
                group_id=group.group_id,
                output_prefix=group.output_prefix,
                state=self.states.get(
                    group.group_id, GroupState.WRITTEN if group.group_id in self.results else GroupState.PLANNED
                ),
                result=self.results.get(group.group_id),
            )
            for group in self.begun[0].groups
        )
        return self.begun[0].model_copy(update={"groups": groups})


def two_partitions() -> FakeTable:
    table = FakeTable()
    for row, partition in enumerate("aabb"):
        table.append(row, partition=partition)
    return table


def test_a_run_that_another_host_took_the_table_from_commits_nothing_more() -> None:
    scene = Scene()
    marker = Marker(run_id="theirs", owner="otherhost:7", until_ms=Still().now_ms() + 1)
    scene.table.properties = {PROPERTY: marker.text}
    outcome = scene.commit()
    assert outcome.replan == dict.fromkeys((0, 1), "run theirs (otherhost:7) has taken the table over")
    assert scene.writer.sent == []


@pytest.mark.parametrize(
    "marker", [Marker(run_id="r", owner="x:1", until_ms=2**60), Marker(run_id="old", owner="x:1", until_ms=1)]
)
def test_its_own_mark_and_one_that_has_run_out_do_not_stop_it(marker: Marker) -> None:
    scene = Scene()
    scene.table.properties = {PROPERTY: marker.text}
    assert scene.commit().committed == [0, 1]


def test_a_commit_that_landed_and_was_rolled_back_by_somebody_keeps_its_files() -> None:
    scene = Scene()
    before = scene.table.head
    assert before is not None

    def landed_and_undone() -> None:
        # The catalog's own second try: the first had landed, and a person has rolled it back since.
        sent = scene.writer.sent[-1]["summary"]
        table = scene.table
        table.rewrite(scene.first, [], head=before, number=None, summary=sent)
        table.roll_back(before)

    scene.writer = FakeWriter(scene.table, *[Answer.CONFLICT] * 5, before_rewrite=[landed_and_undone])
    outcome = scene.run()
    assert scene.writer.snapshots_with(COMMIT_ID, str(outcome.commit_id)) != []
    assert set(outcome.in_doubt) == {0, 1}
    assert scene.table.visible() == ALL_ROWS


def test_no_try_is_made_after_the_tables_own_total_timeout() -> None:
    scene = Scene()
    scene.table.properties = {"commit.retry.total-timeout-ms": "1000", "commit.retry.num-retries": "9"}
    scene.writer = FakeWriter(scene.table, *[Answer.CONFLICT] * 9)

    class Passing:
        now = 0

        def now_ms(self) -> int:
            self.now += 400
            return self.now

    committer = Committer(scene.plan, scene.writer, scene.planned, run_id="r", clock=Passing(), sleep=scene.wait)
    outcome = committer.commit(scene.groups)
    assert set(outcome.dropped) == {0, 1}
    assert 1 <= len(scene.writer.sent) < 9


class Interrupted(FakeWriter):
    """Ctrl-C reaches Python while Java commits; `lands` tells whether Java finished."""

    lands = True

    def rewrite(self, *args: object, **words: object) -> None:
        if self.lands:
            super().rewrite(*args, **words)  # type: ignore[arg-type]
        raise KeyboardInterrupt


def test_ctrl_c_during_a_commit_that_landed_is_settled_first_and_then_stops_the_run() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    tools = replace(tools_of(Interrupted(table), FakeEngine(table, plan)), journal=notes)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, tools)
    assert notes.states == {0: GroupState.COMMITTED, 1: GroupState.COMMITTED}
    assert table.visible() == [0, 1, 2, 3]
    assert table.properties == {}


def test_ctrl_c_during_a_commit_that_did_not_land_leaves_it_to_a_resume() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    writer = Interrupted(table)
    writer.lands = False
    engine = FakeEngine(table, plan)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(writer, engine), journal=notes))
    assert (notes.states, engine.discarded) == ({}, [])

    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert record.outcome is RunOutcome.DONE
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 2
    assert table.visible() == [0, 1, 2, 3]
    assert len(table.now.data) == 2


def test_an_incident_is_in_the_record_and_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_GROUPS", 1)
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)

    class Moving(FakeWriter):
        """Iceberg moves our commit onto a head with a delete; before we can look, somebody else commits on top."""

        def rewrite(self, *args: object, **words: object) -> None:
            late = words["head"] == plan.snapshot_id
            if late:
                table.delete_equal(0, partition="a", operation="replace", number=plan.sequence_number)
            super().rewrite(*args, **words)  # type: ignore[arg-type]
            if late:
                table.append(9, partition="c")

    record = compact(plan, replace(tools_of(Moving(table), FakeEngine(table, plan)), journal=notes))
    assert record.incident is not None
    assert record.incident.startswith("Cannot stand by snapshot ")
    assert "Roll the table back to snapshot " in record.incident
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT]
    assert record.outcome is RunOutcome.FAILED


def test_what_was_written_elsewhere_is_verified_and_committed() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    orders_done = FakeEngine(table, plan)
    results = results_of(table, orders_done)
    record = commit_results(plan, results, replace(tools_of(FakeWriter(table), orders_done), journal=notes))
    assert record.outcome is RunOutcome.DONE
    assert table.visible() == [0, 1, 2, 3]
    assert [(group.state, group.result) for group in notes.begun[0].groups] == [(GroupState.WRITTEN, r) for r in results]
    prefixes = [group.output_prefix for group in notes.begun[0].groups]
    assert all(result.outputs[0].path.startswith(prefix) for prefix, result in zip(prefixes, results, strict=True))


def results_of(table: FakeTable, engine: FakeEngine) -> list[WorkResult]:
    from neve.flow.execute import work_orders
    from tests.flow.test_commit import SPECS

    writer = FakeWriter(table)
    live = {file.path: file for file in writer.scan(engine.plan.snapshot_id)}
    orders = work_orders(engine.plan, engine.plan.groups, live, writer, SPECS)
    return [result for result in engine.run(orders) if isinstance(result, WorkResult)]


def test_results_of_other_files_are_not_committed_even_where_their_counts_agree() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    first, second = results_of(table, engine)
    swapped = [first.model_copy(update={"group_id": 1}), second.model_copy(update={"group_id": 0})]
    record = commit_results(plan, swapped, tools_of(FakeWriter(table), engine))
    assert record.outcome is RunOutcome.FAILED
    assert {group.reason[:52] for group in record.groups} == {"verification failed: inputs: the result is of other "}
    assert table.visible() == [0, 1, 2, 3]


def test_results_that_cannot_belong_to_the_plan_are_refused_before_anything_is_done() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    first, _ = results_of(table, engine)
    tools = tools_of(FakeWriter(table), engine)
    with pytest.raises(BadRequestError, match="the plan has no group 7"):
        commit_results(plan, [first.model_copy(update={"group_id": 7})], tools)
    with pytest.raises(BadRequestError, match="there are several of group 0"):
        commit_results(plan, [first, first], tools)
    assert engine.discarded == []


def test_results_that_were_committed_before_are_brought_again_and_nothing_is_removed() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    results = results_of(table, engine)
    commit_results(plan, results, tools_of(FakeWriter(table), engine))
    live = set(table.now.data)
    again = commit_results(plan, results, tools_of(FakeWriter(table), engine))
    assert [group.state for group in again.groups] == [GroupState.IN_DOUBT] * 2
    assert engine.discarded == []
    assert set(table.now.data) == live


def test_a_refused_result_that_names_a_live_file_does_not_cost_that_file() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    first, second = results_of(table, engine)
    live = next(iter(table.now.data))
    forged = first.outputs[0].model_copy(update={"path": live})
    record = commit_results(
        plan, [first.model_copy(update={"outputs": (forged,)}), second], tools_of(FakeWriter(table), engine)
    )
    assert record.groups[0].state is GroupState.FAILED
    assert "paths are new" in record.groups[0].reason
    assert engine.discarded == []


def test_a_group_that_failed_its_proof_is_not_noted_as_written_afterwards() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    order: list[tuple[str, int]] = []

    class Ordered(Notes):
        def written(self, run_id: str, results: Iterable[WorkResult]) -> None:
            found = list(results)
            order.extend(("written", result.group_id) for result in found)
            super().written(run_id, found)

        def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:
            order.extend(("settled", group_id) for group_id in states)
            super().settled(run_id, states)

    notes = Ordered()
    compact(plan, replace(tools_of(FakeWriter(table), FakeEngine(table, plan, losing=[0])), journal=notes))
    assert order == [("written", 0), ("settled", 0), ("written", 1), ("settled", 1)]


def test_a_resume_never_removes_a_live_file_even_if_the_journal_does_not_know_it() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    compact(plan, replace(tools_of(FakeWriter(table), engine), journal=notes))
    live = set(table.now.data)
    forgetful = Notes(begun=notes.begun)  # as if a disk had lost everything after the first note
    record = resume(forgetful.found(), tools_of(FakeWriter(table), engine))
    assert {group.state for group in record.groups} == {GroupState.SUPERSEDED}
    assert not live & set(engine.discarded)
    assert table.visible() == [0, 1, 2, 3]


def test_finished_groups_do_not_wait_long_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_MS", 0)
    table = two_partitions()
    plan = plan_of(table)
    record = compact(plan, tools_of(FakeWriter(table), FakeEngine(table, plan)))
    assert len(record.snapshots) == 2
