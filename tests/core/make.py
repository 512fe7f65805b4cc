"""Factories for the values that core works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from neve.core.files import SCHEMA, UNKNOWN, FileColumns, Partition
from neve.core.units import MIB


def make_files(rows: Sequence[dict[str, Any]], partitions: Sequence[str] = ("",)) -> FileColumns:
    """Files from the few fields a case names; the rest has plain values."""
    plain = {
        "content": 0,
        "format": "parquet",
        "partition": 0,
        "size_bytes": MIB,
        "records": 100,
        "row_groups": UNKNOWN,
        "sort_order_id": UNKNOWN,
        "sequence_number": 1,
        "snapshot_id": 1,
    }
    filled = [{"path": f"file-{i}.parquet", **plain, **row} for i, row in enumerate(rows)]
    columns = {name: [row[name] for row in filled] for name in SCHEMA.names}
    return FileColumns(table=pa.table(columns, schema=SCHEMA), partitions=tuple(Partition(0, path) for path in partitions))
