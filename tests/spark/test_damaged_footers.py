"""Damaged footers on real tables: the group of a damaged file is refused and names it, outputs are opened before the commit."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import OpenedFile
from neve.spark.table.opening import FileIOSources
from neve.spark.table.opening import open_outputs as opened_now
from tests.builders.arrow_files import field, schema
from tests.builders.footer_mutations import Seed, Trial
from tests.builders.parquet_files import Struct, edited, other_kind, thrift
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.damaged")
    return Bench(spark, warehouse, "damaged", f"t{next(NUMBERS)}")


def two_partitions(bench: Bench, **properties: str) -> dict[str, list[str]]:
    """Two files in each of two partitions, by partition."""
    options = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items()) or "'a' = 'b'"
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ({options})")
    for start in (0, 10):
        bench.sql(
            f"INSERT INTO {{}} SELECT id, IF(id % 2 = 0, 'even', 'odd') FROM range({start}, {start + 10}, 1, 1) ORDER BY 2"
        )
    rows = bench.sql("SELECT partition.p AS p, file_path FROM {}.files").collect()
    return {name: sorted(row.file_path for row in rows if row.p == name) for name in ("even", "odd")}


def missing_required(data: bytes) -> bytes:
    """A footer that no reader opens: its number of rows is a flag."""

    def change(footer: Struct) -> None:
        footer[3] = (thrift.TRUE, b"")

    return edited(data, change)


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW, Kernel.SPARK])
def test_a_file_that_does_not_open_fails_its_group_alone_and_is_named(bench: Bench, kernel: Kernel) -> None:
    files = two_partitions(bench)
    damaged = files["odd"][0]
    whole = local(damaged).read_bytes()
    damage = other_kind if kernel is Kernel.SPARK else missing_required
    local(damaged).write_bytes(damage(whole))
    record = bench.compact(kernel)
    states = {group.partition: group.state for group in record.groups}
    assert sorted(states.values()) == [GroupState.COMMITTED, GroupState.FAILED]
    failed = next(group for group in record.groups if group.state is GroupState.FAILED)
    assert "odd" in str(failed.partition)
    assert f"Cannot read {damaged}: " in failed.reason

    # Nothing was lost: once the file is restored, every row is there.
    local(damaged).write_bytes(whole)
    assert sorted(row["id"] for row in bench.sql("SELECT id FROM {}").collect()) == list(range(20))


def test_what_iceberg_wrote_is_opened_by_pyarrow_before_the_commit(bench: Bench) -> None:
    two_partitions(bench)
    record = bench.compact(Kernel.SPARK)
    for group in record.groups:
        (output,) = group.outputs
        rows = pq.read_metadata(local(output.path))
        expected = OpenedFile(
            reader="pyarrow",
            size_bytes=local(output.path).stat().st_size,
            rows=rows.num_rows,
            row_groups=rows.num_row_groups,
            columns=rows.num_columns,
        )
        assert output.opened == expected
        assert group.proof is not None
        assert next(check for check in group.proof.checks if check.name == "outputs open").holds


@pytest.mark.parametrize(("form", "reader", "rows"), [("orc", "pyarrow", 10), ("avro", "its markers", None)])
def test_orc_and_avro_are_opened_too_and_a_file_that_is_damaged_or_gone_is_noticed(
    bench: Bench, form: str, reader: str, rows: int | None
) -> None:
    two_partitions(bench, **{"write.format.default": form})
    record = bench.compact(Kernel.SPARK)
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 2
    outputs = [output for group in record.groups for output in group.outputs]
    assert [(output.opened.reader, output.opened.rows) for output in outputs if output.opened] == [(reader, rows)] * 2
    (result, *_) = bench.engine.results
    stored = local(result.outputs[0].path)  # type: ignore[union-attr]
    stored.with_name(f".{stored.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum, which other storage does not have
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    damaged = opened_now(result, FileIOSources(bench.bridge.table))  # type: ignore[arg-type]
    assert (damaged.outputs[0].opened, damaged.outputs[1:]) == (None, ())
    assert "open" in damaged.outputs[0].not_opened or "end like" in damaged.outputs[0].not_opened
    stored.unlink()
    again = opened_now(result, FileIOSources(bench.bridge.table))  # type: ignore[arg-type]
    assert again.outputs[0].opened is None
    assert "Cannot open" in again.outputs[0].not_opened


def test_files_of_icebergs_writer_are_refused_or_change_nothing(bench: Bench) -> None:
    bench.sql("CREATE TABLE {} (id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>) USING iceberg")
    for start in (0, 40):
        columns = "id, IF(id % 7 = 0, NULL, concat('n', id % 5)), array('a', CAST(id AS STRING))"
        bench.sql(f"INSERT INTO {{}} SELECT {columns} FROM range({start}, {start + 40}, 1, 1)")
    first, second = (local(path).read_bytes() for path in sorted(bench.paths()))
    tags = {"type": "list", "element-id": 4, "element": "string", "element-required": False}
    of = schema(field(1, "id", "long", required=True), field(2, "name", "string"), field(3, "tags", tags))
    trial = Trial(Seed("spark", first, second, of))
    trial.run(range(150))
    assert trial.counts["copy accepted"] > 0
    assert trial.counts["unreadable"] > 50
