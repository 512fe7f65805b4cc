"""Records of runs, as a test of the store needs them."""

from __future__ import annotations

from neve.rewrite.record import GroupRecord, RunOutcome, RunRecord


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
