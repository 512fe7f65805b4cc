"""Small tables of ids in files of ten rows, and what concurrent writers do to them."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from neve.rewrite.record import GroupState, RunRecord
from tests.builders.spark_deletes import MERGE_ON_READ
from tests.builders.spark_tables import Bench

ROWS = list(range(30))


def filled(bench: Bench) -> Bench:
    """Format v2: three files, of which `bench.inputs` are the first two. Written by pyiceberg, which takes no time."""
    merge_on_read = dict(pair.split(" = ") for pair in MERGE_ON_READ.replace("'", "").split(", "))
    with closing(bench.catalog()) as catalog:
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        table = catalog.create_table((bench.namespace, bench.name), schema, properties={"format-version": "2"} | merge_on_read)
        for start in (0, 10, 20):
            table.append(pa.table({"id": pa.array(range(start, start + 10), pa.int64())}))
            if start == 10:
                bench.inputs = set(table.inspect.data_files()["file_path"].to_pylist())
    return bench


def filled_v3(bench: Bench) -> Bench:
    """The same in format v3, which Spark writes."""
    bench.sql(f"CREATE TABLE {{}} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})")
    for start in (0, 10, 20):
        append(bench, start)
        if start == 10:
            bench.inputs = bench.paths()
    return bench


def append(bench: Bench, start: int, rows: int = 10) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + rows}, 1, 1)")


def without_ids(*gone: int) -> list[int]:
    return [i for i in ROWS if i not in gone]


def states(record: RunRecord) -> list[GroupState]:
    return [group.state for group in record.groups]
