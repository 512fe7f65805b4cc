"""Columns of files, what is derived from them, and names of tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from neve.errors import BadRequestError
from neve.health.histogram import size_histogram
from neve.health.row_groups import count_row_groups
from neve.policy.model import Policy
from neve.table.files import UNKNOWN, FileColumns, bounds_schema, read_ids, spell_ids
from neve.table.state import TableName
from neve.table.units import KIB, MIB
from tests.builders.files import make_files


def test_columns_survive_json() -> None:
    files = make_files([{"size_bytes": 1}, {"partition": 1, "format": "puffin"}], partitions=("a=1", "a=2"))
    assert FileColumns.from_json(files.to_json()) == files


DELETES = {"referenced": "file-0.parquet", "content_offset": 4, "equality_ids": "1,3", "first_row_id": 7}


@pytest.mark.parametrize("name", DELETES)
def test_columns_in_which_a_file_says_something_survive_json_and_the_others_are_left_out(name: str) -> None:
    files = make_files([{}, {name: DELETES[name]}])
    written = files.to_json()
    assert written["columns"].keys() & DELETES.keys() == {name}
    assert FileColumns.from_json(written) == files


def test_columns_that_an_older_release_wrote_are_read() -> None:
    files = make_files([{"path": "a"}, {"path": "b"}])
    columns = files.table.drop_columns(list(DELETES)).to_pydict()
    read = FileColumns.from_json({"partitions": [[0, ""]], "columns": columns})
    assert read == files
    assert (
        read.table.select(list(DELETES)).to_pylist()
        == [{"referenced": "", "content_offset": UNKNOWN, "equality_ids": "", "first_row_id": UNKNOWN}] * 2
    )
    assert FileColumns.from_json(FileColumns.empty().to_json()) == FileColumns.empty()


@pytest.mark.parametrize(("ids", "text"), [((), ""), ((3,), "3"), ((12, 3, 3), "3,12")])
def test_a_set_of_field_ids_has_one_spelling(ids: tuple[int, ...], text: str) -> None:
    assert spell_ids(ids) == text
    assert read_ids(text) == tuple(sorted(set(ids)))


def test_columns_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="columns are"):
        FileColumns(table=pa.table({"path": ["x"]}), partitions=())


def test_bounds_are_one_row_for_each_file() -> None:
    files = make_files([{}, {}])
    bounds = bounds_schema([3]).empty_table()
    with pytest.raises(ValueError, match="Cannot hold files: there are 2, and bounds of 0"):
        replace(files, bounds=bounds)


def test_files_with_other_bounds_are_not_equal() -> None:
    files = make_files([{}])
    low, high = (replace(files, bounds=pa.table([[b], [b"z"]], schema=bounds_schema([3]))) for b in (b"a", b"b"))
    assert low == replace(files, bounds=low.bounds)
    assert low != high
    assert files != low
    assert FileColumns.from_json(low.to_json()) == files


def test_the_histogram_counts_each_data_file_once_and_no_delete() -> None:
    files = make_files([{"size_bytes": s} for s in (1, KIB, MIB, 100 * MIB, 500 * MIB)] + [{"content": 1, "size_bytes": 5}])
    buckets = size_histogram(files, Policy())
    assert sum(b.files for b in buckets) == 5
    assert sum(b.bytes for b in buckets) == 1 + KIB + MIB + 600 * MIB
    assert [(b.low_bytes, b.files) for b in buckets if b.files] == [(0, 2), (512 * KIB, 1), (32 * MIB, 1), (256 * MIB, 1)]


def test_a_size_on_an_edge_belongs_to_the_bar_that_starts_there() -> None:
    buckets = size_histogram(make_files([{"size_bytes": 128 * MIB}]), Policy())
    assert [(b.low_bytes, b.high_bytes) for b in buckets] == [(128 * MIB, 256 * MIB)]


def test_bars_join_without_gap() -> None:
    buckets = size_histogram(make_files([{"size_bytes": 1}, {"size_bytes": 5000 * MIB}]), Policy())
    assert all(a.high_bytes == b.low_bytes for a, b in pairwise(buckets))
    assert buckets[-1].high_bytes is None


def test_bars_reach_up_to_the_target_so_that_the_gap_is_seen() -> None:
    buckets = size_histogram(make_files([{"size_bytes": 1}]), Policy())
    assert (buckets[-1].high_bytes, buckets[-1].files) == (128 * MIB, 0)


def test_no_files_no_bars() -> None:
    assert size_histogram(make_files([]), Policy()) == ()


def test_row_groups_come_from_split_offsets_where_nothing_better_is_known() -> None:
    files = make_files([{"row_groups": 4, "size_bytes": 16 * MIB}, {"row_groups": UNKNOWN}])
    groups = count_row_groups(files, Policy(), {}, {})
    assert groups is not None
    assert groups.model_dump() == {
        "files_known": 1,
        "row_groups": 4,
        "average_bytes": 4 * MIB,
        "source": "split-offsets",
        "sources": ("split-offsets",),
        "files_with_small_groups": 1,
    }


def test_our_records_beat_split_offsets_and_footers_beat_both() -> None:
    files = make_files([{"path": "a", "row_groups": 1}, {"path": "b", "row_groups": 1}, {"path": "c", "row_groups": 1}])
    groups = count_row_groups(files, Policy(), {"a": 10, "b": 20}, {"b": 30})
    assert groups is not None
    assert (groups.row_groups, groups.source) == (41, "mixed")


def test_footers_of_every_file_leave_no_other_source() -> None:
    files = make_files([{"path": "a", "row_groups": 1}])
    groups = count_row_groups(files, Policy(), {"a": 2}, {"a": 3})
    assert groups is not None
    assert (groups.row_groups, groups.source) == (3, "footers")


def test_one_row_group_is_never_too_small() -> None:
    groups = count_row_groups(make_files([{"row_groups": 1, "size_bytes": 10}]), Policy(), {}, {})
    assert groups is not None
    assert groups.files_with_small_groups == 0


def test_unknown_everywhere_is_none() -> None:
    assert count_row_groups(make_files([{}]), Policy(), {}, {}) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("db.t", "main.db.t"),
        ("a.b.t", "main.a.b.t"),
        ("lake.db.t", "lake.db.t"),
        ("lake.t", "main.lake.t"),
        ("lake.a.b.t", "lake.a.b.t"),
    ],
)
def test_reads_table_names(text: str, name: str) -> None:
    assert str(TableName.parse(text, catalogs=frozenset({"lake", "main"}), default_catalog="main")) == name


@pytest.mark.parametrize(("text", "reason"), [("t", "a namespace is missing"), ("db..t", "empty part"), ("", "empty part")])
def test_refuses_names_that_name_no_table(text: str, reason: str) -> None:
    with pytest.raises(BadRequestError, match=f"Cannot read table name '{text}': {reason}"):
        TableName.parse(text, catalogs=frozenset(), default_catalog="main")


@pytest.mark.parametrize("target", [1, 50_000, 64 * 1024, 65_537, 10**9])
def test_the_histogram_has_an_edge_at_any_target(target: int) -> None:
    policy = Policy.model_validate({"target-file-size": target, "row-group-min-size": 1})
    buckets = size_histogram(make_files([{"size_bytes": 1}, {"size_bytes": 10 * target}]), policy)
    assert target in {bucket.low_bytes for bucket in buckets}
    assert sum(bucket.files for bucket in buckets) == 2
