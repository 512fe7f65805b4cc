"""Reading footers: what is found, what is objected to, what is a lie."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import NeveError
from neve.kernels.faults import CorruptFileError
from neve.kernels.parquet import thrift
from neve.kernels.parquet.chunks import parse_carefully, parse_quickly
from neve.kernels.parquet.footer import Footer, read_footer
from neve.kernels.streams import BytesSource
from tests.builders.parquet_files import (
    RecordingSource,
    Struct,
    chunk,
    created_by,
    edited,
    group,
    make_file,
    meta,
    raw_footer,
    sample_table,
    with_footer,
)


def footer_of(data: bytes) -> Footer:
    return read_footer(BytesSource(data, "a.parquet"))


def objection_to(data: bytes) -> str | None:
    return footer_of(data).objection


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "page index": {"write_page_index": True},
    "many groups": {"row_group_size": 9, "write_page_index": True},
    "no dictionary": {"use_dictionary": False},
    "no statistics": {"write_statistics": False},
    "bloom filter": {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.01}}},
    "sorted": {"sorting_columns": [pq.SortingColumn(0)]},
}


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_a_footer_says_what_pyarrow_says(options: dict[str, Any]) -> None:
    data = make_file(**options)
    theirs = pq.read_metadata(io.BytesIO(data))
    ours = footer_of(data)
    assert (ours.rows, len(ours.groups), ours.created_by) == (100, theirs.num_row_groups, theirs.created_by)
    for number, ours_group in enumerate(ours.groups):
        assert ours_group.rows == theirs.row_group(number).num_rows
        for column, ours_chunk in enumerate(ours_group.chunks):
            expected = theirs.row_group(number).column(column)
            assert ours_chunk.size_bytes == expected.total_compressed_size
            assert ours_chunk.start == (expected.dictionary_page_offset or expected.data_page_offset)
            assert ours_chunk.values == expected.num_values
            assert ours_chunk.nulls == (expected.statistics.null_count if expected.statistics else -1)
            assert (ours_chunk.column_index is not None, ours_chunk.bloom is not None) == (
                expected.has_column_index,
                expected.bloom_filter_offset is not None,
            )


def test_columns_carry_their_field_ids_and_nested_names() -> None:
    inner = pa.list_(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "8"}))
    nested = pa.schema([pa.field("s", pa.struct([pa.field("l", inner)]), metadata={"PARQUET:field_id": "7"})])
    leaves = footer_of(make_file(pa.table({"s": [{"l": [1, 2]}]}, schema=nested))).schema.leaves
    assert [(leaf.name, leaf.field_id, leaf.is_repeated) for leaf in leaves] == [("s.l.list.element", 8, True)]
    plain = footer_of(make_file()).schema.leaves
    assert [(leaf.name, leaf.field_id, leaf.is_repeated) for leaf in plain] == [
        ("id", 1, False),
        ("name", 2, False),
        ("amount", 3, False),
    ]


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_the_quick_and_the_careful_way_read_the_same(options: dict[str, Any]) -> None:
    footer = footer_of(make_file(**options))
    is_common = not options.get("bloom_filter_options") and options.get("write_statistics", True)
    for found in footer.groups:
        # A chunk's description starts with its file offset (two bytes here) and the head of its metadata.
        for number, (described, leaf) in enumerate(zip(found.chunks, footer.schema.leaves, strict=True)):
            at = described.meta_start - 3
            careful = parse_carefully(footer.raw, at, leaf)
            quick = parse_quickly(footer.raw, at, leaf)
            assert careful[0] == described
            assert quick == (careful if is_common or (number and options.get("write_statistics", True)) else None)


def test_the_quick_way_leaves_alone_what_only_looks_common() -> None:
    def mislabel(footer: Struct) -> None:
        meta(footer)[10] = meta(footer).pop(12)

    raw = raw_footer(edited(make_file(use_dictionary=False), mislabel))
    footer = footer_of(make_file(use_dictionary=False))
    leaf, at = footer.schema.leaves[0], footer.groups[0].chunks[0].meta_start - 3
    assert parse_quickly(footer.raw, at, leaf) is not None
    assert parse_quickly(raw, at, leaf) is None
    with pytest.raises(ValueError, match="field 10 of ColumnMetaData is of kind 12, not 6"):
        parse_carefully(raw, at, leaf)


def test_a_known_schema_is_recognised_and_another_is_not() -> None:
    first = footer_of(make_file())
    again = read_footer(BytesSource(make_file(sample_table(5))), known=first.schema)
    other = read_footer(BytesSource(make_file(pa.table({"x": [1]}))), known=first.schema)
    assert again.schema is first.schema
    assert [leaf.name for leaf in other.schema.leaves] == ["x"]


def test_a_footer_takes_one_request_and_a_very_long_one_takes_two() -> None:
    short = RecordingSource(make_file(sample_table(30_000)))
    read_footer(short)
    assert short.requests == [(short.size_bytes - 65_536, 65_536)]
    wide = RecordingSource(make_file(pa.table({f"column_{n}": [n] for n in range(1_000)})))
    read_footer(wide)
    assert len(wide.requests) == 2


def test_row_groups_without_rows_are_left_out() -> None:
    out = io.BytesIO()
    table = sample_table()
    with pq.ParquetWriter(out, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table.slice(0, 0))
        writer.write_table(table)
    footer = footer_of(out.getvalue())
    assert [found.rows for found in footer.groups] == [100, 100]


def test_a_dictionary_page_at_0_means_none() -> None:
    data = make_file(use_dictionary=False)
    told = edited(data, lambda footer: meta(footer).update({11: (thrift.I64, 0)}))
    assert footer_of(told).objection is None
    assert footer_of(told).groups[0].chunks[0].start == footer_of(data).groups[0].chunks[0].start == 4


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it does not end like a Parquet file"),
    "not Parquet": (lambda data: data[:-4] + b"ORC1", "it does not end like a Parquet file"),
    "cut": (lambda data: data[:-20], "it does not end like a Parquet file"),
    "long footer": (lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", r"its footer claims 2147483647 bytes, the file has \d+"),
    "footer of zeros": (lambda data: with_footer(data, b"\0"), "its footer makes no sense, it lacks field 1"),
    "footer of ones": (lambda data: with_footer(data, b"\xff" * 40), "its footer makes no sense, .*"),
    "endless nesting": (
        lambda data: with_footer(data, b"\xac" * 9999),
        "its footer makes no sense, it is nested more than 64 deep",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_called_corrupt(name: str) -> None:
    break_, reason = BROKEN[name]
    with pytest.raises(CorruptFileError, match=f"^Cannot read a.parquet: {reason}$") as caught:
        footer_of(break_(make_file()))
    assert caught.value.hint
    assert isinstance(caught.value, NeveError)


def put(place: Struct, field: int, value: int, kind: int = thrift.I64) -> None:
    place[field] = (kind, value)


LIES: dict[str, tuple[Callable[[Struct], object], str]] = {
    "rows": (lambda f: put(f, 3, 101), "it claims 101 rows and its row groups 100"),
    "rows of a group": (lambda f: (put(f, 3, 99), put(group(f), 3, 99)), "column id has 100 values in 99 rows"),
    "values": (lambda f: put(meta(f), 5, 7), "column id has 7 values in 100 rows"),
    "chunk beyond the file": (lambda f: put(meta(f, 2), 7, 10**9), r"a row group spans bytes 4 to \d+, the data 4 to \d+"),
    "negative size": (lambda f: put(meta(f), 7, -5), "field 7 of the metadata of column id is -5"),
    "data page": (lambda f: put(meta(f), 9, 10**12), r"column id has a page at \d+, outside its chunk"),
    "dictionary page": (lambda f: put(meta(f), 11, 10**12), "column id has a page at 1000000000000, outside its chunk"),
    "negative dictionary": (lambda f: put(meta(f), 11, -9), "field 11 of the metadata of column id is -9"),
    "page before the file": (lambda f: (meta(f).pop(11), put(meta(f), 9, 2)), "a row group spans bytes 2 to .*"),
    "column index": (lambda f: put(chunk(f), 6, 10**9), r"column id refers to \d+ bytes at 1000000000"),
    "empty offset index": (lambda f: put(chunk(f), 5, 0, thrift.I32), r"column id refers to 0 bytes at \d+"),
    "bloom filter": (lambda f: put(meta(f), 14, 10**9), "column id refers to -1 bytes at 1000000000"),
    "type": (lambda f: put(meta(f), 1, 5, thrift.I32), "the chunk of column id is labelled as another column's"),
    "swapped columns": (lambda f: group(f)[1][1][1].reverse(), "the chunk of column id is labelled as another column's"),
    "missing column": (lambda f: group(f)[1][1][1].pop(), "a row group has 2 columns, the schema 3"),
    "no schema": (lambda f: f.pop(2), "it has no schema before its row groups"),
    "no rows": (lambda f: f.pop(3), "it lacks field 3"),
    "no data page": (lambda f: meta(f).pop(9), ".*"),
    "version of a wrong kind": (lambda f: put(f, 1, 2), "its field 1 is of kind 6"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_footer_that_contradicts_its_file_is_called_corrupt(name: str) -> None:
    edit, reason = LIES[name]
    data = make_file(write_page_index=True)
    with pytest.raises(CorruptFileError, match=rf"^Cannot read a.parquet: its footer (makes no sense, |lacks .*){reason}$"):
        footer_of(edited(data, edit))


STRUCT_OF_NOTHING: tuple[int, Struct] = (thrift.STRUCT, {})
OBJECTIONS: dict[str, tuple[Callable[[Struct], object], str]] = {
    "encrypted file": (lambda f: f.update({8: STRUCT_OF_NOTHING}), "it is encrypted or signed"),
    "encrypted column": (lambda f: chunk(f).update({8: STRUCT_OF_NOTHING}), "column id is encrypted"),
    "bytes elsewhere": (
        lambda f: chunk(f).update({1: (thrift.BINARY, b"other.parquet")}),
        "column id keeps its bytes in another file",
    ),
    "metadata elsewhere": (lambda f: chunk(f).pop(3), "column id has no metadata in the footer"),
    "unknown field of a chunk": (
        lambda f: meta(f).update({18: (thrift.I64, 4)}),
        "a column chunk has field 18, which this version does not know",
    ),
    "unknown field of a group": (
        lambda f: group(f).update({8: (thrift.I64, 4)}),
        "a row group has field 8, which this version does not know",
    ),
    "unknown field of the file": (
        lambda f: f.update({10: (thrift.I64, 4)}),
        "its footer has field 10, which this version does not know",
    ),
    "overlapping chunks": (
        lambda f: put(meta(f), 7, meta(f)[7][1] + 1),
        "its column chunks overlap or are not in the order of the schema",
    ),
    "groups in disorder": (
        lambda f: f[4][1][1].reverse(),
        "its row groups overlap or are not in ascending order",
    ),
}


@pytest.mark.parametrize("name", OBJECTIONS)
def test_a_file_that_cannot_be_moved_by_copying_says_why(name: str) -> None:
    edit, reason = OBJECTIONS[name]
    footer = footer_of(edited(make_file(row_group_size=60), edit))
    assert footer.objection == reason
    assert footer.groups == ()


def test_an_encrypted_footer_is_objected_to() -> None:
    assert objection_to(make_file()[:-4] + b"PARE") == "its footer is encrypted"


def spread(data: bytes, gap: int) -> bytes:
    """The same file with unused bytes before its third column."""

    def shift(footer: Struct) -> None:
        for field in (9, 11):
            put(meta(footer, 2), field, meta(footer, 2)[field][1] + gap)

    at = footer_of(data).groups[0].chunks[2].start
    return edited(data[:at] + b"?" * gap + data[at:], shift)


def test_small_gaps_between_chunks_belong_to_the_group_and_large_ones_are_objected_to() -> None:
    data = make_file()
    whole, with_gap = footer_of(data).groups[0], footer_of(spread(data, 100)).groups[0]
    assert (with_gap.start, with_gap.end) == (whole.start, whole.end + 100)
    assert objection_to(spread(data, 65_537)) == "65537 bytes lie unused between its column chunks"


def test_a_missing_writer_is_an_empty_name() -> None:
    assert footer_of(edited(make_file(), lambda footer: footer.pop(6))).created_by == ""
    assert footer_of(created_by(make_file(), "x")).created_by == "x"
