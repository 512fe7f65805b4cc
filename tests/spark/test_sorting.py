"""Rows laid out by Spark: in order within files and from file to file as DuckDB reads them, by every type and transform."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from neve.rewrite.group import Kernel
from neve.rewrite.record import RunOutcome
from neve.rewrite.work_order import FailedOrder, InputFile, WorkOrder, WorkResult, WriteSettings
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks import sorting
from neve.spark.tasks.rewrite import SparkEngine
from neve.spark.tasks.sorting import Sorter
from neve.spark.tasks.spark_kernel import SparkKernel
from neve.table.layout import Layout, LayoutKind, SortField, sorted_by
from neve.table.state import TableName
from tests.builders.contexts import FakeContext
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import data_files, duckdb_query, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000
EVERY_TYPE = f"""SELECT id,
    IF(r < 3, NULL, r % 2 = 0) AS boolean,
    IF(r < 3, NULL, CAST(r * 7919 - 40000 AS INT)) AS int,
    IF(r < 3, NULL, (r - 5) * 1000000007000) AS long,
    CASE WHEN r < 3 THEN NULL WHEN r = 3 THEN float('nan') WHEN r = 4 THEN float('-inf') ELSE CAST((r - 6) / 3 AS FLOAT) END
        AS float,
    CASE WHEN r < 3 THEN NULL WHEN r = 3 THEN double('nan') WHEN r = 4 THEN double('inf') WHEN r = 5 THEN -0.0D
        ELSE (r - 6) / 7.0D END AS double,
    IF(r < 3, NULL, CAST(r / 8 - 1 AS DECIMAL(9, 2))) AS decimal,
    IF(r < 3, NULL, CAST(r - 8 AS DECIMAL(38, 10)) * 100000000000000000) AS wide,
    IF(r < 3, NULL, date_add(DATE '1969-12-20', CAST(r AS INT))) AS date,
    IF(r < 3, NULL, timestamp_micros((r - 9) * 3600123457)) AS timestamp,
    IF(r < 3, NULL, TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, (r - 9) * 3600.123457)) AS naive,
    IF(r < 3, NULL, concat(repeat('user_', CAST(r % 3 AS INT)), IF(r = 7, '''', IF(r = 8, 'é', CAST(r * 31 AS STRING)))))
        AS string,
    IF(r < 3, NULL, unhex(repeat(hex(r * 37), CAST(r % 2 AS INT) + 1))) AS binary,
    IF(r = 0, NULL, named_struct('leaf', IF(r < 3, NULL, r))) AS nest
    FROM (SELECT id, pmod(hash(id), 40) AS r FROM range(0, {ROWS}, 1, 4))"""
TYPES: tuple[str, ...] = ("boolean", "int", "long", "float", "double", "decimal", "wide", "date", "timestamp", "naive")
TYPES += ("string", "binary", "nest.leaf")


@dataclass
class Arranging:
    """An engine whose orders have a layout, as if the plan had asked for it, and small files."""

    engine: SparkEngine
    layout: Layout
    target_bytes: int

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        write = [order.write.model_copy(update={"target_bytes": self.target_bytes}) for order in orders]
        changed = [
            order.model_copy(update={"layout": self.layout, "write": settings})
            for order, settings in zip(orders, write, strict=True)
        ]
        return self.engine.run(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@dataclass
class LaidOut(Bench):
    """A table that is compacted into a layout, several files for each partition."""

    layout: Layout = field(default_factory=lambda: Layout.parse("id"))
    target_bytes: int = 10_000

    def _tools(self, *args: Any) -> FakeContext:
        tools = super()._tools(*args)
        self.engine.engine = Arranging(self.engine.engine, self.layout, self.target_bytes)  # type: ignore[assignment]
        return tools

    def run(self, layout: Layout | str, *, files: int = 4) -> WorkResult:
        """What the kernel makes of all files of the table, without a commit."""
        name = TableName(catalog="local", namespace=(self.namespace,), name=self.name)
        bridge = TableBridge(self.spark, name)
        head = bridge.head()
        assert head is not None
        inputs = [InputFile(path=file.path, size_bytes=file.size_bytes, records=file.records) for file in bridge.scan(head)]
        order = WorkOrder(
            order_id="o",
            group_id=0,
            kernels=(Kernel.SPARK,),
            inputs=tuple(inputs),
            table_schema=bridge.schema_json(),
            output_prefix="unused",
            write=WriteSettings(codec="uncompressed", target_bytes=math.ceil(sum(file.size_bytes for file in inputs) / files)),
            layout=Layout.parse(layout) if isinstance(layout, str) else layout,
        )
        return SparkKernel(self.spark, bridge, head).run(order, ())


def files_of(result: WorkResult) -> list[str]:
    """In the order in which they were cut: names begin with the number of the task."""
    return sorted((str(local(output.path)) for output in result.outputs), key=lambda path: Path(path).name)


def column(result: WorkResult, name: str) -> list[list[Any]]:
    """A column of each file as DuckDB reads it, in the order of its rows."""
    query = "SELECT {} AS x FROM read_parquet('{}', file_row_number=true) ORDER BY file_row_number"
    return [[row["x"] for row in duckdb_query(query.format(quoted(name), path))] for path in files_of(result)]


def ordered(result: WorkResult, by: str) -> list[Any]:
    """All rows in DuckDB's own order."""
    name, words = quoted(by.split()[0]), " ".join(by.split()[1:])
    query = f"SELECT {name} AS x FROM read_parquet({files_of(result)}) ORDER BY {name} {words}"
    return [row["x"] for row in duckdb_query(query)]


def quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


def plain(values: Sequence[Any]) -> list[str]:
    """NaN equals itself, and -0.0 equals 0.0."""
    return [repr(value + 0.0 if isinstance(value, float) else value) for value in values]


def made(
    spark: SparkSession, warehouse: Path, name: str, rows: str, *, partitioned: str = "", properties: Sequence[str] = ()
) -> LaidOut:
    """A table of these rows. Nothing is compressed, since Iceberg's writer judges small files by what it has not compressed."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.laid")
    bench = LaidOut(spark, warehouse, "laid", name)
    spark.sql(f"DROP TABLE IF EXISTS {bench.sql_name} PURGE")
    said = ", ".join(["'write.parquet.compression-codec' = 'uncompressed'", *properties])
    bench.sql(f"CREATE TABLE {{}} USING iceberg {partitioned} TBLPROPERTIES ({said}) AS {rows}")
    return bench


@pytest.fixture(scope="module")
def types(spark: SparkSession, warehouse: Path) -> LaidOut:
    return made(spark, warehouse, "types", EVERY_TYPE)


@pytest.fixture(scope="module")
def random(spark: SparkSession, warehouse: Path) -> LaidOut:
    """Text that shares its beginning, and a number of which most values are small."""
    rows = """SELECT concat('customer-', lpad(CAST(CAST(rand(1) * 1000000 AS INT) AS STRING), 7, '0')) AS name,
        CAST(exp(rand(2) * 16) AS BIGINT) AS amount, rand(3) AS share, id FROM range(0, 20000, 1, 4)"""
    return made(spark, warehouse, "random", rows)


@pytest.mark.parametrize("words", ["asc nulls first", "desc nulls last"])
@pytest.mark.parametrize("name", TYPES)
def test_rows_ascend_or_descend_from_file_to_file(types: LaidOut, name: str, words: str) -> None:
    result = types.run(f"sort({name} {words})")

    files = column(result, name)
    assert len(files) == 4
    assert plain(list(chain(*files))) == plain(ordered(result, f"{name} {words}"))
    assert sum(map(len, files)) == result.rows_read == ROWS


@pytest.mark.parametrize("words", ["asc nulls last", "desc nulls first"])
def test_nulls_stand_where_they_were_asked_for(types: LaidOut, words: str) -> None:
    result = types.run(f"sort(string {words}, id desc)")

    rows = list(zip(chain(*column(result, "string")), chain(*column(result, "id")), strict=True))
    wanted = duckdb_query(f"SELECT string, id FROM read_parquet({files_of(result)}) ORDER BY string {words}, id DESC")
    assert rows == [(row["string"], row["id"]) for row in wanted]


def test_a_bucket_is_sorted_by_before_what_is_in_it(types: LaidOut) -> None:
    result = types.run("sort(bucket[5](id), truncate[6](string) desc, int)")

    bucket = BucketTransform(5).transform(LongType())
    rows = zip(*(chain(*column(result, name)) for name in ("id", "string", "int")), strict=True)
    keys = [
        (bucket(i), text is None, [*(-ord(c) for c in (text or "")[:6]), 1], number or -(10**6)) for i, text, number in rows
    ]
    assert keys == sorted(keys)
    assert len(result.outputs) == 4


@pytest.mark.parametrize(("transform", "form"), [("year", "%Y"), ("month", "%Y-%m"), ("day", "%Y-%m-%d"), ("hour", "%F %H")])
@pytest.mark.parametrize("name", ["timestamp", "naive"])
def test_times_are_sorted_by_their_parts_in_utc(types: LaidOut, transform: str, form: str, name: str) -> None:
    result = types.run(f"sort({transform}({name}), id)")

    times, ids = list(chain(*column(result, name))), list(chain(*column(result, "id")))
    keys = [("" if time is None else time.strftime(form), i) for time, i in zip(times, ids, strict=True)]
    assert keys == sorted(keys)


def test_a_key_that_half_of_all_rows_have_is_shared_by_several_files(spark: SparkSession, warehouse: Path) -> None:
    rows = "SELECT IF(id % 2 = 0, 500, pmod(hash(id), 1000)) AS k, id, rand(1) AS noise FROM range(0, 20000, 1, 4)"
    bench = made(spark, warehouse, "skewed", rows)

    result = bench.run("sort(k)", files=10)

    files = column(result, "k")
    assert len(files) == 10
    assert max(map(len, files)) < 1.5 * 20_000 / 10
    assert sum(len(set(keys)) == 1 for keys in files) >= 3
    assert all(before[-1] <= after[0] for before, after in pairwise(files))


def test_a_file_ends_between_two_keys_where_that_is_near(spark: SparkSession, warehouse: Path) -> None:
    bench = made(spark, warehouse, "days", "SELECT CAST(id % 50 AS INT) AS k, rand(1) AS noise FROM range(0, 20000, 1, 4)")

    files = column(bench.run("sort(k)", files=5), "k")

    assert [(keys[0], keys[-1]) for keys in files] == [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]


@pytest.mark.parametrize("text", ["sort(name)", "hilbert(name, amount)"])
def test_a_file_too_large_to_sort_at_once_is_sorted_in_parts(
    random: LaidOut, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sorting, "PART_BYTES", 100_000)
    parts: list[int] = []
    numbers = Sorter._numbers
    monkeypatch.setattr(Sorter, "_numbers", lambda self, count: parts.append(count) or numbers(self, count))

    result = random.run(text, files=3)

    assert parts[0] >= 9
    assert len(result.outputs) == 3
    assert sum(output.records for output in result.outputs) == 20_000
    if text == "sort(name)":
        assert list(chain(*column(result, "name"))) == ordered(result, "name")


def test_a_session_without_icebergs_extensions_sorts_each_file_at_once(
    random: LaidOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "PART_BYTES", 100_000)
    monkeypatch.setattr(Sorter, "_can_gather", False)

    result = random.run("sort(share desc)", files=3)

    assert list(chain(*column(result, "share"))) == ordered(result, "share desc")
    assert len(result.outputs) == 3


def test_void_is_no_order(random: LaidOut) -> None:
    kept = random.run("sort(void(amount))", files=3)
    assert sum(output.records for output in kept.outputs) == 20_000


def test_few_rows_make_one_file_without_a_shuffle(random: LaidOut) -> None:
    result = random.run("sort(amount desc, name)", files=1)

    (amounts,) = column(result, "amount")
    assert amounts == sorted(amounts, reverse=True)


def touched(files: Sequence[str]) -> dict[str, float]:
    """The share of files whose ranges, as DuckDB reads them, hold one value, and that hold one of both columns."""
    query = "SELECT min(name), max(name), min(amount), max(amount) FROM read_parquet('{}')"
    ranges = [tuple(duckdb_query(query.format(path))[0].values()) for path in files]
    random, found = np.random.default_rng(3), []
    for _ in range(200):
        name, amount = f"customer-{random.integers(1_000_000):07}", int(np.exp(random.random() * 16))
        found += [(low <= name <= high, least <= amount <= most) for low, high, least, most in ranges]
    names, amounts = np.array(found).T
    return {"name": names.mean(), "amount": amounts.mean(), "both": (names & amounts).mean()}


@pytest.fixture(scope="module")
def icebergs(random: LaidOut) -> dict[str, float]:
    """What Iceberg's own z-order lets queries skip, with as many files."""
    random.spark.sql("DROP TABLE IF EXISTS local.laid.theirs PURGE")
    random.sql("CREATE TABLE local.laid.theirs USING iceberg AS SELECT * FROM {}")
    size = sum(output.file_size_in_bytes for output in data_files(random.load()))
    options = f"'rewrite-all', 'true', 'target-file-size-bytes', '{size // 16}', 'max-file-size-bytes', '{size // 8}'"
    random.spark.sql(
        "CALL local.system.rewrite_data_files(table => 'laid.theirs', strategy => 'sort', "
        f"sort_order => 'zorder(name, amount)', options => map({options}))"
    ).collect()
    files = [str(local(row.file_path)) for row in random.spark.sql("SELECT file_path FROM local.laid.theirs.files").collect()]
    assert 12 <= len(files) <= 20
    return touched(files)


@pytest.mark.parametrize("way", ["arrow", "sql"])
@pytest.mark.parametrize("kind", ["z-order", "hilbert"])
def test_a_curve_lets_queries_skip_more_than_icebergs_z_order(
    random: LaidOut, icebergs: dict[str, float], monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    if way == "sql":
        monkeypatch.setattr(Sorter, "_has_arrow", False)

    result = random.run(f"{kind}(name, amount)", files=16)

    assert len(result.outputs) == 16
    assert max(output.records for output in result.outputs) < 1.3 * 20_000 / 16
    ours = touched(files_of(result))
    assert icebergs["name"] > 0.9  # it compares eight bytes, and the names begin alike
    assert ours["name"] + ours["amount"] < 0.6 * (icebergs["name"] + icebergs["amount"])
    assert max(ours["name"], ours["amount"]) < 0.3
    assert ours["both"] < 1.2 / 16


def test_curves_go_through_columns_of_every_type(types: LaidOut) -> None:
    for names in ("boolean, int, long", "float, double, decimal", "wide, date, timestamp", "naive, string, binary, nest.leaf"):
        result = types.run(f"hilbert({names})")
        assert sum(output.records for output in result.outputs) == ROWS
        assert 3 <= len(result.outputs) <= 5


def test_sql_curves_go_through_columns_of_every_type(types: LaidOut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sorter, "_has_arrow", False)
    for names in ("boolean, int, long", "float, double, decimal", "wide, date, timestamp", "naive, string, binary, nest.leaf"):
        result = types.run(f"z-order({names})")
        assert sum(output.records for output in result.outputs) == ROWS
        assert 3 <= len(result.outputs) <= 5


def test_only_files_in_the_tables_order_are_recorded_as_sorted(spark: SparkSession, warehouse: Path) -> None:
    bench = made(spark, warehouse, "recorded", "SELECT id, md5(CAST(id AS STRING)) AS word FROM range(0, 4000, 1, 4)")
    bench.sql("ALTER TABLE {} WRITE ORDERED BY word DESC NULLS LAST")
    before = bench.duckdb()
    for layout, recorded in (
        (sorted_by(1, ("word desc nulls-last",)), 1),
        (Layout.parse("hilbert(word, id)"), 0),
        (Layout.parse("sort(id)"), 0),
    ):
        bench.layout, bench.target_bytes = layout, 20_000

        record = bench.compact(Kernel.SPARK)

        assert record.outcome is RunOutcome.DONE, record.groups
        files = data_files(bench.load())
        assert len(files) > 3
        assert {file.sort_order_id for file in files} == {recorded}
        assert bench.duckdb() == before


def test_partitions_are_laid_out_each_for_itself(spark: SparkSession, warehouse: Path) -> None:
    rows = "SELECT id, CAST(id % 3 AS INT) AS p, hash(id) AS word FROM range(0, 6000, 1, 2)"
    bench = made(spark, warehouse, "parted", rows, partitioned="PARTITIONED BY (p)")
    bench.layout = Layout.parse("sort(word)")
    before = bench.duckdb()

    record = bench.compact(Kernel.SPARK)

    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.duckdb() == before
    word = bench.load().schema().find_field("word")
    for p in range(3):
        files = [file for file in data_files(bench.load()) if file.partition[0] == p]
        bounds = ((file.lower_bounds[word.field_id], file.upper_bounds[word.field_id]) for file in files)
        ranges = sorted((from_bytes(word.field_type, low), from_bytes(word.field_type, high)) for low, high in bounds)
        assert len(ranges) > 1
        assert all(one[1] <= next_one[0] for one, next_one in pairwise(ranges))


@pytest.mark.parametrize("text", ["sort(word)", "z-order(word, id)"])
def test_lineage_goes_with_its_rows_and_deleted_rows_stay_away(spark: SparkSession, warehouse: Path, text: str) -> None:
    properties = ("'format-version' = '3'", "'write.delete.mode' = 'merge-on-read'")
    rows = "SELECT id, md5(CAST(id AS STRING)) AS word FROM range(0, 4000, 1, 4)"
    bench = made(spark, warehouse, "lineage", rows, properties=properties)
    bench.sql("INSERT INTO {} SELECT id, md5(CAST(id AS STRING)) FROM range(4000, 5000, 1, 1)")
    bench.sql("DELETE FROM {} WHERE id % 7 = 3")
    bench.layout, bench.target_bytes = Layout.parse(text), 20_000
    everything = "_row_id, _last_updated_sequence_number, *"
    before = bench.rows(everything)

    record = bench.compact(Kernel.SPARK)

    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.rows(everything) == before
    assert len(bench.paths()) > 3
    assert not bench.deletes()


def test_nothing_is_written_where_no_row_is_left(spark: SparkSession, warehouse: Path) -> None:
    bench = made(spark, warehouse, "gone", "SELECT id, id % 5 AS k FROM range(100)")
    bench.delete_equal(*range(100))

    for text in ("sort(k)", "hilbert(k, id)"):
        result = bench.run(text)
        assert (result.outputs, result.rows_read, result.rows_dropped) == ((), 100, 100)


def test_a_column_may_have_any_name(spark: SparkSession, warehouse: Path) -> None:
    bench = made(spark, warehouse, "named", "SELECT hash(id) AS `odd ``name`, id FROM range(0, 1000, 1, 2)")
    layout = Layout(kind=LayoutKind.SORT, fields=(SortField(name="odd `name"),))

    result = bench.run(layout, files=2)

    values = list(chain(*column(result, "odd_x20_x60name")))  # as Iceberg spells it in files
    assert values == sorted(values)
    assert len(result.outputs) == 2
