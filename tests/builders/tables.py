"""A table's metadata as a reader returns it; a test names the fields that it is about."""

from __future__ import annotations

from typing import Any

from neve.table.state import Column, PartitionField, PartitionSpec, Snapshot, TableName, TableState

BY_DAY = PartitionSpec(spec_id=0, fields=(PartitionField(name="day", transform="day", source_id=1, field_id=1000),))


def make_snapshot(number: int, *, parent: int | None = None, at: int = 0, operation: str = "append", **counts: int) -> Snapshot:
    summary = {key.replace("_", "-"): str(value) for key, value in counts.items()}
    return Snapshot(
        snapshot_id=number, parent_id=parent, sequence_number=number, timestamp_ms=at, operation=operation, summary=summary
    )


def make_table(**changes: Any) -> TableState:
    """Partitioned by day, without a snapshot."""
    plain: dict[str, Any] = {
        "name": TableName(catalog="c", namespace=("db",), name="t"),
        "uuid": "u",
        "format_version": 2,
        "location": "/wh/db/t",
        "metadata_location": "/wh/db/t/metadata/v1.json",
        "metadata_bytes": 5000,
        "metadata_log_entries": 2,
        "properties": {},
        "schema_id": 0,
        "columns": 3,
        "fields": (
            Column(field_id=1, name="ts", type="timestamp"),
            Column(field_id=2, name="city", type="string"),
            Column(field_id=3, name="amount", type="long"),
        ),
        "specs": (BY_DAY,),
        "default_spec_id": 0,
        "sort_orders": (),
        "default_sort_order_id": 0,
        "snapshot_id": None,
        "snapshots": (),
        "refs": (),
        "statistics_files": 0,
    }
    return TableState(**plain | changes)
