from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import StorageError
from neve.kernels.arrow import BloomFilter, Counts, RefusedError, WriteOptions, refusal, rewrite
from neve.kernels.faults import CorruptFileError
from neve.table.metrics import ColumnMetrics, to_bytes
from neve.table.units import KIB, MIB
from tests.builders.arrow_files import (
    CountingSource,
    MemorySink,
    field,
    given,
    list_of,
    map_of,
    parquet,
    read,
    run,
    schema,
    struct,
)

IDS = schema(field(1, "id", "long"), field(2, "name", "string"))
ROWS = [{"id": i, "name": f"n{i % 7}"} for i in range(100)]


def test_files_become_one_file_with_the_same_rows_in_the_same_order() -> None:
    result, files = run([given(parquet(ROWS[:40], IDS)), given(parquet(ROWS[40:], IDS))], IDS)
    assert [row for data in files for row in read(data)] == ROWS
    assert (result.rows_read, result.rows_dropped) == (100, 0)
    assert [(o.rows, o.size_bytes, o.row_groups) for o in result.outputs] == [(100, len(files[0]), 1)]


def test_deleted_positions_are_left_out_and_counted() -> None:
    rows = [{"id": None if i == 3 else i, "name": "x"} for i in range(10)]
    result, files = run([given(parquet(rows, IDS, row_group_size=4), deleted=[0, 3, 4, 9])], IDS)
    assert [row["id"] for row in read(files[0])] == [1, 2, 5, 6, 7, 8]
    assert (result.rows_read, result.rows_dropped) == (10, 4)
    assert result.dropped[1] == Counts(values=4, nulls=1, nans=None)
    assert result.kept[1] == Counts(values=6, nulls=0, nans=None)


def test_no_file_is_begun_when_every_row_is_deleted() -> None:
    result, files = run([given(parquet(ROWS[:5], IDS), deleted=range(5))], IDS)
    assert (result.outputs, files, result.rows_dropped) == ((), [], 5)
    assert result.positions is not None
    assert len(result.positions) == 0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_files_without_rows_give_no_file(count: int) -> None:
    result, files = run([given(parquet([], IDS)) for _ in range(count)], IDS)
    assert (result.outputs, files, result.rows_read) == ((), [], 0)


def test_files_without_rows_do_not_disturb_the_others() -> None:
    empty = parquet([], IDS)
    _, files = run([given(empty), given(parquet(ROWS, IDS)), given(empty)], IDS)
    assert read(files[0]) == ROWS


def test_positions_tell_where_each_row_went() -> None:
    inputs = [given(parquet(ROWS[:10], IDS), deleted=[2, 3]), given(parquet(ROWS[10:15], IDS), deleted=[0])]
    positions = run(inputs, IDS)[0].positions
    assert {name: column.tolist() for name, column in vars(positions).items()} == {
        "inputs": [0, 0, 1],
        "input_starts": [0, 4, 1],
        "lengths": [2, 6, 4],
        "outputs": [0, 0, 0],
        "output_starts": [0, 2, 8],
    }
    assert positions is not None
    found = positions.locate(0, np.array([0, 1, 2, 3, 4, 9, 10]))
    assert found[0].tolist() == [0, 0, -1, -1, 0, 0, -1]
    assert found[1].tolist() == [0, 1, -1, -1, 2, 7, -1]
    assert positions.locate(7, np.array([0]))[0].tolist() == [-1]


def test_a_new_file_begins_when_the_target_is_reached_and_none_is_a_crumb() -> None:
    numbers = schema(field(1, "n", "long"))
    rng = np.random.default_rng(1)
    table = pa.table({"n": rng.integers(-(2**62), 2**62, 60_000)}, schema=pa.schema([arrow_field(numbers)]))
    data = parquet(table, use_dictionary=False, compression="none")
    options = WriteOptions(target_bytes=100 * KIB, row_group_bytes=64 * KIB)
    result, files = run([given(data)], numbers, options)
    assert [row for data in files for row in read(data)] == table.to_pylist()
    sizes = [len(data) for data in files]
    assert len(sizes) == 5
    assert all(80 * KIB < size < 125 * KIB for size in sizes), sizes
    ends = np.cumsum([output.rows for output in result.outputs])
    assert result.positions is not None
    found = result.positions.locate(0, np.arange(60_000))
    assert found[0].tolist() == np.searchsorted(ends, np.arange(60_000), side="right").tolist()


def arrow_field(of: dict[str, Any]) -> pa.Field:
    from neve.kernels.arrow.schema import arrow_schema

    return arrow_schema(of).field(0)


def test_row_groups_follow_rows_when_rows_are_set() -> None:
    _, files = run([given(parquet(ROWS, IDS, row_group_size=33))], IDS, WriteOptions(row_group_rows=30))
    metadata = pq.read_metadata(io.BytesIO(files[0]))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [30, 30, 30, 10]


def test_memory_bounds_a_row_group() -> None:
    numbers = schema(field(1, "n", "long"))
    table = pa.table({"n": range(200_000)}, schema=pa.schema([arrow_field(numbers)]))
    _, files = run([given(parquet(table, row_group_size=10_000))], numbers, WriteOptions(memory_bytes=MIB))
    metadata = pq.read_metadata(io.BytesIO(files[0]))
    assert metadata.num_row_groups > 1
    assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) * 8 <= MIB


VALUES = schema(field(1, "d", "double"), field(2, "f", "float"))


class _NoKeys:
    """Keys that take memory and find nothing."""

    field_ids = (1,)

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def finder(self, *_: Any) -> None:
        return None


def test_keys_leave_less_memory_for_a_row_group_but_at_least_half() -> None:
    numbers = schema(field(1, "n", "long"))
    table = pa.table({"n": np.arange(200_000)}, schema=pq.read_schema(io.BytesIO(parquet([], numbers))))
    data = parquet(table, row_group_size=10_000)
    options = WriteOptions(memory_bytes=MIB)
    found = [
        run([given(data)], numbers, options, deleted_keys=[_NoKeys(size)])[0].outputs[0].row_groups
        for size in (0, MIB // 2, 10 * MIB)
    ]
    assert found == [3, 5, 5]


def test_nan_is_counted_and_kept_out_of_the_bounds() -> None:
    rows = [{"d": v, "f": v} for v in (1.0, math.nan, -math.inf, None, math.nan, 3.5)]
    result, _ = run([given(parquet(rows, VALUES), deleted=[4])], VALUES)
    column = result.outputs[0].metrics[1]
    assert (column.values, column.nulls, column.nans) == (5, 1, 1)
    assert (column.lower, column.upper) == (to_bytes("double", -math.inf), to_bytes("double", 3.5))
    assert result.outputs[0].metrics[2].upper == to_bytes("float", 3.5)
    assert (result.kept[1], result.dropped[1]) == (Counts(5, 1, 1), Counts(1, 0, 1))


def test_a_column_of_nan_has_a_count_and_no_bounds() -> None:
    rows = [{"d": math.nan, "f": None}] * 3
    metrics = run([given(parquet(rows, VALUES))], VALUES)[0].outputs[0].metrics
    assert (metrics[1].nans, metrics[1].lower, metrics[1].upper) == (3, None, None)
    assert (metrics[2].nans, metrics[2].nulls, metrics[2].lower) == (0, 3, None)


@pytest.mark.parametrize("values", [[0.0, 0.0], [-0.0, -0.0], [0.0, -0.0]])
def test_bounds_of_zeros_hold_for_both_zeros(values: list[float]) -> None:
    rows = [{"d": v, "f": v} for v in values]
    result, files = run([given(parquet(rows, VALUES))], VALUES)
    column = result.outputs[0].metrics[1]
    assert (column.lower, column.upper) == (to_bytes("double", -0.0), to_bytes("double", 0.0))
    assert [math.copysign(1, row["d"]) for row in read(files[0])] == [math.copysign(1, v) for v in values]


def test_text_too_long_for_parquet_statistics_still_has_bounds() -> None:
    text = schema(field(1, "t", "string"), field(2, "s", struct(field(3, "b", "binary"))))
    rows = [{"t": "a" * 5000, "s": {"b": b"m"}}, {"t": "z" * 6000, "s": None}, {"t": None, "s": {"b": b"\xff" * 9000}}]
    metrics = run([given(parquet(rows, text))], text)[0].outputs[0].metrics
    assert (metrics[1].lower, metrics[1].upper) == (b"a" * 5000, b"z" * 6000)
    assert (metrics[3].lower, metrics[3].upper) == (b"m", b"\xff" * 9000)


def test_values_in_lists_and_maps_are_counted_and_not_bounded() -> None:
    nested = schema(field(1, "l", list_of(2, "double")), field(3, "m", map_of(4, "string", 5, "int")))
    rows = [
        {"l": [1.0, None, math.nan], "m": [("a", 1), ("b", None)]},
        {"l": [], "m": []},
        {"l": None, "m": None},
    ]
    result, files = run([given(parquet(rows, nested))], nested)
    metrics = {i: (c.values, c.nulls, c.nans, c.lower, c.upper) for i, c in result.outputs[0].metrics.items()}
    assert metrics == {2: (5, 3, 1, None, None), 4: (4, 2, None, None, None), 5: (4, 3, None, None, None)}
    assert result.kept == {2: Counts(5, 3, 1), 4: Counts(4, 2, None), 5: Counts(4, 3, None)}
    assert str(read(files[0])) == str(rows)


def test_nan_counts_follow_the_rows_when_a_batch_is_cut_between_files() -> None:
    rng = np.random.default_rng(5)
    rows = [{"d": v, "f": None} for v in rng.random(9000).tolist()]
    rows[10] = rows[20] = rows[8990] = {"d": math.nan, "f": None}
    options = WriteOptions(target_bytes=20_000, row_group_bytes=9_000)
    result, files = run([given(parquet(rows, VALUES, use_dictionary=False))], VALUES, options)
    assert len(files) > 2
    assert [output.metrics[1].nans for output in result.outputs] == [
        sum(math.isnan(row["d"]) for row in read(data)) for data in files
    ]
    assert result.outputs[0].metrics[1].nans == 2


def test_split_offsets_start_at_the_first_row_group() -> None:
    result, files = run([given(parquet(ROWS, IDS))], IDS, WriteOptions(row_group_rows=10))
    assert result.outputs[0].row_groups == 10
    assert result.outputs[0].split_offsets == (4,)
    assert files[0][:4] == b"PAR1"


def test_the_iceberg_schema_is_stored_and_the_arrow_schema_is_not() -> None:
    _, files = run([given(parquet(ROWS, IDS))], IDS)
    stored = pq.read_metadata(io.BytesIO(files[0])).metadata
    assert set(stored) == {b"iceberg.schema"}
    assert json.loads(stored[b"iceberg.schema"]) == IDS


def test_dictionaries_are_written_only_where_they_pay() -> None:
    of = schema(*[field(i, n, t) for i, (n, t) in enumerate([("id", "long"), ("few", "string"), ("many", "string")], 1)])
    rows = [{"id": i, "few": f"v{i % 5}", "many": f"value {i * 7919}"} for i in range(5000)]
    _, files = run([given(parquet(rows[:2500], of)), given(parquet(rows[2500:], of))], of)
    group = pq.read_metadata(io.BytesIO(files[0])).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, False]
    assert read(files[0]) == rows
    off = WriteOptions(dictionary=False)
    group = pq.read_metadata(io.BytesIO(run([given(parquet(rows, of))], of, off)[1][0])).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, False, False]


def test_an_empty_first_file_does_not_decide_how_text_is_kept() -> None:
    of = schema(field(1, "t", "string", required=True), field(2, "b", "binary"))
    rows = [{"t": f"v{i % 5}", "b": None if i % 4 == 0 else bytes([i % 3]) * 20} for i in range(2000)]
    inputs = [given(parquet(part, of)) for part in ([], rows[:900], [], rows[900:])]
    result, files = run(inputs, of)
    group = pq.read_metadata(io.BytesIO(files[0])).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(2)] == [True, True]
    assert read(files[0]) == rows
    assert (result.outputs[0].metrics[2].lower, result.outputs[0].metrics[2].nulls) == (bytes(20), 500)


@pytest.mark.parametrize("deleted", [[3, 3], [4, 2]])
def test_deleted_positions_must_ascend(deleted: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^Cannot drop rows of in\.parquet: positions must ascend, each once$"):
        given(parquet(ROWS, IDS), deleted=deleted)


def test_a_column_that_the_inputs_store_plainly_stays_plain() -> None:
    rows = [{"id": i % 3, "name": "x"} for i in range(1000)]
    _, files = run([given(parquet(rows, IDS, use_dictionary=["name"]))], IDS)
    group = pq.read_metadata(io.BytesIO(files[0])).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("wanted", "before", "after"), [(False, False, "PLAIN"), (True, False, "DELTA"), (False, True, "DELTA")]
)
def test_integers_are_packed_by_differences_on_request_or_if_they_were(wanted: bool, before: bool, after: str) -> None:
    encoding = {"id": "DELTA_BINARY_PACKED"} if before else None
    rows = [{"id": 10**15 + 3 * i, "name": None} for i in range(1000)]
    data = parquet(rows, IDS, use_dictionary=False, column_encoding=encoding)
    _, files = run([given(data)], IDS, WriteOptions(delta_integers=wanted))
    encodings = pq.read_metadata(io.BytesIO(files[0])).row_group(0).column(0).encodings
    assert any(name.startswith(after) for name in encodings), encodings
    assert read(files[0]) == rows


def test_a_late_input_with_many_different_texts_is_still_right() -> None:
    few = [{"id": i, "name": "x"} for i in range(3000)]
    many = [{"id": i, "name": f"{i:08d}" * 50} for i in range(8000)]
    _, files = run([given(parquet(few, IDS)), given(parquet(many, IDS))], IDS, WriteOptions(dictionary_bytes=64 * KIB))
    assert read(files[0]) == few + many


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "lz4_raw", "uncompressed"])
def test_every_codec_that_pyarrow_writes_can_be_asked_for(codec: str) -> None:
    _, files = run([given(parquet(ROWS, IDS))], IDS, WriteOptions(codec=codec))
    assert read(files[0]) == ROWS
    stored = pq.read_metadata(io.BytesIO(files[0])).row_group(0).column(0).compression
    assert stored == {"uncompressed": "UNCOMPRESSED", "lz4": "LZ4", "lz4_raw": "LZ4"}.get(codec, codec.upper())


def test_bloom_filters_are_written_for_the_columns_that_ask(tmp_path: Path) -> None:
    of = schema(field(1, "id", "long"), field(2, "few", "string"), field(3, "many", "string"))
    rows = [{"id": i, "few": f"n{i % 7}", "many": f"m{i}"} for i in range(1000)]
    filters = {2: BloomFilter(), 3: BloomFilter(fpp=0.001, ndv=1000)}
    _, files = run([given(parquet(rows, of))], of, WriteOptions(bloom_filters=filters))
    path = tmp_path / "out.parquet"
    path.write_bytes(files[0])

    def excluded(column: str, value: str) -> bool:
        probe = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', '{column}', '{value}')"
        return bool(duckdb.sql(probe).fetchall()[0][0])

    assert not any(excluded("few", f"n{i}") or excluded("many", f"m{i}") for i in range(7))
    assert excluded("few", "absent")
    assert excluded("many", "absent")
    lengths = duckdb.sql(f"SELECT bloom_filter_length FROM parquet_metadata('{path}') ORDER BY column_id").fetchall()
    assert lengths[0] == (None,)
    assert read(files[0]) == rows


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("variant", "column v has type variant"),
        ("unknown", "column v has type unknown"),
        ("geometry(srid:4326)", "column v has type geometry(srid:4326)"),
        (list_of(2, "variant"), "column v.element has type variant"),
        (struct(), "column v is a struct without fields"),
    ],
)
def test_types_that_it_cannot_write_are_refused_by_name(kind: Any, reason: str) -> None:
    of = schema(field(1, "v", kind))
    assert refusal(of, WriteOptions()) == reason
    with pytest.raises(RefusedError, match="Cannot rewrite with the arrow kernel: column v"):
        run([], of)


def test_an_unknown_codec_is_refused() -> None:
    for codec in ("lzo", "brotli"):
        expected = f"this kernel does not write codec {codec}, which not every reader has"
        assert refusal(IDS, WriteOptions(codec=codec)) == expected


def test_footers_without_field_ids_are_refused_unless_there_is_a_name_mapping() -> None:
    footer = pq.read_metadata(io.BytesIO(parquet(pa.table({"id": [1]}))))
    assert refusal(IDS, WriteOptions(), [footer]) == "a file has no field ids and the table has no name mapping"
    assert refusal(IDS, WriteOptions(), [footer], name_mapping=[{"field-id": 1, "names": ["id"]}]) is None


def test_a_damaged_file_is_named_and_the_open_output_aborted() -> None:
    good, bad = parquet(ROWS, IDS), bytearray(parquet(ROWS, IDS))
    bad[4:40] = b"\xff" * 36
    sinks = []

    def open_sink(_: int) -> MemorySink:
        sinks.append(MemorySink())
        return sinks[-1]

    options = WriteOptions(row_group_rows=10)
    damaged = given(bytes(bad), source=CountingSource(bytes(bad), "bad.parquet"))
    with pytest.raises(CorruptFileError, match=r"^Cannot read bad\.parquet: "):
        rewrite([given(good), damaged], IDS, options, open_sink)
    assert [(sink.data, sink.aborted) for sink in sinks] == [(None, True)]


def test_a_file_that_is_no_parquet_is_named() -> None:
    junk = CountingSource(b"x" * 100, "junk.parquet")
    with pytest.raises(CorruptFileError, match=r"^Cannot read junk\.parquet: it does not end like a Parquet file"):
        run([given(parquet([], IDS), source=junk)], IDS)


def test_an_encrypted_file_is_refused_and_not_called_damaged() -> None:
    data = parquet(ROWS, IDS)
    locked = CountingSource(data[:-4] + b"PARE", "locked.parquet")
    with pytest.raises(RefusedError, match=r"^Cannot read locked\.parquet: it is encrypted$"):
        run([given(data, source=locked)], IDS)


def test_a_row_count_that_differs_from_the_tables_is_an_error() -> None:
    short = CountingSource(parquet(ROWS[:99], IDS), "short.parquet")
    with pytest.raises(CorruptFileError, match="it holds 99 rows, the table says 100"):
        run([given(parquet(ROWS, IDS), source=short)], IDS)


def test_a_sink_that_fails_is_aborted_and_its_error_passes_through() -> None:
    class Full(MemorySink):
        def write(self, data: bytes | memoryview) -> None:
            raise StorageError(f"Cannot write {len(data)} bytes: disk full")

    sink = Full()
    with pytest.raises(StorageError, match="disk full"):
        rewrite([given(parquet(ROWS, IDS))], IDS, WriteOptions(), lambda _: sink)
    assert sink.aborted


def test_metrics_hold_sizes_of_the_columns() -> None:
    result, files = run([given(parquet(ROWS, IDS))], IDS)
    group = pq.read_metadata(io.BytesIO(files[0])).row_group(0)
    lower, upper = to_bytes("long", 0), to_bytes("long", 99)
    size = group.column(0).total_compressed_size
    assert result.outputs[0].metrics[1] == ColumnMetrics(
        size_bytes=size, values=100, nulls=0, nans=None, lower=lower, upper=upper
    )
