"""Tables to plan: a state for the planner, and files of one partition."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from neve.table.files import FileColumns
from neve.table.state import Column, Snapshot, TableState
from tests.builders.files import make_files
from tests.builders.table_states import make_state

NOW = 1000 * 86_400_000
OURS = 5
"""The snapshot that a run commits."""


def state_of(columns: FileColumns) -> TableState:
    snapshots = tuple(
        Snapshot(snapshot_id=i, parent_id=None, sequence_number=60, timestamp_ms=NOW - ago, operation=operation, summary={})
        for i, ago, operation in ((3, 10**9, "append"), (4, 10**6, "append"), (OURS, 0, "replace"))
    )
    fields = (Column(field_id=1, name="a", type="long"),)
    return make_state(files=columns, default_sort_order_id=0, snapshots=snapshots, refs=(), fields=fields)


def bounded(columns: FileColumns, ranges: list[tuple[int, int]]) -> FileColumns:
    """The files with the bounds of the column `a`: where its values begin in each, and how far they go from there."""
    lower, upper = ([int(value).to_bytes(8, "little", signed=True) for value in side] for side in zip(*ranges, strict=True))
    told = pa.table({"1.lower": pa.array(lower, pa.binary()), "1.upper": pa.array(upper, pa.binary())})
    return FileColumns(columns.table, columns.partitions, told)


def table(rows: list[dict[str, Any]]) -> TableState:
    ranges = [(begin, begin + width) for begin, width in (row.get("range", (0, 1000)) for row in rows)]
    columns = make_files(
        [{k: v for k, v in row.items() if k != "range"} for row in rows], partitions=[f"p={i}" for i in range(4)]
    )
    return state_of(bounded(columns, ranges) if ranges else columns)
