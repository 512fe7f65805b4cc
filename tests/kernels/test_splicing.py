"""Row lineage in copied files: right for every row, whether a file stores it or not, and nothing else is changed."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.errors import NeveError
from neve.kernels.faults import CopyRefusedError, CorruptFileError
from neve.kernels.parquet.copying import ColumnCounts, Copied, copy_row_groups, read_footers, refusal
from neve.kernels.parquet.footer import read_footer
from neve.kernels.parquet.splicing import Lineage
from neve.kernels.streams import BytesSource, Source
from tests.builders.parquet_files import (
    MemorySink,
    Struct,
    decode_footer,
    decode_struct,
    edited,
    group,
    key_value,
    make_file,
    meta,
    raw_footer,
    sample_table,
    with_footer,
)

ROW_ID, NUMBER = 2147483540, 2147483539
NAMES = ["_row_id", "_last_updated_sequence_number"]
LINEAGE = [
    pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
    for name, field_id in zip(NAMES, (ROW_ID, NUMBER), strict=True)
]
Stored = tuple[list[int | None], list[int | None]]


def file_of(table: pa.Table | None = None, stored: Stored | None = None, **options: Any) -> bytes:
    """A file as Iceberg has them, with row lineage if some is given."""
    table = sample_table() if table is None else table
    for field, values in zip(LINEAGE, stored or (), strict=False):
        table = table.append_column(field, pa.array(values, pa.int64()))
    return make_file(table, store_schema=False, **options)


def sources_of(*files: bytes) -> list[Source]:
    return [BytesSource(data, f"{number}.parquet") for number, data in enumerate(files)]


def copied(files: list[bytes], lineage: list[Lineage], **options: Any) -> tuple[bytes, Copied]:
    """The output of both ways to copy, which must be the same, and the account of it."""
    sources, sink, other = sources_of(*files), MemorySink(), MemorySink()
    result = copy_row_groups(sources, None, sink, lineage=lineage, **options)
    assert copy_row_groups(sources, read_footers(sources), other, lineage=lineage, **options) == result
    assert (sink.ends, other.ends, sink.data) == (["closed"], ["closed"], other.data)
    assert (result.bytes, result.rows) == (len(sink.data), pq.read_metadata(io.BytesIO(sink.data)).num_rows)
    return sink.data, result


def read(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def lineage_in(data: bytes) -> list[tuple[int | None, int | None]]:
    return list(zip(*(read(data)[name].to_pylist() for name in NAMES), strict=True))


def expected_of(rows: int, stored: Stored | None, lineage: Lineage) -> list[tuple[int | None, int | None]]:
    """What the specification says of these rows."""
    ids, numbers = stored or ([None] * rows, [None] * rows)
    first, number = lineage
    implied = [None if first is None else first + position for position in range(rows)]
    return [
        (ids[i] if ids[i] is not None else implied[i], numbers[i] if numbers[i] is not None else number) for i in range(rows)
    ]


def assert_pages_are_where_the_indexes_say(output: bytes) -> None:
    """Of the two lineage columns, which always have an index when they were made here."""
    for described in read_footer(BytesSource(output)).groups:
        for part in described.chunks[-2:]:
            if part.offset_index is None:
                continue
            index, _ = decode_struct(output[part.offset_index.offset :][: part.offset_index.size_bytes])
            for location in index[1][1][1]:
                at, length = location[1][1], location[2][1]
                header, end = decode_struct(output, at)
                assert header[1][1] in (0, 3), "not a data page"
                assert end - at + header[3][1] == length
                assert part.start <= at < at + length <= part.end


WRITING = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "row_group_size": st.integers(1, 50),
        "write_page_index": st.booleans(),
        "write_statistics": st.booleans(),
        "data_page_size": st.sampled_from([64, 1024 * 1024]),
        "write_batch_size": st.sampled_from([4, 1024]),
    }
)
_NUMBERS = st.integers(0, 2**62)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[int, Stored | None, Lineage, dict[str, Any]]:
    """One file: its rows, the lineage that it stores, that of its manifest entry, and how it is written."""
    rows = draw(st.integers(0, 60))
    values = st.one_of(st.none(), _NUMBERS) if draw(st.booleans()) else _NUMBERS
    column = st.lists(values, min_size=rows, max_size=rows)
    stored = draw(st.none() | st.tuples(column, column))
    return rows, stored, draw(st.tuples(st.none() | _NUMBERS, _NUMBERS)), draw(WRITING)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(given_=st.lists(inputs(), min_size=1, max_size=4))
def test_every_row_of_any_files_keeps_its_lineage(
    given_: list[tuple[int, Stored | None, Lineage, dict[str, Any]]], tmp_path: Path
) -> None:
    tables = [sample_table(rows, start=100 * number) for number, (rows, *_) in enumerate(given_)]
    files = [file_of(table, stored, **how) for table, (_, stored, _, how) in zip(tables, given_, strict=True)]
    output, result = copied(files, [lineage for _, _, lineage, _ in given_])
    expected = [row for rows, stored, lineage, _ in given_ for row in expected_of(rows, stored, lineage)]
    assert lineage_in(output) == expected
    assert read(output).drop_columns(NAMES).equals(pa.concat_tables(tables))
    assert_pages_are_where_the_indexes_say(output)
    for position, field_id in enumerate((ROW_ID, NUMBER)):
        assert result.counts[field_id] == ColumnCounts(len(expected), sum(row[position] is None for row in expected))
    path = tmp_path / "merged.parquet"
    path.write_bytes(output)
    with duckdb.connect() as connection:
        assert connection.sql(f"SELECT {', '.join(NAMES)} FROM read_parquet('{path}')").fetchall() == expected


def test_a_million_rows_take_few_bytes_and_several_pages() -> None:
    ids = pa.table({"id": pa.array(range(1_000_000), pa.int64())}, schema=pa.schema([sample_table().schema.field(0)]))
    output, result = copied([file_of(ids)], [(10**12, 7)])
    assert result.column_bytes[ROW_ID] < 30_000
    assert result.column_bytes[NUMBER] < 3_000
    assert read(output)["_row_id"].equals(pa.chunked_array([pa.array(range(10**12, 10**12 + 1_000_000))]))
    part = read_footer(BytesSource(output)).groups[0].chunks[1]
    assert part.offset_index is not None
    index, _ = decode_struct(output[part.offset_index.offset :][: part.offset_index.size_bytes])
    assert len(index[1][1][1]) > 10
    assert_pages_are_where_the_indexes_say(output)


def test_stored_lineage_without_nulls_is_copied_byte_for_byte() -> None:
    once, _ = copied([file_of(row_group_size=30)], [(500, 3)])
    again, result = copied([once, once], [(None, None), (9, 9)])
    assert lineage_in(again) == [(500 + position, 3) for position in range(100)] * 2
    before, after = (read_footer(BytesSource(data)) for data in (once, again))
    for old, new in zip(before.groups * 2, after.groups, strict=True):
        assert again[new.start : new.end] == once[old.start : old.end]
    assert result.counts[ROW_ID] == ColumnCounts(200, 0)


def test_the_footer_tells_of_the_spliced_columns_what_it_tells_of_others() -> None:
    options: dict[str, Any] = {"row_group_size": 50, "write_page_index": True}
    partly: Stored = ([None] * 99 + [7], [None] * 100)
    output, result = copied([file_of(**options), file_of(stored=partly, **options)], [(1000, 4), (2000, 5)])
    footer, metadata = decode_footer(output), pq.read_metadata(io.BytesIO(output))
    assert [str(metadata.schema.column(number)).splitlines()[1].strip() for number in (3, 4)] == [
        "name: _row_id",
        "name: _last_updated_sequence_number",
    ]
    assert [leaf.field_id for leaf in read_footer(BytesSource(output)).schema.leaves] == [1, 2, 3, ROW_ID, NUMBER]
    bounds = [
        [(c.statistics.min, c.statistics.max, c.statistics.null_count) for c in (row_group.column(3), row_group.column(4))]
        for row_group in (metadata.row_group(number) for number in range(4))
    ]
    assert bounds == [
        [(1000, 1049, 0), (4, 4, 0)],
        [(1050, 1099, 0), (4, 4, 0)],
        [(2000, 2049, 0), (5, 5, 0)],
        [(7, 2098, 0), (5, 5, 0)],
    ]
    described = read_footer(BytesSource(output)).groups
    for number in range(4):
        assert group(footer, number)[2][1] == sum(meta(footer, column, number)[6][1] for column in range(5))
        assert group(footer, number)[6][1] == sum(part.size_bytes for part in described[number].chunks)
        assert all(part.offset_index and part.column_index for part in described[number].chunks)
        assert described[number].end - described[number].start == group(footer, number)[6][1]
    assert len(footer[7][1][1]) == 5
    assert [column.name for column in result.columns] == ["id", "name", "amount", *NAMES]


def test_spliced_columns_read_the_same_where_pages_are_skipped(tmp_path: Path) -> None:
    how: dict[str, Any] = {"write_page_index": True, "data_page_size": 256, "write_batch_size": 16}
    output, _ = copied([file_of(sample_table(400), **how), file_of(sample_table(400, 1000), **how)], [(0, 1), (5000, 2)])
    path = tmp_path / "output.parquet"
    path.write_bytes(output)
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT _row_id, {NAMES[1]} FROM '{path}' WHERE id = 1007 OR id = 399 ORDER BY id").fetchall()
    assert found == [(399, 1), (5007, 2)]


def test_the_stored_table_schema_goes_where_columns_were_added() -> None:
    bare, full = file_of(), file_of(stored=([1] * 100, [1] * 100))
    told = [key_value(data, "iceberg.schema", "{}") for data in (bare, full)]
    assert pq.read_metadata(io.BytesIO(copied([told[1]], [(0, 1)])[0])).metadata == {b"iceberg.schema": b"{}"}
    assert pq.read_metadata(io.BytesIO(copied([told[0]], [(0, 1)])[0])).metadata is None
    assert pq.read_metadata(io.BytesIO(copied([told[1], told[0]], [(0, 1)] * 2)[0])).metadata is None


# Refusals


def refused(*files: bytes) -> str:
    """The reason, given alike before, and during, the copy."""
    sources = sources_of(*files)
    footers = read_footers(sources)
    reason = refusal(footers, row_lineage=True)
    assert reason is not None
    for known in (None, footers):
        sink = MemorySink()
        with pytest.raises(CopyRefusedError) as caught:
            copy_row_groups(sources, known, sink, lineage=[(0, 1)] * len(files))
        assert (caught.value.reason, sink.ends) == (reason, ["aborted"])
    return reason


def named(*fields: pa.Field) -> bytes:
    return make_file(pa.table([[1]] * len(fields), schema=pa.schema(fields)), store_schema=False)


def test_files_without_field_ids_are_refused_because_ids_would_hide_their_other_columns() -> None:
    bare = named(pa.field("id", pa.int64()))
    assert refused(bare) == "0.parquet: it has no field ids, and row lineage cannot do without"
    assert refusal(read_footers(sources_of(bare))) is None


ID = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
TWISTED = {
    "one of two": [ID, LINEAGE[0]],
    "the other order": [ID, LINEAGE[1], LINEAGE[0]],
    "not last": [*LINEAGE, ID],
    "required": [ID, LINEAGE[0].with_nullable(False), LINEAGE[1]],
    "another type": [ID, LINEAGE[0].with_type(pa.int32()), LINEAGE[1]],
    "another column's name": [ID, pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2"})],
}


@pytest.mark.parametrize("name", TWISTED)
def test_lineage_columns_in_another_form_are_refused(name: str) -> None:
    assert refused(named(*TWISTED[name])) == "0.parquet: it has columns of row lineage in an unknown form"


def test_a_file_of_nothing_but_lineage_is_refused() -> None:
    assert refused(named(*LINEAGE)) == "0.parquet: it has no columns besides its row lineage"


def test_a_stored_arrow_schema_is_refused_where_it_would_lack_the_columns() -> None:
    reason = "0.parquet: its metadata key ARROW:schema lists its columns, without row lineage"
    assert refused(make_file()) == reason
    full = sample_table(2).append_column(LINEAGE[0], [[None, 5]]).append_column(LINEAGE[1], [[8, None]])
    assert lineage_in(copied([make_file(full)], [(30, 9)])[0]) == [(30, 8), (5, 9)]


def test_files_that_differ_in_more_than_lineage_are_refused_as_ever() -> None:
    other = file_of(pa.table({"id": pa.array([1])}, schema=pa.schema([ID])), stored=([1], [1]))
    assert refused(file_of(), other) == (
        "the schemas of 0.parquet and 1.parquet differ: the root is group of 5 here, the root is group of 3 there"
    )


def test_files_with_and_without_lineage_are_refused_when_it_is_not_asked_for() -> None:
    reason = refusal(read_footers(sources_of(file_of(), file_of(stored=([1] * 100, [1] * 100)))))
    assert reason == (
        "the schemas of 0.parquet and 1.parquet differ: the root is group of 3 here, the root is group of 5 there"
    )


# Damage


def test_lineage_that_cannot_be_decoded_is_called_corrupt() -> None:
    data = file_of(stored=([None] * 99 + [7], [None] * 100), compression="zstd")
    start = read_footer(BytesSource(data)).groups[0].chunks[3].start
    broken = data[: start + 2] + b"\xff" * 8 + data[start + 10 :]
    sink = MemorySink()
    with pytest.raises(CorruptFileError, match=r"^Cannot read 0.parquet: its row lineage cannot be decoded, .*"):
        copy_row_groups(sources_of(broken), None, sink, lineage=[(0, 1)])
    assert sink.ends == ["aborted"]


def test_lineage_whose_null_count_is_not_told_is_filled_all_the_same() -> None:
    def forget(footer: Struct) -> None:
        for column in (3, 4):
            meta(footer, column).pop(12)

    data = edited(file_of(stored=([None] * 99 + [7], [None] * 100)), forget)
    assert lineage_in(copied([data], [(10, 2)])[0]) == [(10 + position, 2) for position in range(99)] + [(7, 2)]


def test_bloom_filters_of_stored_lineage_are_left_behind_when_it_is_made_anew() -> None:
    options = {"bloom_filter_options": {"_row_id": {"ndv": 100, "fpp": 0.01}, "id": {"ndv": 100, "fpp": 0.01}}}
    output, _ = copied([file_of(stored=([None] * 99 + [7], [3] * 100), **options)], [(10, 2)])
    blooms = [part.bloom is not None for part in read_footer(BytesSource(output)).groups[0].chunks]
    assert blooms == [True, False, False, False, False]
    assert lineage_in(output)[98:] == [(108, 3), (7, 3)]


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_in_a_footer_never_give_a_wrong_copy(seed: int) -> None:
    random_ = random.Random(seed)
    stored: Stored | None = ([None] * 50 + [7] * 50, [None] * 100) if seed % 2 else None
    good = file_of(stored=stored, write_page_index=True, row_group_size=60)
    expected, raw = read(copied([good, good], [(0, 1)] * 2)[0]), raw_footer(good)
    accepted = 0
    for _ in range(150):
        flipped = bytearray(raw)
        flipped[random_.randrange(len(raw))] ^= 1 << random_.randrange(8)
        sources, sink = sources_of(with_footer(good, bytes(flipped)), good), MemorySink()
        try:
            copy_row_groups(sources, None, sink, lineage=[(0, 1)] * 2)
        except NeveError:
            assert sink.ends == ["aborted"]
            continue
        accepted += 1
        with suppress(OSError, ValueError, pa.ArrowException):
            found = read(sink.data)
            assert found["_row_id"].to_pylist() == expected["_row_id"].to_pylist()
            assert found.num_rows == expected.num_rows
    assert 0 < accepted < 150


def test_as_many_lineages_as_files_must_be_given() -> None:
    sink = MemorySink()
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        copy_row_groups(sources_of(file_of(), file_of()), None, sink, lineage=[(0, 1)])
    assert sink.ends == ["aborted"]
