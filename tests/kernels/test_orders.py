"""Work orders: kernels hand over with a reason, failures leave nothing, tries never collide, and any process gives the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.errors import BadRequestError, StorageError
from neve.kernels.orders import OrderFailedError, run_order
from neve.kernels.streams import Sink
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import WorkOrder, WorkResult, WriteSettings
from neve.storage.files import Storage
from tests.builders.arrow_files import field, schema
from tests.builders.parquet_files import sample_table
from tests.builders.work_orders import TABLE_SCHEMA, make_order, two_files, written


def rows_of(result: WorkResult) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for output in result.outputs:
        found += duckdb.sql(f"SELECT * FROM read_parquet('{output.path}')").fetchall()
    return sorted(found)


EXPECTED = sorted(tuple(row.values()) for table in two_files() for row in table.to_pylist())


class BreakingStorage(Storage):
    """Fails when the sink has taken so many bytes, or when told to take back what it wrote."""

    def __init__(self, *, sink_bytes: int | None = None, deletes: bool = True) -> None:
        super().__init__({})
        self.sink_bytes, self.deletes = sink_bytes, deletes

    def sink(self, location: str) -> Sink:
        return _BreakingSink(super().sink(location), self.sink_bytes, deletes=self.deletes)


class _BreakingSink:
    def __init__(self, sink: Sink, limit: int | None, *, deletes: bool) -> None:
        self._sink, self._limit, self._taken, self._deletes = sink, limit, 0, deletes

    def write(self, data: bytes | memoryview) -> None:
        self._taken += len(data)
        if self._limit is not None and self._taken > self._limit:
            raise StorageError("Cannot write: the disk is full")
        self._sink.write(data)

    def close(self) -> None:
        self._sink.close()

    def abort(self) -> None:
        self._sink.abort()

    def take_back(self) -> None:
        if not self._deletes:
            raise StorageError("Cannot delete the output: 503")
        self._sink.take_back()


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_a_kernel_writes_the_rows_of_its_inputs_and_counts_them(tmp_path: Path, kernel: Kernel) -> None:
    result = run_order(make_order(tmp_path, two_files(), kernels=(kernel,)), Storage({}))

    assert rows_of(result) == EXPECTED
    assert (result.kernel, result.refusals, result.group_id, result.order_id) == (kernel, (), 7, "o")
    assert (result.rows_read, result.rows_dropped, len(result.outputs)) == (150, 0, 1)
    (output,) = result.outputs
    assert (output.records, output.size_bytes) == (150, Path(output.path).stat().st_size)
    assert output.row_groups == pq.ParquetFile(output.path).metadata.num_row_groups
    assert {i: (c.values, c.nulls) for i, c in result.kept.items()} == {1: (150, 0), 2: (150, 22), 3: (150, 0)}
    assert written(tmp_path) == [Path(output.path).name]


def test_a_kernel_that_refuses_hands_over_with_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    nullable = pa.schema([sample_table().schema.field(0).with_nullable(True), *list(sample_table().schema)[1:]])
    tables = [sample_table(100), sample_table(50, start=100).cast(nullable)]
    result = run_order(make_order(tmp_path, tables), Storage({}))

    assert result.kernel is Kernel.ARROW
    (reason,) = result.refusals
    assert reason.startswith("copy: Cannot copy row groups: the schemas of")
    assert reason.endswith("id is required int64 with field id 1 here, id is optional int64 with field id 1 there")
    assert rows_of(result) == EXPECTED
    assert len(written(tmp_path)) == 1


def test_a_copy_that_would_read_badly_is_taken_back(tmp_path: Path) -> None:
    result = run_order(make_order(tmp_path, two_files(), write=WriteSettings()), Storage({}))

    assert result.kernel is Kernel.ARROW
    assert result.refusals[0].startswith("copy: 6 column chunks of")
    assert result.refusals[0].endswith("bytes on average would read badly")
    assert written(tmp_path) == [Path(result.outputs[0].path).name]


def test_an_order_that_every_kernel_refuses_fails_with_every_reason(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files(), write=WriteSettings(codec="lzo"))
    with pytest.raises(OrderFailedError, match=r"Cannot rewrite group 7: copy: 6 column chunks.*; arrow: .*lzo") as caught:
        run_order(order, Storage({}))
    assert caught.value.hint == "Use the spark kernel."
    assert written(tmp_path) == []


def test_an_order_for_spark_is_refused_in_a_process_without_it(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files(), kernels=(Kernel.SPARK,))
    with pytest.raises(OrderFailedError, match="Cannot rewrite group 7: spark: it needs a Spark session"):
        run_order(order, Storage({}))


def test_an_order_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files(), format_version=5)
    with pytest.raises(BadRequestError, match="Cannot run order o: its format version 5 is newer than 4"):
        run_order(order, Storage({}))


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_a_disk_that_fills_up_leaves_no_file_behind(tmp_path: Path, kernel: Kernel) -> None:
    order = make_order(tmp_path, two_files(), kernels=(kernel,))
    with pytest.raises(StorageError, match="the disk is full"):
        run_order(order, BreakingStorage(sink_bytes=1000))
    assert written(tmp_path) == []


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_a_second_output_that_fails_takes_the_first_with_it(tmp_path: Path, kernel: Kernel) -> None:
    order = make_order(tmp_path, two_files(), kernels=(kernel,))
    (tmp_path / "in" / "1.parquet").unlink()
    with pytest.raises(StorageError, match=r"1\.parquet: No such file"):
        run_order(order, Storage({}))
    assert written(tmp_path) == []


def test_the_reason_for_a_failure_survives_a_failing_clean_up(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files(), kernels=(Kernel.COPY,))
    with pytest.raises(StorageError, match="the disk is full"):
        run_order(order, BreakingStorage(sink_bytes=1000, deletes=False))


def test_a_refusal_survives_a_failing_clean_up(tmp_path: Path) -> None:
    result = run_order(make_order(tmp_path, two_files(), write=WriteSettings()), BreakingStorage(deletes=False))
    assert result.kernel is Kernel.ARROW
    assert rows_of(result) == EXPECTED


def test_tries_of_one_order_never_collide(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files())
    results = [run_order(order, Storage({})) for _ in range(3)]

    paths = [output.path for result in results for output in result.outputs]
    assert len(set(paths)) == 3
    assert all(path.startswith(order.output_prefix) for path in paths)
    assert all(rows_of(result) == EXPECTED for result in results)


def test_a_twin_that_fails_does_not_touch_the_files_of_the_other(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files())
    first = run_order(order, Storage({}))
    with pytest.raises(StorageError, match="the disk is full"):
        run_order(order, BreakingStorage(sink_bytes=1000))
    assert rows_of(first) == EXPECTED
    assert written(tmp_path) == [Path(first.outputs[0].path).name]


SCRIPT = """
import sys
from neve.rewrite.work_order import WorkOrder
from neve.kernels.orders import run_order
from neve.storage.files import Storage
result = run_order(WorkOrder.model_validate_json(sys.stdin.read()), Storage({}))
heavy = {"pyspark", "py4j", "pyiceberg", "sqlalchemy", "fastapi"} & {name.partition(".")[0] for name in sys.modules}
assert not heavy, heavy
sys.stdout.write(result.model_dump_json())
"""


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_a_process_of_its_own_elsewhere_and_without_spark_gives_the_same(tmp_path: Path, kernel: Kernel) -> None:
    order = make_order(tmp_path, two_files(), kernels=(kernel,))
    here = run_order(order, Storage({}))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    source = Path(neve.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=elsewhere,
        env={"PYTHONPATH": str(source)},
        input=order.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    there = WorkResult.model_validate_json(done.stdout)

    assert rows_of(there) == rows_of(here) == EXPECTED
    assert there.outputs[0].metrics == here.outputs[0].metrics
    assert there.kept == here.kept
    assert Path(there.outputs[0].path).read_bytes() == Path(here.outputs[0].path).read_bytes()


def test_orders_and_results_travel_as_json_unchanged(tmp_path: Path) -> None:
    order = make_order(tmp_path, two_files())
    result = run_order(order, Storage({}))
    assert WorkOrder.model_validate_json(order.model_dump_json()) == order
    assert WorkResult.model_validate_json(result.model_dump_json()).model_dump_json() == result.model_dump_json()


def test_an_identity_partition_value_fills_a_column_that_the_files_lack(tmp_path: Path) -> None:
    table_schema = schema(*TABLE_SCHEMA["fields"], field(4, "day", "date"))
    order = make_order(tmp_path, two_files(), kernels=(Kernel.ARROW,), table_schema=table_schema)
    files = tuple(file.model_copy(update={"constants": {4: "2024-02-29"}}) for file in order.inputs)
    result = run_order(order.model_copy(update={"inputs": files}), Storage({}))
    days = duckdb.sql(f"SELECT DISTINCT day::VARCHAR FROM read_parquet('{result.outputs[0].path}')").fetchall()
    assert days == [("2024-02-29",)]
