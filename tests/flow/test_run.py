"""The run around the commit: other hosts, Ctrl-C, incidents, results that were written elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from neve.commit.marker import PROPERTY
from neve.commit.protocol import COMMIT_ID
from neve.commit.rewrite_files import Committer
from neve.commit.takeover import abandon
from neve.errors import BadRequestError, LeaseHeldError, RunTakenOverError, StorageError
from neve.operations import rewrite_run as module
from neve.operations.results import commit_results
from neve.operations.resume import resume
from neve.operations.rewrite_run import PlannedRun, begun
from neve.rewrite.journal import JournaledRun
from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.rewrite.run_summary import keep
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.state import StateStore
from tests.builders.commit_scenes import ALL_ROWS, SPECS, Scene, tools_of
from tests.builders.compaction_runs import ELSEWHERE, Late, Notes, TwoHosts, another_process, results_of, two_partitions
from tests.builders.contexts import compact
from tests.builders.fake_tables import Answer, FakeEngine, FakeTable, FakeWriter, Still, plan_of


def test_a_run_that_lost_its_table_sends_nothing_more_and_stops() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table)
    committer = Committer(scene.plan, scene.writer, scene.planned, run_id="r", clock=Still(), sleep=scene.wait)

    def lost() -> None:
        raise RunTakenOverError("Cannot go on with run r: run theirs (otherhost:7) has taken the table over")

    committer.assert_held = lost
    with pytest.raises(RunTakenOverError):
        committer.commit(scene.groups)
    assert scene.writer.sent == []


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
    assert (notes.states, engine.quarantine.paths, notes.paused) == ({}, [], [notes.begun[0].run_id])

    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert record.outcome is RunOutcome.DONE
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 2
    assert table.visible() == [0, 1, 2, 3]
    assert len(table.now.data) == 2


class InterruptedWithoutJava(Interrupted):
    """Ctrl-C ends the JVM too: once the commit was sent, nothing answers any more."""

    ended = False

    def rewrite(self, *args: object, **words: object) -> None:
        self.ended = True
        super().rewrite(*args, **words)

    def refresh(self) -> None:
        if self.ended:
            raise ConnectionError("Answer from Java side is empty")
        super().refresh()


@pytest.mark.parametrize("lands", [True, False])
def test_ctrl_c_that_ends_the_jvm_during_a_commit_says_nothing_and_leaves_it_to_a_resume(
    lands: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    writer = InterruptedWithoutJava(table)
    writer.lands = lands
    engine = FakeEngine(table, plan)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(writer, engine), journal=notes))
    assert (notes.states, engine.quarantine.paths) == ({}, [])
    assert [record.message for record in caplog.records if "attempt" in record.message] == []

    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert record.outcome is RunOutcome.DONE
    assert table.visible() == [0, 1, 2, 3]
    assert len(table.now.data) == 2


@dataclass
class Replanning:
    """Plans again, as `operations.compact` does, and remembers what came out."""

    table: FakeTable
    writer: FakeWriter
    plans: list[Plan] = field(default_factory=list)

    def __call__(self) -> PlannedRun:
        self.plans.append(plan_of(self.table))
        return PlannedRun(self.plans[-1], SPECS)


def late_run(table: FakeTable, change: Callable[[], object]) -> tuple[RunRecord, Replanning]:
    """A run that gets the lease only after the table was changed."""
    plan, writer = plan_of(table), FakeWriter(table)
    change()
    again = Replanning(table, writer)
    context = replace(tools_of(writer, FakeEngine(table, plan)), engine_for=lambda plan: FakeEngine(table, plan))
    return compact(plan, context, plan_again=again), again


def test_a_table_that_changed_before_the_lease_was_taken_is_planned_again() -> None:
    table = two_partitions()
    record, again = late_run(table, lambda: table.append(9, partition="a"))
    assert len(again.plans) == 1
    assert record.snapshot_before == again.plans[0].snapshot_id
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 2
    assert (record.files_compacted, record.files_written) == (5, 2)
    assert table.visible() == [0, 1, 2, 3, 9]


def test_a_run_that_finds_nothing_to_do_once_it_has_the_lease_does_nothing_and_says_so() -> None:
    table = two_partitions()
    record, again = late_run(table, lambda: [table.overwrite(path) for path in list(table.now.data)])
    assert [len(plan.groups) for plan in again.plans] == [0]
    assert (record.outcome, record.groups) == (RunOutcome.NOTHING_TO_DO, ())
    assert table.properties == {}


def test_a_table_whose_schema_changed_before_the_lease_was_taken_is_planned_again() -> None:
    table = two_partitions()

    def evolve() -> None:
        table.schema_id = 1

    record, again = late_run(table, evolve)
    assert [plan.schema_id for plan in again.plans] == [1]
    assert record.outcome is RunOutcome.DONE


def test_a_table_that_did_not_change_is_not_planned_again() -> None:
    record, again = late_run(two_partitions(), lambda: None)
    assert (record.outcome, again.plans) == (RunOutcome.DONE, [])


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
    assert record.incident.startswith("Cannot confirm snapshot ")
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
    assert engine.quarantine.paths == []


def test_results_that_were_committed_before_are_found_in_the_table_and_nothing_is_removed() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    results = results_of(table, engine)
    commit_results(plan, results, tools_of(FakeWriter(table), engine))
    live = set(table.now.data)
    again = commit_results(plan, results, tools_of(FakeWriter(table), engine))
    assert [group.state for group in again.groups] == [GroupState.COMMITTED] * 2
    assert engine.quarantine.paths == []
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
    assert engine.quarantine.paths == []


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
    assert not live & set(engine.quarantine.paths)
    assert table.visible() == [0, 1, 2, 3]


def test_finished_groups_do_not_wait_long_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_MS", 0)
    table = two_partitions()
    plan = plan_of(table)
    record = compact(plan, tools_of(FakeWriter(table), FakeEngine(table, plan)))
    assert len(record.snapshots) == 2


def test_the_lease_is_held_until_what_comes_after_a_compaction_has_ended() -> None:
    table = two_partitions()
    plan = plan_of(table)
    context = tools_of(FakeWriter(table), FakeEngine(table, plan))
    with begun(PlannedRun(plan, SPECS), context) as run:
        with run.settling():
            run.commit(run.verify(run.execute()))
        run.assert_held()
        assert run.run_id in table.properties[PROPERTY]
    assert PROPERTY not in table.properties
    assert run.record().outcome is RunOutcome.DONE


class Ticking:
    """A clock that moves on by a second each time that it is read."""

    def __init__(self) -> None:
        self.ticks = itertools.count(Still().now_ms(), 1000)

    def now_ms(self) -> int:
        return next(self.ticks)


def test_each_compacted_partition_is_recorded_with_its_branch_and_the_snapshot_and_time_of_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BATCH_GROUPS", 1)
    table = two_partitions()
    plan = plan_of(table)
    tools = replace(tools_of(FakeWriter(table), FakeEngine(table, plan)), clock=Ticking())
    record = compact(plan, tools)
    with StateStore.open("sqlite://") as store:
        keep(store, record, plan)
        commits = sorted(store.compaction_commits(record.table_uuid), key=lambda commit: commit.committed_ms)
        assert [(commit.run_id, commit.branch, commit.snapshot_id) for commit in commits] == [
            (record.run_id, "main", snapshot) for snapshot in record.snapshots
        ]
        assert len(commits) == 2
        assert record.started_ms < commits[0].committed_ms < commits[1].committed_ms < record.finished_ms


@pytest.mark.parametrize("stall", ["written", "refresh", "rewrite"])
def test_a_stalled_run_is_taken_over_only_when_its_heartbeat_has_ended_and_then_stops_without_harm(stall: str) -> None:
    hosts = TwoHosts(stall=stall)
    with pytest.raises(RunTakenOverError, match=r"has taken it over|another process has taken over"):
        hosts.run()
    assert hosts.refused.startswith("Cannot take c.db.t: run ")
    assert [record.outcome for record in hosts.records] == [RunOutcome.DONE]
    assert hosts.theirs.unfinished() != ()  # the operation keeps the record
    hosts.assert_whole()


def test_files_of_a_stalled_run_are_not_removed_by_whoever_takes_it_over_and_never_share_a_name_with_theirs() -> None:
    """Nothing was journaled as written when the first one stalled, so that all of it is done again."""
    hosts = TwoHosts()
    with pytest.raises(RunTakenOverError):
        hosts.run()
    first = {path for path in hosts.table.contents if "neve-" in path and path not in hosts.table.now.data}
    assert len(first) == 2
    assert set(hosts.table.now.data).isdisjoint(first)
    prefixes = [group.output_prefix for group in hosts.theirs.unfinished()[0].groups]
    assert all(any(path.startswith(prefix) for path in hosts.table.now.data) for prefix in prefixes)
    hosts.assert_whole()


def test_a_run_that_stops_before_its_end_is_resumed_from_anywhere_without_waiting() -> None:
    hosts = TwoHosts()

    def interrupted() -> None:
        raise KeyboardInterrupt

    hosts.engines[0].after_last = interrupted
    with pytest.raises(KeyboardInterrupt):
        compact(hosts.plan, hosts.tools(FakeWriter(hosts.table), 0, hosts.ours))
    (found,) = hosts.theirs.unfinished()
    with another_process(ELSEWHERE):
        assert resume(found, hosts.tools(FakeWriter(hosts.table), 1, hosts.theirs)).outcome is RunOutcome.DONE
    assert hosts.table.visible() == [0, 1, 2, 3]


def test_a_resume_goes_by_the_journal_as_it_is_when_the_run_is_taken_over() -> None:
    """It was read before, and its owner went on meanwhile: what was written then is not redone."""
    hosts = TwoHosts()
    writer = Interrupted(hosts.table)
    writer.lands = False
    stale: list[JournaledRun] = []
    hosts.engines[0].after_last = lambda: stale.extend(hosts.theirs.unfinished())
    with pytest.raises(KeyboardInterrupt):
        compact(hosts.plan, hosts.tools(writer, 0, hosts.ours))
    assert {group.state for group in stale[0].groups} == {GroupState.PLANNED}
    written = {path for path in hosts.table.contents if "neve-" in path}
    with another_process(ELSEWHERE):
        record = resume(stale[0], hosts.tools(FakeWriter(hosts.table), 1, hosts.theirs))
    assert record.outcome is RunOutcome.DONE
    assert set(hosts.table.now.data) == written


@pytest.mark.parametrize("how", ["dropped", "renamed", "replaced"])
def test_a_run_whose_table_is_gone_ends_with_a_record_and_removes_nothing(how: str) -> None:
    table, notes = two_partitions(), Notes()
    table.new_name = "c.db.moved" if how == "renamed" else None
    plan = plan_of(table)
    engine = FakeEngine(table, plan)

    def strike() -> None:
        table.gone = how

    engine.after_last = strike
    record = compact(plan, replace(tools_of(FakeWriter(table), engine), journal=notes))
    assert record.table_gone == f"Cannot go on with c.db.t: it was {how} during the run"
    assert (record.outcome, record.snapshots) == (RunOutcome.FAILED, ())
    assert [(g.state, g.reason, len(g.outputs)) for g in record.groups] == [(GroupState.FAILED, record.table_gone, 1)] * 2
    assert notes.states == dict.fromkeys((0, 1), GroupState.FAILED)
    assert engine.quarantine.paths == []
    assert (PROPERTY in table.properties) is (how != "renamed")


def test_a_commit_that_was_sent_before_the_table_was_gone_is_in_doubt() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)

    def strike() -> None:
        table.gone = "dropped"

    writer = FakeWriter(table, Answer.LOST_BEFORE, before_rewrite=[strike])
    record = compact(plan, replace(tools_of(writer, engine), journal=notes))
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT] * 2
    assert engine.quarantine.paths == []


def test_an_interrupted_run_is_given_up_only_once_its_owner_has_lapsed() -> None:
    hosts, found = TwoHosts(), list[JournaledRun]()
    hosts.engines[0].after_last = lambda: found.extend(hosts.theirs.unfinished())
    compact(hosts.plan, hosts.tools(FakeWriter(hosts.table), 0, hosts.ours))
    with another_process(ELSEWHERE):
        with pytest.raises(LeaseHeldError):
            abandon(found[0], hosts.theirs, Still(), "given up")
        record = abandon(found[0], hosts.theirs, Late(), "given up")
    hosts.theirs.keep_run(record, [])
    assert [(group.state, group.reason) for group in record.groups] == [
        (GroupState.COMMITTED, "settled before the run was interrupted")
    ] * 2
    assert hosts.theirs.unfinished() == ()


def test_a_result_from_elsewhere_whose_file_is_gone_is_not_committed() -> None:
    table = two_partitions()
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    first, second = results_of(table, engine)
    del table.contents[first.outputs[0].path]
    record = commit_results(plan, [first, second], tools_of(FakeWriter(table), engine))
    assert engine.reopened == [1]
    assert [group.state for group in record.groups] == [GroupState.FAILED, GroupState.COMMITTED]
    assert record.groups[0].reason == f"{first.outputs[0].path} does not exist; run its order again"
    assert engine.quarantine.paths == []
    assert table.visible() == [0, 1, 2, 3]


def test_a_resume_opens_what_was_written_before_it_commits_it() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    writer = Interrupted(table)
    writer.lands = False
    engine = FakeEngine(table, plan)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(writer, engine), journal=notes))
    assert engine.reopened == []  # they were opened by the tasks that wrote them
    written = [group.result for group in notes.found().groups if group.result]
    table.contents[written[1].outputs[0].path] = frozenset({1})  # the file is there, and is another

    record = resume(notes.found(), tools_of(FakeWriter(table), engine))
    assert engine.reopened == [0, 1]
    assert [group.state for group in record.groups] == [GroupState.COMMITTED, GroupState.FAILED]
    assert record.groups[1].reason.endswith("has 1 rows, and 2 were written")
    assert table.visible() == [0, 1, 2, 3]


def test_a_resumed_commit_whose_file_was_moved_away_meanwhile_is_taken_back() -> None:
    """Another process that was paused moves a file to the trash after the resume has opened it, and before its commit lands."""
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    writer = Interrupted(table)
    writer.lands = False
    engine = FakeEngine(table, plan)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(writer, engine), journal=notes))
    moved = notes.results[1].outputs[0].path

    late = FakeWriter(table, before_rewrite=[lambda: table.contents.pop(moved)])
    record = resume(notes.found(), replace(tools_of(late, engine), journal=notes))
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT, GroupState.IN_DOUBT]
    assert record.groups[1].reason == f"rolled back, for {moved} does not exist any more"
    assert table.visible() == [0, 1, 2, 3]
    assert engine.quarantine.paths == []


def test_storage_that_does_not_answer_while_a_run_is_resumed_leaves_the_run_to_another_resume() -> None:
    table, notes = two_partitions(), Notes()
    plan = plan_of(table)
    writer = Interrupted(table)
    writer.lands = False
    engine = FakeEngine(table, plan)
    with pytest.raises(KeyboardInterrupt):
        compact(plan, replace(tools_of(writer, engine), journal=notes))
    with pytest.MonkeyPatch.context() as patch:

        def silent(_: WorkResult) -> WorkResult:
            raise StorageError("Cannot read: it does not answer")

        patch.setattr(engine, "open_outputs", silent)
        with pytest.raises(StorageError):
            resume(notes.found(), replace(tools_of(FakeWriter(table), engine), journal=notes))
    assert {group.state for group in notes.found().groups} == {GroupState.WRITTEN}
    record = resume(notes.found(), replace(tools_of(FakeWriter(table), engine), journal=notes))
    assert record.outcome is RunOutcome.DONE
    assert table.visible() == [0, 1, 2, 3]


def test_an_abandoned_run_is_not_recorded_as_one_whose_table_is_gone() -> None:
    hosts, found = TwoHosts(), list[JournaledRun]()
    hosts.engines[0].after_last = lambda: found.extend(hosts.theirs.unfinished())
    compact(hosts.plan, hosts.tools(FakeWriter(hosts.table), 0, hosts.ours))
    with another_process(ELSEWHERE):
        assert abandon(found[0], hosts.theirs, Late(), "given up").table_gone is None


def test_a_group_whose_outputs_nobody_opened_is_opened_and_otherwise_never_committed() -> None:
    class Hasty(FakeEngine):
        """Does not look at what it wrote; asked to, it cannot."""

        def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
            for result in super().run(orders):
                assert isinstance(result, WorkResult)
                blind = [output.model_copy(update={"opened": None}) for output in result.outputs]
                yield result.model_copy(update={"outputs": tuple(blind)})

        def open_outputs(self, result: WorkResult) -> WorkResult:
            return super().open_outputs(result) if result.group_id else result

    table = two_partitions()
    plan = plan_of(table)
    engine = Hasty(table, plan)
    record = compact(plan, tools_of(FakeWriter(table), engine))
    assert [group.state for group in record.groups] == [GroupState.FAILED, GroupState.COMMITTED]
    assert record.groups[0].reason.endswith("does not open: nobody has opened it since it was written")
    assert len(engine.quarantine.paths) == 1
    assert table.visible() == [0, 1, 2, 3]
