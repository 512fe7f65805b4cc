"""States of a table with snapshots, as a catalog reader returns them."""

from __future__ import annotations

from neve.table.state import (
    PartitionField,
    PartitionSpec,
    Ref,
    RefKind,
    Snapshot,
    SortOrder,
    TableName,
    TableState,
)
from neve.table.units import MIB

DAY = 86_400_000
NOW = 100 * DAY


def snapshot(snapshot_id: int, age_days: float, **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_id=None,
        sequence_number=snapshot_id,
        timestamp_ms=int(NOW - age_days * DAY),
        operation="append",
        summary={key.replace("_", "-"): value for key, value in summary.items()},
    )


def make_state(**changes: object) -> TableState:
    totals = {"total_data_files": "10", "total_files_size": str(10 * MIB), "total_records": "1000", "total_delete_files": "3"}
    plain = {
        "name": TableName(catalog="c", namespace=("db",), name="t"),
        "uuid": "u",
        "format_version": 2,
        "location": "/wh/db/t",
        "metadata_location": "/wh/db/t/metadata/v1.json",
        "metadata_bytes": 5000,
        "metadata_log_entries": 2,
        "properties": {},
        "schema_id": 0,
        "columns": 4,
        "specs": (PartitionSpec(spec_id=0, fields=(PartitionField(name="day", transform="day", source_id=1, field_id=1000),)),),
        "default_spec_id": 0,
        "sort_orders": (SortOrder(order_id=1, fields=("id asc nulls-first",)),),
        "default_sort_order_id": 1,
        "snapshot_id": 3,
        "snapshots": (snapshot(1, 30), snapshot(2, 20), snapshot(3, 0.1, **totals, total_position_deletes="10")),
        "refs": (Ref(name="main", kind=RefKind.BRANCH, snapshot_id=3), Ref(name="keep", kind=RefKind.TAG, snapshot_id=1)),
        "statistics_files": 0,
    }
    return TableState(**plain | changes)
