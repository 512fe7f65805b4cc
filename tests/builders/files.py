"""File columns with the few fields that a test names; the rest has plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from neve.table.files import DEFAULTS, SCHEMA, UNKNOWN, FileColumns, Partition
from neve.table.units import MIB


def make_files(rows: Sequence[dict[str, Any]], partitions: Sequence[str | Partition] = ("",)) -> FileColumns:
    """Files from the few fields a case names; the rest has plain values. A partition given as a text is of spec 0."""
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
        **DEFAULTS,
    }
    filled = [{"path": f"file-{i}.parquet", **plain, **row} for i, row in enumerate(rows)]
    columns = {name: [row[name] for row in filled] for name in SCHEMA.names}
    homes = tuple(Partition(0, home) if isinstance(home, str) else home for home in partitions)
    return FileColumns(table=pa.table(columns, schema=SCHEMA), partitions=homes)
