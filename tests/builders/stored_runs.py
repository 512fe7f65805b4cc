"""Runs for the state store: a plan, a journaled run, a result and the record of a finished run."""

from __future__ import annotations

from neve.policy.model import Policy
from neve.rewrite.group import Kernel
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.planner import plan
from neve.rewrite.record import GroupRecord, RunOutcome, RunRecord
from neve.rewrite.work_order import Counted, Metrics, OutputFile, WorkResult
from neve.state import Run, StateStore, StoredOutput, pruning
from neve.state.rows import Pruned
from neve.table.files import Partition
from tests.builders.files import make_files
from tests.builders.table_states import make_state


def make_record(*groups: GroupRecord, run_id: str = "r1", table_uuid: str = "t", finished_ms: int = 9) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        table="lake.db.t",
        table_uuid=table_uuid,
        outcome=RunOutcome.DONE,
        empty_reason=None,
        started_ms=1,
        finished_ms=finished_ms,
        snapshot_before=1,
        snapshots=(2,),
        groups=groups,
        files_compacted=0,
        files_written=0,
        bytes_read=0,
        bytes_written=0,
        rows=0,
        kernels={},
    )


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


def add_run(store: StateStore, run_id: str, ended: int | None, *partitions: Partition, table: str = "t") -> None:
    """A run that wrote one file and compacted these partitions; it is still under way if it has no end."""
    store.start_run(Run(run_id, table, "db.t", "compact", 1))
    output = StoredOutput(path=f"{run_id}.parquet", row_groups=3, bytes=1, rows=1)
    store.add_commit(run_id, partitions=partitions, outputs=[output], committed_ms=ended or 1)
    if ended is not None:
        store.finish_run(run_id, finished_ms=ended, outcome="done", record={"of": run_id})


def prune(store: StateStore, before_ms: int, **options: bool) -> Pruned:
    return pruning.prune(store._engine, before_ms, **options)


def run_ids(store: StateStore) -> set[str]:
    return {run.run_id for run in store.runs()}
