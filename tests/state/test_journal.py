"""The journal: what a run wrote down comes back as it was, from SQLite and from PostgreSQL, and from an upgraded store."""

from __future__ import annotations

from typing import Any

import pytest

from neve.core.files import Partition
from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.plan_words import Kernel
from neve.core.policy import Policy
from neve.core.record import GroupRecord, GroupState
from neve.core.work import Counted, Metrics, OutputFile, WorkResult
from neve.errors import StateError
from neve.flow.plan import plan
from neve.state import Run, StateStore, schema
from tests.core.make import make_files
from tests.flow.test_inspect import make_state
from tests.state.conftest import POSTGRES
from tests.state.make import make_record
from tests.state.old_stores import make_old_store

PLAN = plan(make_state(files=make_files([{"size_bytes": 1000} for _ in range(20)])), Policy(), now_ms=10**13)
RUN = JournaledRun(
    run_id="r1", owner="host:1", started_ms=5, plan=PLAN, groups=(JournaledGroup(group_id=0, output_prefix="/wh/data/neve-x"),)
)
RESULT = WorkResult(
    order_id="o",
    group_id=0,
    inputs_digest="d",
    kernel=Kernel.COPY,
    outputs=(
        OutputFile(
            path="/wh/data/neve-x-1.parquet",
            size_bytes=9,
            records=8,
            row_groups=7,
            split_offsets=(4,),
            metrics={1: Metrics(values=8, lower=b"\x00\xff")},
        ),
    ),
    rows_read=8,
    kept={1: Counted(values=8, nulls=0)},
    seconds=1.5,
    cpu_seconds=1.0,
    peak_memory_bytes=3,
)


def test_a_run_comes_back_as_it_was_begun(store: StateStore) -> None:
    store.begin(RUN)
    assert store.unfinished() == (RUN,)


def test_groups_come_back_with_their_results_and_states(store: StateStore) -> None:
    store.begin(RUN)
    store.written("r1", [RESULT])
    (group,) = store.unfinished()[0].groups
    assert (group.state, group.result) == (GroupState.WRITTEN, RESULT)
    store.settled("r1", {0: GroupState.COMMITTED})
    assert store.unfinished()[0].groups[0].state is GroupState.COMMITTED


def test_a_finished_run_is_not_unfinished(store: StateStore) -> None:
    store.begin(RUN)
    store.finish_run("r1", finished_ms=9, outcome="done", record={})
    assert store.unfinished() == ()


@pytest.mark.parametrize("version", ["0001", "0002"])
@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_an_older_store_is_upgraded_with_what_it_holds(url: str, version: str) -> None:
    make_old_store(url, version)
    with StateStore.open(url) as store:
        assert store.run("old") == Run("old", "t", "db.t", "compact", 1, 2, "done", {"a": 1})
        assert (store.row_groups("t"), store.last_compactions("t")) == ({"f": 3}, {Partition(0, "d=1"): 2})
        store.begin(RUN)
        assert store.unfinished() == (RUN,)
        assert store.take_lease("t", run_id="r1", owner="h:1", now_ms=1, until_ms=2).token == 1


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
        store.keep_run(make_record(group, table_uuid=PLAN.table_uuid).model_copy(update={"rows": rows}), [Partition(0, "d=1")])
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
        store.keep_run(make_record(group.model_copy(update={"outputs": (output,)})), [Partition(0, "d=1")])
    assert store.last_compactions(PLAN.table_uuid) == {}
    assert [run.groups[0].result for run in store.unfinished()] == [RESULT]


def test_a_journal_of_another_version_is_refused_with_the_name_of_its_run(store: StateStore) -> None:
    store.begin(RUN)
    from sqlalchemy import update

    with store._engine.begin() as connection:
        connection.execute(update(schema.runs).values(plan={"shape": "unknown"}))
    message = r"^Cannot read the journal of run r1: it was written by another version of neve$"
    with pytest.raises(StateError, match=message) as caught:
        store.unfinished()
    assert caught.value.hint == "Resume the run with the version that began it."
