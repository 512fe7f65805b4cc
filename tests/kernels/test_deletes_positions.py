"""Position delete files: read for the data files that are wanted, written sorted and with whole bounds."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.kernels.deletes.position_files import PATH_ID, POS_ID, Positions, read_positions, write_positions
from neve.kernels.faults import CorruptFileError
from neve.kernels.streams import BytesSource
from tests.builders.arrow_files import CountingSource, MemorySink, field, parquet, schema, struct

OF = schema(field(PATH_ID, "file_path", "string", required=True), field(POS_ID, "pos", "long", required=True))


def rows(*pairs: tuple[str, int]) -> list[dict[str, object]]:
    return [{"file_path": path, "pos": pos} for path, pos in pairs]


def read(data: bytes, wanted: set[str] | None = None) -> dict[str, list[int]]:
    records = pq.read_metadata(io.BytesIO(data)).num_rows
    (found,) = read_positions([(BytesSource(data, "d.parquet"), records)], wanted)
    return {path: positions.tolist() for path, positions in found.items()}


def written(positions: dict[str, list[int]]) -> bytes:
    sink = MemorySink()
    write_positions(sink, {path: np.array(p, np.int64) for path, p in positions.items()})
    assert sink.data is not None
    return sink.data


def test_positions_come_ascending_and_once_whatever_the_order_of_the_file() -> None:
    data = parquet(rows(("b", 7), ("a", 3), ("b", 1), ("a", 3), ("b", 7)), OF)
    assert read(data) == {"a": [3], "b": [1, 7]}
    assert read(data, {"b", "c"}) == {"b": [1, 7]}


def test_other_columns_and_other_names_do_not_matter() -> None:
    row = struct(field(1, "id", "long"))
    odd = schema(field(2147483544, "row", row), field(POS_ID, "p", "long"), field(PATH_ID, "path", "string"))
    data = parquet([{"row": {"id": 1}, "p": 4, "path": "a"}, {"row": None, "p": 2, "path": "a"}], odd)
    assert read(data) == {"a": [2, 4]}


def test_several_files_are_read_one_after_another() -> None:
    files = [parquet(rows(("a", 1)), OF), parquet(rows(), OF), parquet(rows(("a", 2), ("b", 0)), OF)]
    found = read_positions([(BytesSource(data, "d"), n) for data, n in zip(files, (1, 0, 2), strict=True)])
    assert [{p: rows.tolist() for p, rows in part.items()} for part in found] == [{"a": [1]}, {}, {"a": [2], "b": [0]}]


def test_row_groups_of_other_data_files_are_not_read() -> None:
    """A large file, of which a quarter is wanted."""
    paths = pa.array([f"s3://bucket/data/{i // 50_000}.parquet" for i in range(200_000)])
    places = pa.array(np.random.default_rng(1).permutation(2**40 // 200_000 * np.arange(200_000)))
    table = pa.table([paths, places], schema=pq.read_schema(io.BytesIO(parquet(rows(), OF))))
    data = parquet(table, row_group_size=50_000, compression="none", use_dictionary=["file_path"])
    source = CountingSource(data, "d")
    (found,) = read_positions([(source, 200_000)], {"s3://bucket/data/2.parquet"}, memory_bytes=2**22)
    assert found["s3://bucket/data/2.parquet"].tolist() == sorted(places.to_pylist()[100_000:150_000])
    assert list(found) == ["s3://bucket/data/2.parquet"]
    assert sum(length for _, length in source.requests) < len(data) / 2


paths_ = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
deleted_ = st.dictionaries(
    paths_, st.lists(st.integers(0, 2**40), min_size=1, max_size=20, unique=True).map(sorted), min_size=1
)


@settings(max_examples=50, deadline=None)
@given(deleted_)
def test_what_is_written_is_read_back_and_sorted(deleted: dict[str, list[int]]) -> None:
    data = written(deleted)
    assert read(data) == deleted
    table = pq.read_table(io.BytesIO(data)).to_pylist()
    pairs = [(row["file_path"].encode(), row["pos"]) for row in table]
    assert pairs == sorted(pairs)


def test_another_engine_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(written({"b": [1, 2], "a": [9]}))
    assert duckdb.sql(f"SELECT file_path, pos FROM '{tmp_path}/d.parquet'").fetchall() == [("a", 9), ("b", 1), ("b", 2)]


def test_bounds_are_whole_and_equal_for_one_data_file() -> None:
    long = "s3://bucket/" + "é" * 3000
    output = write_positions(MemorySink(), {long: np.array([3, 900], np.int64), "empty": np.zeros(0, np.int64)})
    assert output.rows == 2
    path, pos = output.metrics[PATH_ID], output.metrics[POS_ID]
    assert (path.lower, path.upper, path.values, path.nulls) == (long.encode(), long.encode(), 2, 0)
    assert (pos.lower, pos.upper) == ((3).to_bytes(8, "little"), (900).to_bytes(8, "little"))


def test_columns_have_the_ids_of_the_specification() -> None:
    fields = pq.read_schema(io.BytesIO(written({"a": [1]})))
    assert [(f.name, f.nullable, f.metadata[b"PARQUET:field_id"]) for f in fields] == [
        ("file_path", False, str(PATH_ID).encode()),
        ("pos", False, str(POS_ID).encode()),
    ]


def test_many_positions_are_many_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.kernels.deletes.position_files._ROW_GROUP_ROWS", 3)
    data = written({"a": [1, 2, 3, 4], "b": [0, 1, 2]})
    assert pq.read_metadata(io.BytesIO(data)).num_row_groups == 3
    assert read(data) == {"a": [1, 2, 3, 4], "b": [0, 1, 2]}


def test_a_file_that_would_delete_nothing_is_not_written() -> None:
    sink = MemorySink()
    with pytest.raises(ValueError, match="Cannot write a position delete file: it would delete nothing"):
        write_positions(sink, {"a": np.zeros(0, np.int64)})
    assert sink.aborted


def _first(data: bytes) -> Positions:
    return next(iter(read_positions([(BytesSource(data, "s3://b/d.parquet"), pq.read_metadata(io.BytesIO(data)).num_rows)])))


def test_a_damaged_file_is_told_by_its_name() -> None:
    nullable = schema(field(PATH_ID, "file_path", "string"), field(POS_ID, "pos", "long"))
    wrong = {
        "it has no columns file_path and pos": parquet([{"x": 1}], schema(field(1, "x", "long"))),
        "a position delete without a path": parquet([{"file_path": None, "pos": 1}], nullable),
    }
    for reason, data in wrong.items():
        with pytest.raises(CorruptFileError, match=f"^Cannot read s3://b/d.parquet: {reason}"):
            _first(data)
    with pytest.raises(CorruptFileError, match=r"^Cannot read s3://b/d.parquet: "):
        next(iter(read_positions([(BytesSource(b"PAR1 not a file PAR1", "s3://b/d.parquet"), 1)])))
    with pytest.raises(CorruptFileError, match="it holds 1 rows, the table says 2"):
        next(iter(read_positions([(BytesSource(parquet(rows(("a", 1)), OF), "d"), 2)])))
