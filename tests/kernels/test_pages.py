"""Walking page headers: whole or in pieces, and every way in which a footer may be wrong about its pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neve.errors import NeveError
from neve.kernels.faults import CopyRefusedError, Objection
from neve.kernels.parquet.copying import copy_row_groups
from neve.kernels.parquet.footer import read_footer
from neve.kernels.parquet.pages import PageWalk, is_common
from neve.kernels.streams import BytesSource
from tests.builders.parquet_files import MemorySink, Struct, edited, make_file, meta, thrift

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none"},
    "snappy": {"compression": "snappy"},
    "zstd": {"compression": "zstd"},
    "gzip": {"compression": "gzip"},
    "lz4": {"compression": "lz4"},
    "brotli": {"compression": "brotli"},
    "version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 64, "write_batch_size": 8, "write_page_checksum": True},
    "no dictionary": {"use_dictionary": False},
}


def walk(data: bytes, step: int) -> None:
    """All row groups, in pieces of this many bytes."""
    footer = read_footer(BytesSource(data, "a.parquet"))
    for group in footer.groups:
        pages = PageWalk(group, footer.schema.leaves)
        for at in range(group.start, group.end, step):
            pages.feed(at, memoryview(data)[at : min(at + step, group.end)])
        pages.finish()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("step", [1, 7, 100, 10**9])
def test_pages_are_walked_however_their_bytes_arrive(options: dict[str, Any], step: int) -> None:
    walk(make_file(row_group_size=60, **options), step)


@pytest.mark.parametrize("name", ["plain", "snappy", "zstd", "gzip", "small pages", "no dictionary"])
def test_the_common_layout_takes_the_short_way(name: str) -> None:
    data = make_file(**OPTIONS[name])
    footer = read_footer(BytesSource(data))
    columns = zip(footer.groups[0].chunks, footer.schema.leaves, strict=True)
    assert all(is_common(memoryview(data), 0, chunk, leaf) for chunk, leaf in columns)


def put(field: int, change: Callable[[int], int], kind: int = thrift.I64) -> Callable[[Struct], None]:
    def edit(footer: Struct) -> None:
        place = meta(footer)
        place[field] = (kind, change(place[field][1]))

    return edit


WRONG: dict[str, tuple[Callable[[Struct], None], str]] = {
    "codec": (put(4, lambda _: 6, thrift.I32), "is not compressed with codec 6"),
    "no codec": (put(4, lambda _: 0, thrift.I32), "is not compressed with codec 0"),
    "codec without marks": (put(4, lambda _: 7, thrift.I32), "is not compressed with codec 7"),
    "codec that nobody writes": (put(4, lambda _: 3, thrift.I32), "codec 3 cannot be recognized in its pages"),
    "shorter chunk": (put(7, lambda size: size - 1), r"a page ends at byte \d+, the chunk at \d+"),
    "data page": (put(9, lambda offset: offset + 1), r"its first data page is at byte \d+, not at \d+"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("step", [13, 10**9])
def test_a_footer_that_is_wrong_about_its_pages_is_objected_to(name: str, step: int) -> None:
    edit, reason = WRONG[name]
    with pytest.raises(Objection, match=f"the pages of column id are not as its footer says: .*{reason}"):
        walk(edited(make_file(compression="snappy"), edit), step)


def test_pages_with_other_values_than_the_footer_says_are_objected_to() -> None:
    def fewer(footer: Struct) -> None:
        footer[3] = group_rows = (thrift.I64, 99)
        footer[4][1][1][0][3] = group_rows
        for column in range(3):
            meta(footer, column)[5] = group_rows

    with pytest.raises(Objection, match="its pages have 100 values, its chunk 99"):
        walk(edited(make_file(), fewer), 10**9)


def test_a_copy_of_such_a_file_is_refused_and_names_it() -> None:
    sink, edit = MemorySink(), WRONG["codec"][0]
    sources = [BytesSource(make_file(), "0.parquet"), BytesSource(edited(make_file(), edit), "1.parquet")]
    with pytest.raises(CopyRefusedError, match=r"^Cannot copy row groups: 1\.parquet: the pages of column id"):
        copy_row_groups(sources, None, sink)
    assert sink.ends == ["aborted"]


def test_any_flipped_bit_in_a_page_header_is_accepted_or_refused_with_the_file() -> None:
    good = make_file(use_dictionary=False, compression="none")  # a data page with statistics comes first
    refused = 0
    for at in range(4, 60):
        for bit in range(8):
            data = good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]
            try:
                copy_row_groups([BytesSource(data, "0.parquet")], None, MemorySink())
            except NeveError as error:
                assert "0.parquet" in str(error)  # noqa: PT017 - most are refused, some are accepted
                refused += 1
    assert refused > 100
