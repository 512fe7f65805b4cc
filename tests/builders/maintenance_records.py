"""Records of maintenance operations, as the commands show them."""

from __future__ import annotations

from typing import Any

from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.maintenance.expiry import ExpiryRecord, Setting
from neve.maintenance.orphans import OrphanRecord, Verdict
from neve.maintenance.prevention import PreventionRecord, PropertyChange, PropertyProposal
from neve.maintenance.quarantine import QuarantineRecord
from neve.maintenance.record import Operation
from neve.maintenance.retention import Keep
from neve.maintenance.ttl import TtlCounts, TtlRecord, TtlRule
from neve.rewrite.record import RunOutcome
from tests.builders.inspections import NOW_MS
from tests.builders.run_records import RUN_ID


def make_upkeep(**changes: Any) -> UpkeepRecord:
    """Two equality deletes that became three deletes by position."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Upkeep.CONVERT,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "snapshot_before": 11,
        "snapshots": (12,),
        "data_files": 3,
        "rows": 1200,
        "deletes_before": 10,
        "equality_before": 3,
        "deletes_removed": 4,
        "equality_removed": 2,
    }
    return UpkeepRecord(**values | changes)


def make_expiry(**changes: Any) -> ExpiryRecord:
    """Two of five snapshots that went."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Operation.EXPIRE,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "snapshots_before": 5,
        "expired": (11, 12),
        "kept": {Keep.HEAD: 2, Keep.AGE: 1},
        "settings": (
            Setting(key="snapshot-keep", value="7 days", origin="default"),
            Setting(key="snapshot-min-count", value="3", origin="table property history.expire.min-snapshots-to-keep"),
            Setting(key="snapshot-limit", value="10000", origin="default"),
        ),
        "files": {"data file of expired snapshots": 20, "manifest of expired snapshots": 2},
        "size_bytes": 3 * 1024**2,
        "recorded": 21,
    }
    return ExpiryRecord(**values | changes)


def make_orphans(**changes: Any) -> OrphanRecord:
    """A run that recorded two of three orphans."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Operation.ORPHANS,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "location": "s3://lake/db/events",
        "older_than_seconds": 3 * 86400,
        "listed": 1204,
        "verdicts": {
            Verdict.IN_USE: 1190,
            Verdict.ORPHAN: 3,
            Verdict.FRESH: 4,
            Verdict.RUNNING: 2,
            Verdict.PROTECTED: 5,
        },
        "orphan_bytes": 3 * 1024**2,
        "taken": 2,
        "limited": True,
    }
    return OrphanRecord(**values | changes)


CHANGES = (
    PropertyChange(key="write.target-file-size-bytes", before=None, value="134217728", reason="one size"),
    PropertyChange(key="write.distribution-mode", before="none", value="hash", reason="40 files"),
)


def make_prevention(**changes: Any) -> PreventionRecord:
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Operation.PREVENT,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS,
        "proposal": PropertyProposal(changes=CHANGES, advice=("Commit less often",), warnings=("8,192 are few",)),
    }
    return PreventionRecord(**values | changes)


def make_record(**changes: Any) -> QuarantineRecord:
    """Two files of 3 MB that went to the trash, one that stayed."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Operation.SETTLE,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "files": 2,
        "size_bytes": 3 * 1024**2,
        "needed": 1,
        "runs": ("0123456789abcdef",),
    }
    return QuarantineRecord(**values | changes)


def make_ttl(**changes: Any) -> TtlRecord:
    """Two files go as a whole, and 20 rows out of 3 others."""
    counts = TtlCounts(files_dropped=2, rows_dropped=1200, bytes_dropped=2048, files_touched=3, rows_deleted=20)
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "table": "local.db.events",
        "table_uuid": "u",
        "operation": Operation.TTL,
        "outcome": RunOutcome.DONE,
        "started_ms": NOW_MS,
        "finished_ms": NOW_MS + 2400,
        "snapshot_before": 11,
        "snapshots": (12, 13),
        "rule": TtlRule(column="ts", field_id=1, type="timestamptz", keep_seconds=30 * 86_400),
        "cutoff_ms": NOW_MS - 30 * 86_400_000,
        "counts": counts,
        "previewed_by": "before",
        "files": ("/a", "/b"),
    }
    return TtlRecord(**values | changes)
