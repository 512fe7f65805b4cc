"""The journal: what a run wrote down comes back as it was, from SQLite and from PostgreSQL, and from an upgraded store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from neve.commit.lease_terms import LEASE_MS
from neve.errors import LeaseHeldError, RunTakenOverError, StateError
from neve.rewrite.compactions import Compacted, CompactionCommit
from neve.rewrite.group import RunKind
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.record import GroupRecord, GroupState
from neve.state import Run, StateStore, schema
from neve.table.files import Partition
from tests.builders.old_stores import add_old_compactions, make_old_store
from tests.builders.state_databases import POSTGRES
from tests.builders.stored_runs import PLAN, RESULT, RUN, make_record

JOURNALED_PLAN = PLAN.model_dump(mode="json", by_alias=True)
COMPACTED = Compacted(Partition(0, "d=1"), snapshot_id=1, committed_ms=9)


def test_a_run_comes_back_as_it_was_begun(store: StateStore) -> None:
    store.begin(RUN)
    assert store.unfinished() == (RUN,)


def kind_of(store: StateStore, run_id: str) -> str:
    run = store.run(run_id)
    assert run is not None
    return run.kind


@pytest.mark.parametrize("kind", RunKind)
def test_a_run_has_the_kind_of_its_plan_from_its_beginning_to_its_end(store: StateStore, kind: RunKind) -> None:
    store.begin(RUN.model_copy(update={"plan": PLAN.model_copy(update={"kind": kind})}))
    assert kind_of(store, "r1") == kind.value
    assert store.unfinished()[0].plan.kind is kind
    store.keep_run(make_record(run_id="r1").model_copy(update={"kind": kind}), [])
    assert kind_of(store, "r1") == kind.value
    store.keep_run(make_record(run_id="r2").model_copy(update={"kind": kind}), [])
    assert kind_of(store, "r2") == kind.value


def test_groups_come_back_with_their_results_and_states(store: StateStore) -> None:
    store.begin(RUN)
    store.written("r1", [RESULT])
    (group,) = store.unfinished()[0].groups
    assert (group.state, group.result) == (GroupState.WRITTEN, RESULT)
    store.settled("r1", {0: GroupState.COMMITTED})
    assert store.unfinished()[0].groups[0].state is GroupState.COMMITTED


def test_results_are_found_by_the_names_of_their_files_with_the_first_run_that_settled_them(store: StateStore) -> None:
    def settle(run_id: str, started_ms: int, state: GroupState) -> None:
        store.begin(RUN.model_copy(update={"run_id": run_id, "started_ms": started_ms}))
        group = GroupRecord(group_id=0, state=state, reason="")
        store.keep_run(make_record(group, run_id=run_id, table_uuid=PLAN.table_uuid), [])

    prefix = RUN.groups[0].output_prefix
    settle("failed", 1, GroupState.FAILED)
    store.begin(RUN.model_copy(update={"run_id": "open", "started_ms": 2}))
    store.settled("open", {0: GroupState.COMMITTED})
    assert store.landed_before(PLAN.table_uuid, [prefix]) == {}
    settle("first", 3, GroupState.COMMITTED)
    settle("second", 4, GroupState.SUPERSEDED)
    others = [f"/wh/data/neve-{number}" for number in range(1200)]
    found = store.landed_before(PLAN.table_uuid, [*others, prefix])
    assert {name: record.run_id for name, record in found.items()} == {prefix: "first"}
    assert store.landed_before("another", [prefix]) == {}


def test_a_run_whose_record_was_not_stored_whole_has_no_first_outcome(store: StateStore) -> None:
    store.begin(RUN)
    store.settled("r1", {0: GroupState.COMMITTED})
    store.finish_run("r1", finished_ms=9, outcome="done", record={"reason": "its record cannot be stored"})
    assert store.landed_before(PLAN.table_uuid, [RUN.groups[0].output_prefix]) == {}


def test_only_runs_that_this_process_claimed_and_did_not_end_are_paused(store: StateStore) -> None:
    for run_id in ("r1", "r2"):
        store.begin(RUN.model_copy(update={"run_id": run_id}))
    store.finish_run("r2", finished_ms=9, outcome="done", record={})
    StateStore(store._engine).begin(RUN.model_copy(update={"run_id": "r3"}))
    assert store.pause_all() == ("r1",)
    store.require_resumable("r1", owner="other:2", gone=None, now_ms=5)
    with pytest.raises(LeaseHeldError):
        store.require_resumable("r3", owner="other:2", gone=None, now_ms=5)


def test_holders_are_runs_with_a_heartbeat_and_runs_with_a_lease(store: StateStore) -> None:
    now = int(time.time() * 1000)  # PostgreSQL has a clock of its own
    assert store.holders(now) == {}
    store.begin(RUN.model_copy(update={"started_ms": now}))
    store.take_lease("t", run_id="expiry", owner="h:9", now_ms=now, lease_ms=LEASE_MS)
    assert store.holders(now) == {"r1": "host:1", "expiry": "h:9"}
    store.pause("r1")
    assert store.holders(now) == {"expiry": "h:9"}


def test_a_finished_run_is_not_unfinished(store: StateStore) -> None:
    store.begin(RUN)
    store.finish_run("r1", finished_ms=9, outcome="done", record={})
    assert store.unfinished() == ()


@pytest.mark.parametrize("version", ["0001", "0002", "0006"])
@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_an_older_store_is_upgraded_with_what_it_holds(url: str, version: str) -> None:
    make_old_store(url, version)
    with StateStore.open(url) as store:
        assert store.run("old") == Run("old", "t", "db.t", "compact", 1, 2, "done", {"a": 1})
        assert (store.row_groups("t"), store.last_compactions("t")) == ({"f": 3}, {Partition(0, "d=1"): 2})
        store.begin(RUN)
        assert store.unfinished() == (RUN,)
        assert store.take_lease("t", run_id="r1", owner="h:1", now_ms=1, lease_ms=2).lease.token == 1


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_the_upgrade_to_0007_takes_branch_and_snapshot_of_compactions_from_the_records_of_runs(url: str) -> None:
    make_old_store(url, "0006")
    group = {"state": "committed", "partition": "d=1"}
    record = {
        "branch": "audit",
        "snapshots": [7, 2**62],
        "groups": [
            {**group, "snapshot_id": 2**62},
            {**group, "snapshot_id": 7},
            {**group, "partition": "d=2", "snapshot_id": 7},
            {"state": "failed", "partition": "d=3"},
        ],
    }
    add_old_compactions(url, "on-branch", ["d=1", "d=2", "d=4"], record)
    add_old_compactions(url, "broken", ["d=1"], {"reason": "its record cannot be stored"})
    add_old_compactions(url, "pruned", ["d=1"], None)
    with StateStore.open(url) as store:
        assert set(store.compaction_commits("t")) == {
            CompactionCommit("old", "main", None, 2),
            CompactionCommit("on-branch", "audit", 2**62, 2),
            CompactionCommit("on-branch", "audit", 7, 2),
            CompactionCommit("broken", "main", None, 2),
            CompactionCommit("pruned", "main", None, 2),
        }
        on_branch = [commit for commit in store.compaction_commits("t") if commit.run_id != "on-branch"]
        homes = {Partition(0, name): 2 for name in ("d=1", "d=2", "d=4")}
        assert store.last_compactions("t", on_branch) == homes
        first = [commit for commit in store.compaction_commits("t") if commit.snapshot_id != 7]
        assert store.last_compactions("t", first) == {Partition(0, "d=2"): 2}
        assert (store.row_groups("t"), store.run("on-branch")) == (
            {"f": 3},
            Run("on-branch", "t", "db.t", "compact", 1, 2, "done", record),
        )


def test_many_results_and_states_are_noted_at_once(store: StateStore) -> None:
    groups = tuple(JournaledGroup(group_id=n, output_prefix=f"p{n}") for n in range(3))
    store.begin(RUN.model_copy(update={"groups": groups}))
    results = [RESULT.model_copy(update={"group_id": n}) for n in (2, 0)]
    store.written("r1", results)
    store.settled("r1", {2: GroupState.COMMITTED, 1: GroupState.FAILED})
    store.written("r1", [])
    store.settled("r1", {})
    found = store.unfinished()[0].groups
    assert [group.state for group in found] == [GroupState.WRITTEN, GroupState.FAILED, GroupState.COMMITTED]
    assert [group.result for group in found] == [results[1], None, results[0]]


def test_one_transaction_notes_many_results(store: StateStore) -> None:
    from sqlalchemy import event

    groups = tuple(JournaledGroup(group_id=n, output_prefix=f"p{n}") for n in range(3))
    store.begin(RUN.model_copy(update={"groups": groups}))
    commits: list[object] = []
    event.listen(store._engine, "commit", commits.append)
    store.written("r1", [RESULT.model_copy(update={"group_id": n}) for n in range(3)])
    assert len(commits) == 1
    store.settled("r1", dict.fromkeys(range(3), GroupState.COMMITTED))
    assert len(commits) == 2


def _journal(store: StateStore, run_id: str = "r1") -> tuple[Any, dict[int, tuple[str, Any]]]:
    """The plan of a run and its groups' states and results, past everything that filters them."""
    from sqlalchemy import select

    with store._engine.connect() as connection:
        plan = connection.execute(select(schema.runs.c.plan).where(schema.runs.c.run_id == run_id)).scalar()
        rows = connection.execute(select(schema.run_groups).where(schema.run_groups.c.run_id == run_id)).all()
    return plan, {row.group_id: (row.state, row.result) for row in rows}


def test_a_run_that_ended_keeps_results_in_doubt_and_drops_the_rest_of_its_journal(store: StateStore) -> None:
    groups = tuple(JournaledGroup(group_id=n, output_prefix=f"p{n}") for n in range(3))
    store.begin(RUN.model_copy(update={"groups": groups}))
    store.written("r1", [RESULT.model_copy(update={"group_id": n}) for n in range(2)])
    states = {0: GroupState.COMMITTED, 1: GroupState.IN_DOUBT, 2: GroupState.FAILED}
    record = make_record(*(GroupRecord(group_id=n, state=state, reason="") for n, state in states.items()))
    store.keep_run(record, [])
    plan, found = _journal(store)
    assert plan is None
    doubtful = RESULT.model_copy(update={"group_id": 1}).model_dump(mode="json")
    assert found == {0: ("committed", None), 1: ("in-doubt", doubtful), 2: ("failed", None)}


def test_a_run_that_is_kept_again_has_the_later_record(store: StateStore) -> None:
    outputs = RESULT.outputs
    group = GroupRecord(group_id=0, state=GroupState.COMMITTED, reason="", snapshot_id=1, outputs=outputs)
    store.begin(RUN)
    for rows in (1, 2):
        store.keep_run(make_record(group, table_uuid=PLAN.table_uuid).model_copy(update={"rows": rows}), [COMPACTED])
    run = store.run("r1")
    assert run is not None
    assert (run.outcome, run.finished_ms, run.record["rows"]) == ("done", 9, 2)
    assert store.row_groups(PLAN.table_uuid) == {outputs[0].path: 7}
    assert store.last_compactions(PLAN.table_uuid) == {Partition(0, "d=1"): 9}


def test_a_run_is_kept_wholly_or_not_at_all(store: StateStore) -> None:
    store.begin(RUN)
    store.written("r1", [RESULT])
    output = RESULT.outputs[0].model_copy(update={"row_groups": None})
    group = GroupRecord(group_id=0, state=GroupState.COMMITTED, reason="", snapshot_id=1)
    with pytest.raises(StateError, match=r"^Cannot write to state store "):
        store.keep_run(make_record(group.model_copy(update={"outputs": (output,)})), [COMPACTED])
    assert store.last_compactions(PLAN.table_uuid) == {}
    assert [run.groups[0].result for run in store.unfinished()] == [RESULT]


@pytest.mark.parametrize(
    ("table", "values", "unknown"),
    [
        ("runs", {"plan": {**JOURNALED_PLAN, "from_2030": 1}}, "plan.from_2030"),
        ("runs", {"plan": {**JOURNALED_PLAN, "policy": {**JOURNALED_PLAN["policy"], "x": 1}}}, "plan.policy.x"),
        ("runs", {"plan": {**JOURNALED_PLAN, "kind": "sculpt"}}, "plan.kind 'sculpt'"),
        ("runs", {"plan": {**JOURNALED_PLAN, "format_version": 99}}, "plan.format_version 99"),
        ("run_groups", {"result": {**RESULT.model_dump(mode="json"), "from_2030": 1}}, "groups.0.result.from_2030"),
        ("run_groups", {"state": "postponed"}, "groups.0.state 'postponed'"),
    ],
)
def test_a_journal_of_a_newer_version_is_refused_with_what_is_not_known(
    store: StateStore, table: str, values: dict[str, Any], unknown: str
) -> None:
    store.begin(RUN)
    from sqlalchemy import update

    with store._engine.begin() as connection:
        connection.execute(update(getattr(schema, table)).values(**values))
    for asked in (store.unfinished, lambda: take_over(store, gone=RUN.owner)):
        with pytest.raises(StateError) as caught:
            asked()
        assert str(caught.value) == (
            f"Cannot read the journal of run r1: it was written by a newer version of Neve (unknown: {unknown})"
        )
        assert caught.value.hint == "Upgrade Neve on this machine, or resume the run with the version that began it."
    with store._engine.connect() as connection:
        assert connection.execute(select(schema.runs.c.owner, schema.runs.c.token)).one() == (RUN.owner, RUN.token)


def test_a_journal_of_another_version_is_refused_with_the_name_of_its_run(store: StateStore) -> None:
    store.begin(RUN)
    from sqlalchemy import update

    with store._engine.begin() as connection:
        connection.execute(update(schema.runs).values(plan={"table": "x"}))
    message = r"^Cannot read the journal of run r1: it was written by another version of Neve$"
    with pytest.raises(StateError, match=message) as caught:
        store.unfinished()
    assert caught.value.hint == "Resume the run with the version that began it."


def test_a_journal_that_cannot_be_read_keeps_no_other_run_from_being_resumed_and_pins_its_snapshot(store: StateStore) -> None:
    store.begin(RUN)
    from sqlalchemy import update

    with store._engine.begin() as connection:
        connection.execute(update(schema.runs).values(plan={**JOURNALED_PLAN, "kind": "sculpt", "snapshot_id": 7}))
    store.begin(RUN.model_copy(update={"run_id": "s2"}))
    assert [run.run_id for run in store.unfinished("s2")] == ["s2"]
    assert store.planned_snapshots(PLAN.table_uuid) == {"r1": 7, "s2": PLAN.snapshot_id}
    assert store.planned_snapshots("another") == {}


def take_over(store: StateStore, owner: str = "other:2;id=b", **words: Any) -> JournaledRun:
    return store.take_over("r1", **{"owner": owner, "gone": None, "now_ms": 6, "lease_ms": LEASE_MS, **words})


def ended_heartbeat(store: StateStore) -> None:
    """As after minutes in which the owner did not renew it, whichever clock the store goes by."""
    from sqlalchemy import update

    with store._engine.begin() as connection:
        connection.execute(update(schema.runs).values(until_ms=1))


def test_a_run_whose_heartbeat_is_valid_is_not_taken_over_and_the_refusal_says_whose_it_is_and_until_when(
    store: StateStore,
) -> None:
    store.begin(RUN.model_copy(update={"owner": "host:1;boot=x;id=a"}))
    message = r"^Cannot resume run r1 over c\.db\.t: host:1 is at work on it, and its heartbeat is valid until \d{4}-.* UTC$"
    with pytest.raises(LeaseHeldError, match=message) as refused:
        take_over(store)
    assert "`neve resume r1` works once the heartbeat has ended" in str(refused.value.hint)
    store.written("r1", [RESULT])  # it is still the first one's
    assert store.unfinished()[0].token == 1


@pytest.mark.parametrize("how", ["expired", "gone", "paused"])
def test_the_former_owner_of_a_run_that_was_taken_over_writes_nothing_more(store: StateStore, how: str) -> None:
    first = store
    first.begin(RUN)
    first.written("r1", [RESULT])
    if how == "expired":
        ended_heartbeat(store)
    elif how == "paused":
        first.pause("r1")
    second = StateStore(store._engine)
    found = take_over(second, gone=RUN.owner if how == "gone" else None)
    assert (found.token, found.groups[0].result) == (2, RESULT)
    lost = r"^Cannot go on with run r1: other:2 has taken it over$"
    record = make_record(GroupRecord(group_id=0, state=GroupState.FAILED, reason=""), table_uuid=PLAN.table_uuid)
    writes: list[Callable[[], object]] = [
        lambda: first.written("r1", [RESULT]),
        lambda: first.settled("r1", {0: GroupState.FAILED}),
        lambda: first.redone("r1", {0: "elsewhere"}),
        lambda: first.keep_run(record, []),
    ]
    for write in writes:
        with pytest.raises(RunTakenOverError, match=lost):
            write()
    first.pause("r1")
    with pytest.raises(LeaseHeldError):
        take_over(StateStore(store._engine), owner="third:3")
    assert [(group.state, group.output_prefix) for group in second.unfinished()[0].groups] == [
        (GroupState.WRITTEN, RUN.groups[0].output_prefix)
    ]
    second.redone("r1", {0: "anew"})
    second.settled("r1", {0: GroupState.COMMITTED})
    second.keep_run(record, [])
    assert second.unfinished() == ()


def test_a_process_takes_its_own_run_over_again(store: StateStore) -> None:
    store.begin(RUN)
    assert take_over(store, owner=RUN.owner).token == 2
    store.written("r1", [RESULT])


def test_of_two_that_find_an_expired_run_one_takes_it_over(store: StateStore) -> None:
    store.begin(RUN)
    ended_heartbeat(store)
    take_over(store, owner="a:1")
    with pytest.raises(LeaseHeldError, match="a:1 is at work on it"):
        take_over(store, owner="b:1", gone=RUN.owner)


def test_a_run_that_has_ended_is_not_taken_over(store: StateStore) -> None:
    store.begin(RUN)
    store.finish_run("r1", finished_ms=9, outcome="done", record={})
    with pytest.raises(RunTakenOverError, match=r"^Cannot resume run r1: it has ended$"):
        take_over(store)


def test_a_run_that_this_process_neither_began_nor_took_over_is_not_written_to(store: StateStore) -> None:
    store.begin(RUN)
    with pytest.raises(RunTakenOverError, match=r"^Cannot go on with run r1: host:1 has taken it over$"):
        StateStore(store._engine).written("r1", [RESULT])


def test_renewing_a_lease_renews_the_heartbeat_of_its_run_and_fails_for_both_once_the_run_was_taken_over(
    store: StateStore,
) -> None:
    store.begin(RUN)
    lease = store.take_lease("t", run_id="r1", owner=RUN.owner, now_ms=5, lease_ms=LEASE_MS).lease
    ended_heartbeat(store)
    assert store.renew_lease("t", "r1", lease.token, now_ms=5, lease_ms=LEASE_MS)
    with pytest.raises(LeaseHeldError):
        take_over(StateStore(store._engine))
    ended_heartbeat(store)
    take_over(StateStore(store._engine))
    before = store.lease("t")
    assert not store.renew_lease("t", "r1", lease.token, now_ms=6, lease_ms=LEASE_MS)
    assert store.lease("t") == before


def test_a_run_of_an_older_release_has_no_heartbeat_and_is_taken_over(store: StateStore) -> None:
    from sqlalchemy import null, update

    store.begin(RUN)
    with store._engine.begin() as connection:
        connection.execute(update(schema.runs).values(until_ms=null()))
    assert take_over(StateStore(store._engine)).token == 2
