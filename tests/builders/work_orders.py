"""Work orders over Parquet files on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from neve.rewrite.group import Kernel
from neve.rewrite.work_order import InputFile, WorkOrder, WriteSettings
from tests.builders.arrow_files import field, schema
from tests.builders.parquet_files import make_file, sample_table

TABLE_SCHEMA = schema(field(1, "id", "long", required=True), field(2, "name", "string"), field(3, "amount", "double"))
TINY_CHUNKS = WriteSettings(min_chunk_bytes=0)


def make_order(directory: Path, tables: list[pa.Table], **changes: Any) -> WorkOrder:
    inputs = []
    for number, table in enumerate(tables):
        path = directory / "in" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(make_file(table))
        inputs.append(InputFile(path=str(path), size_bytes=path.stat().st_size, records=table.num_rows))
    plain: dict[str, Any] = {
        "order_id": "o",
        "group_id": 7,
        "kernels": (Kernel.COPY, Kernel.ARROW),
        "inputs": tuple(inputs),
        "table_schema": TABLE_SCHEMA,
        "output_prefix": str(directory / "out" / "neve-1"),
        "write": TINY_CHUNKS,
    }
    return WorkOrder(**plain | changes)


def two_files() -> list[pa.Table]:
    return [sample_table(100), sample_table(50, start=100)]


def written(directory: Path) -> list[str]:
    """Everything in the output directory, files under temporary names included."""
    return sorted(path.name for path in (directory / "out").rglob("*")) if (directory / "out").exists() else []
