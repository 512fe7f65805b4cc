"""Records of compaction runs for the tests of every surface: done, partly done, failed, and with nothing to do."""

from __future__ import annotations

from typing import Any

from neve.health.condition import Condition
from neve.rewrite.group import Kernel
from neve.rewrite.proof import Check, Proof
from neve.rewrite.record import GroupRecord, GroupState, RunOutcome, RunRecord
from neve.table.units import KIB, MIB
from tests.builders.inspections import NOW_MS

RUN_ID = "3f9c0a1b2c3d4e5f60718293a4b5c6d7"


def make_group(group_id: int = 0, **changes: Any) -> GroupRecord:
    """A group that landed, with its proof."""
    values: dict[str, Any] = {
        "group_id": group_id,
        "state": GroupState.COMMITTED,
        "reason": "committed in snapshot 12",
        "kernel": Kernel.COPY,
        "proof": Proof(group_id=group_id, checks=(Check(name="rows written", holds=True, detail="500, expected 500"),)),
        "snapshot_id": 12,
    }
    return GroupRecord(**values | changes)


def make_record(*groups: GroupRecord, **changes: Any) -> RunRecord:
    """A run of 2.4 seconds over the sick table."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "outcome": RunOutcome.DONE,
        "empty_reason": None,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "snapshot_before": 11,
        "snapshots": (12,),
        "groups": groups or (make_group(0), make_group(1)),
        "files_compacted": 250,
        "files_written": 5,
        "bytes_read": 10 * MIB,
        "bytes_written": 9 * MIB,
        "rows": 10_000,
        "kernels": {Kernel.COPY: 2},
    }
    return RunRecord(**values | changes)


def make_empty_record(reason: str = "the table has no data") -> RunRecord:
    """A run that found nothing worth doing."""
    nothing = {"files_compacted": 0, "files_written": 0, "bytes_read": 0, "bytes_written": 0, "rows": 0, "kernels": {}}
    outcome = RunOutcome.NOTHING_TO_DO
    return (
        make_record()
        .model_copy(
            update={"outcome": outcome, "empty_reason": reason, "groups": (), "snapshots": (), "finished_ms": NOW_MS, **nothing}
        )
        .unrecorded()
    )


BEFORE = Condition(
    snapshot_id=11,
    data_files=255,
    data_bytes=12 * MIB,
    average_file_bytes=48 * KIB,
    small_files=252,
    delete_files=3,
    health=61,
)
AFTER = Condition(
    snapshot_id=12,
    data_files=10,
    data_bytes=11 * MIB,
    average_file_bytes=1.1 * MIB,
    small_files=7,
    delete_files=0,
    health=95,
)


def make_whole_record(record: RunRecord | None = None) -> RunRecord:
    """The run with the table before and after it."""
    return (record or make_record()).between(BEFORE, AFTER)
