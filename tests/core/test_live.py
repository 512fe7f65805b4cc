"""Data files in Iceberg's JSON: what is read from them, and what a new one says."""

from __future__ import annotations

from neve.rewrite.live_files import Ancestor, LiveFile, SharedDeletes, describe_output
from neve.rewrite.work_order import OutputFile
from neve.table.metrics import ColumnMetrics

DESCRIBED = {
    "spec-id": 3,
    "content": "data",
    "file-path": "s3://b/t/data/day=2024-02-29/1.parquet",
    "file-format": "parquet",
    "partition": ["2024-02-29"],
    "file-size-in-bytes": 731,
    "record-count": 10,
    "column-sizes": {"keys": [1, 2], "values": [69, 73]},
    "value-counts": {"keys": [1, 2], "values": [10, 10]},
    "null-value-counts": {"keys": [1, 2], "values": [0, 4]},
    "nan-value-counts": {"keys": [2], "values": [1]},
    "lower-bounds": {"keys": [1], "values": ["0A00000000000000"]},
    "upper-bounds": {"keys": [1], "values": ["1300000000000000"]},
    "split-offsets": [4],
    "sort-order-id": 5,
    "first-row-id": 10,
    "key-metadata": "00FF",
}


def test_reads_path_size_rows_and_metrics() -> None:
    file = LiveFile(DESCRIBED)
    assert (file.path, file.size_bytes, file.records) == ("s3://b/t/data/day=2024-02-29/1.parquet", 731, 10)
    ten, nineteen = (10).to_bytes(8, "little"), (19).to_bytes(8, "little")
    assert file.metrics == {
        1: ColumnMetrics(size_bytes=69, values=10, nulls=0, lower=ten, upper=nineteen),
        2: ColumnMetrics(size_bytes=73, values=10, nulls=4, nans=1),
    }


def test_a_file_without_statistics_has_no_metrics() -> None:
    assert LiveFile({"file-path": "/t/a"}).metrics == {}


def test_deletes_are_known_by_path_and_vectors_by_their_place_in_it_as_well() -> None:
    vector = {"content": "position-deletes", "file-path": "/t/v.puffin", "content-offset": 46}
    position = {"content": "position-deletes", "file-path": "/t/pos"}
    equality = {"content": "equality-deletes", "file-path": "/t/eq"}
    file = LiveFile(DESCRIBED, (vector, position, equality))
    assert file.deletes == {("/t/v.puffin", 46), ("/t/pos", 0), ("/t/eq", 0)}
    assert file.equality_deletes == {("/t/eq", 0)}
    assert file.described_deletes[("/t/v.puffin", 46)] is vector
    assert file.position_deletes == {("/t/v.puffin", 46), ("/t/pos", 0)}
    assert LiveFile(DESCRIBED).deletes == LiveFile(DESCRIBED).equality_deletes == frozenset()


def test_deletes_that_files_share_are_told_as_if_each_had_its_own() -> None:
    position = {"content": "position-deletes", "file-path": "/t/pos"}
    equality = tuple({"content": "equality-deletes", "file-path": f"/t/eq{i}"} for i in range(2))
    shared = SharedDeletes(equality)
    alone, sharing = LiveFile(DESCRIBED, (position, *equality)), LiveFile(DESCRIBED, (position,), shared)
    for name in ("deletes", "equality_deletes", "position_deletes", "described_deletes"):
        assert getattr(sharing, name) == getattr(alone, name)
    assert sharing.equality_deletes is LiveFile(DESCRIBED, (), shared).equality_deletes
    assert sharing.has_deletes
    assert not LiveFile(DESCRIBED).has_deletes


def test_a_new_file_keeps_spec_and_partition_and_nothing_that_was_the_old_ones_own() -> None:
    output = OutputFile(path="s3a://b/t/new.parquet", size_bytes=99, records=7, row_groups=2, split_offsets=(4, 50), metrics={})
    metrics = {
        7: ColumnMetrics(values=7, nans=0, lower=b"\x0a", upper=b"\xff"),
        1: ColumnMetrics(size_bytes=3, values=7, nulls=0),
    }
    assert describe_output(LiveFile(DESCRIBED), output, metrics) == {
        "spec-id": 3,
        "content": "data",
        "file-format": "parquet",
        "partition": ["2024-02-29"],
        "file-path": "s3a://b/t/new.parquet",
        "file-size-in-bytes": 99,
        "record-count": 7,
        "split-offsets": [4, 50],
        "sort-order-id": 0,
        "column-sizes": {"keys": [1], "values": [3]},
        "value-counts": {"keys": [1, 7], "values": [7, 7]},
        "null-value-counts": {"keys": [1], "values": [0]},
        "nan-value-counts": {"keys": [7], "values": [0]},
        "lower-bounds": {"keys": [7], "values": ["0A"]},
        "upper-bounds": {"keys": [7], "values": ["FF"]},
    }


def test_a_new_file_has_the_format_that_it_was_written_in_and_not_that_of_an_old_one() -> None:
    output = OutputFile(
        path="/t/new.orc", file_format="orc", size_bytes=1, records=1, row_groups=1, split_offsets=(3,), metrics={}
    )
    assert describe_output(LiveFile(DESCRIBED), output, {})["file-format"] == "orc"


def test_metrics_survive_the_way_through_a_description() -> None:
    output = OutputFile(path="/t/new", size_bytes=1, records=10, row_groups=1, split_offsets=(4,), metrics={})
    file = LiveFile(DESCRIBED)
    assert LiveFile(describe_output(file, output, file.metrics)).metrics == file.metrics


def test_ancestors_are_equal_whatever_they_could_be_asked() -> None:
    plain = Ancestor(2, 1, "append", {})
    assert plain == Ancestor(2, 1, "append", {}, removed_deletes=lambda: {("/t/d", 0): 1})
    assert plain.removed_deletes() == {}
