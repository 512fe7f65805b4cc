"""Which delete applies to which file: rule by rule, and against a plain model that looks at every pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import CorruptMetadataError
from neve.table.delete_index import DeleteIndex, may_have_deletes, unpartitioned
from neve.table.files import DATA, EQUALITY_DELETES, UNKNOWN, FileColumns, Partition
from neve.table.state import PartitionField, PartitionSpec
from tests.builders.delete_files import P0_OF_ANOTHER_SPEC, P1, UNPARTITIONED, Row, data, equality, positions, vector
from tests.builders.files import make_files

PARTITIONS = (Partition(0, "p=0"), Partition(0, "p=1"), Partition(1, "p=0"), Partition(2, ""))


def index_of(rows: list[Row], ours: tuple[str, ...] = ()) -> DeleteIndex:
    return DeleteIndex.of(make_files(rows, PARTITIONS), unpartitioned_specs={2}, ours=ours)


def applied(rows: list[Row], ours: tuple[str, ...] = ()) -> dict[str, str]:
    """By data file, the deletes that the index gives for it."""
    index = index_of(rows, ours)
    found = {}
    for i, row in enumerate(rows):
        vector = index.vector_of(i)
        deletes = [*([] if vector is None else [vector]), *index.positions_for(i), *index.equality_for(i)]
        if row.get("content", DATA) == DATA:
            found[row["path"]] = " ".join(rows[j]["path"] for j in deletes)
        else:
            assert deletes == []
    return found


CASES: dict[str, tuple[list[Row], dict[str, str], str]] = {
    "a position delete applies to older files and to files of its own age": (
        [data("old", 1), data("same", 3), data("new", 4), positions("d", 3)],
        {"old": "d", "same": "d", "new": ""},
        "",
    ),
    "an equality delete applies to older files only": (
        [data("old", 1), data("same", 3), data("new", 4), equality("d", 3)],
        {"old": "d", "same": "", "new": ""},
        "",
    ),
    "a vector applies to the file that it names, if that is not newer": (
        [data("old", 1), data("same", 3), data("other", 1), vector("v", 3, of="old"), vector("w", 3, of="same", offset=9)],
        {"old": "v", "same": "w", "other": ""},
        "",
    ),
    "a position delete that names a file applies to no other": (
        [data("a", 1), data("b", 1), positions("d", 2, of="a")],
        {"a": "d", "b": ""},
        "",
    ),
    "deletes stay in their partition": (
        [data("a", 1), data("b", 1, P1), positions("p", 2), equality("e", 2)],
        {"a": "p e", "b": ""},
        "",
    ),
    "deletes stay in their spec, though the partition is spelled alike": (
        [data("a", 1), data("b", 1, P0_OF_ANOTHER_SPEC), positions("p", 2), equality("e", 2)],
        {"a": "p e", "b": ""},
        "",
    ),
    "an equality delete without partition applies to the whole table": (
        [data("a", 1), data("b", 1, P0_OF_ANOTHER_SPEC), data("c", 1, UNPARTITIONED), equality("e", 2, UNPARTITIONED)],
        {"a": "e", "b": "e", "c": "e"},
        "",
    ),
    "a global equality delete spares files of its own age": (
        [data("a", 2), data("b", 1, P1), equality("e", 2, UNPARTITIONED)],
        {"a": "", "b": "e"},
        "",
    ),
    "a position delete without partition applies to files without partition": (
        [data("a", 1), data("c", 1, UNPARTITIONED), positions("p", 2, UNPARTITIONED)],
        {"a": "", "c": "p"},
        "",
    ),
    "a vector makes position deletes of its file void, older and newer, and no equality delete": (
        [
            data("a", 1),
            data("b", 1),
            positions("p", 2),
            positions("q", 2, of="a"),
            positions("r", 9, of="a"),
            vector("v", 3, of="a"),
            equality("e", 4),
        ],
        {"a": "v e", "b": "p e"},
        "q r",
    ),
    "a vector older than its file is not its vector": (
        [data("a", 5), positions("p", 5), vector("v", 3, of="a")],
        {"a": "p"},
        "v",
    ),
    "vectors that share a Puffin file are known by their offsets": (
        [data("a", 1), data("b", 1), vector("v", 2, of="a"), vector("v", 2, of="b", offset=90)],
        {"a": "v", "b": "v"},
        "",
    ),
    "a delete that is listed twice applies once": (
        [data("a", 1), equality("e", 2), equality("e", 2), positions("p", 2), positions("p", 2), vector("v", 1, of="z")],
        {"a": "p e"},
        "v",
    ),
    "a vector that is listed twice applies once": (
        [data("a", 1), vector("v", 2, of="a"), vector("v", 2, of="a")],
        {"a": "v"},
        "",
    ),
    "of a delete that is listed twice the newer entry counts, and the older one does not dangle": (
        [data("a", 3), equality("e", 4), equality("e", 2)],
        {"a": "e"},
        "",
    ),
    "a delete listed for two partitions applies in both": (
        [data("a", 1), data("b", 1, P1), equality("e", 2), equality("e", 2, P1)],
        {"a": "e", "b": "e"},
        "",
    ),
    "several deletes come oldest first": (
        [data("a", 1), equality("e9", 9), equality("e5", 5, UNPARTITIONED), positions("p4", 4), positions("p2", 2, of="a")],
        {"a": "p2 p4 e5 e9"},
        "",
    ),
    "a delete that names a file applies wherever that is: the name alone says which file is meant": (
        [data("a", 1, P1), positions("d", 2, of="a")],
        {"a": "d"},
        "",
    ),
    "an equality delete dangles when every file is as new": (
        [data("a", 2), data("b", 1, P1), equality("e", 2)],
        {"a": "", "b": ""},
        "e",
    ),
    "a global equality delete dangles when every file of the table is as new": (
        [data("a", 2), data("b", 2, P1), equality("e", 2, UNPARTITIONED)],
        {"a": "", "b": ""},
        "e",
    ),
    "a position delete dangles when every file of its partition is newer": (
        [data("a", 3), data("b", 1, P1), positions("p", 2)],
        {"a": "", "b": ""},
        "p",
    ),
    "deletes that name a file which is gone, or newer, dangle": (
        [data("a", 3), positions("p", 2, of="gone"), positions("q", 2, of="a"), vector("v", 3, of="gone")],
        {"a": ""},
        "p q v",
    ),
    "deletes of an empty partition dangle": (
        [data("a", 1), positions("p", 2, P1), equality("e", 2, P1)],
        {"a": ""},
        "p e",
    ),
    "a path that only a data file has is not taken for a name": (
        [data("", 1), positions("p", 2)],
        {"": "p"},
        "",
    ),
    "a table without deletes": ([data("a", 1)], {"a": ""}, ""),
    "a table without data": ([positions("p", 1), equality("e", 1)], {}, "p e"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_delete_applies_as_the_specification_says(case: str) -> None:
    rows, expected, dangling = CASES[case]
    index = index_of(rows)
    assert applied(rows) == expected
    assert [row["path"] for row, marked in zip(rows, index.dangling(), strict=True) if marked] == dangling.split()
    has_deletes = {row["path"] for row, marked in zip(rows, index.has_deletes(), strict=True) if marked}
    assert has_deletes == {path for path, deletes in expected.items() if deletes}


def test_two_vectors_for_one_file_are_refused() -> None:
    rows = [data("a", 1), vector("v", 2, of="a"), vector("w", 3, of="a")]
    with pytest.raises(CorruptMetadataError, match="Cannot apply deletes to a: it has 2 deletion vectors"):
        index_of(rows).vector_of(0)
    assert index_of(rows).has_deletes().tolist() == [True, False, False]


def test_a_file_that_we_wrote_is_not_named_by_position_deletes_as_old_as_itself() -> None:
    rows = [data("old", 1), data("same", 3), data("new", 4), positions("p", 3), positions("q", 4)]
    assert applied(rows, ours=("same", "new")) == {"old": "p q", "same": "q", "new": ""}
    assert applied([*rows, positions("r", 4, of="new")], ours=("new",))["new"] == "r"
    assert applied([*rows, vector("v", 4, of="new")], ours=("new",))["new"] == "v"
    assert applied([data("a", 1), equality("e", 2)], ours=("a",)) == {"a": "e"}
    mask = may_have_deletes(make_files(rows, PARTITIONS), unpartitioned_specs={2}, ours=("same", "new"))
    assert mask.tolist() == [True, True, False, False, False]


def test_no_files_no_deletes() -> None:
    index = DeleteIndex.of(FileColumns.empty(), unpartitioned_specs={0})
    nothing = np.zeros(0, dtype=np.int64)
    assert [len(index.has_deletes()), len(index.dangling()), *map(len, index.sums(nothing, nothing, 0))] == [0, 0, 0, 0, 0]


def test_a_spec_whose_fields_were_all_dropped_is_unpartitioned() -> None:
    def spec(spec_id: int, *transforms: str) -> PartitionSpec:
        fields = [PartitionField(name=t, transform=t, source_id=1, field_id=1000 + i) for i, t in enumerate(transforms)]
        return PartitionSpec(spec_id=spec_id, fields=tuple(fields))

    assert unpartitioned([spec(0), spec(1, "day"), spec(2, "void", "void"), spec(3, "void", "day")]) == {0, 2}


def test_a_group_counts_each_of_its_deletes_once() -> None:
    rows = [
        *[data(f"a{i}", i) for i in range(4)],
        data("b", 1, P1),
        {**equality("e3", 3), "size_bytes": 10},
        {**equality("e2", 2), "size_bytes": 100},
        {**equality("g", 2, UNPARTITIONED), "size_bytes": 1000},
        {**positions("p", 1), "size_bytes": 10_000},
        {**vector("v", 5, of="a0"), "size_bytes": 100_000},
        {**vector("v", 5, of="b", offset=90), "size_bytes": 1_000_000},
    ]
    sums = index_of(rows).sums(np.array([0, 1, 3, 4]), np.array([0, 0, 2, 1]), 4)
    assert sums.files.tolist() == [5, 2, 0, 0]
    assert sums.bytes.tolist() == [111_110, 1_001_000, 0, 0]
    assert sums.equality_bytes.tolist() == [1110, 1000, 0, 0]


def paths(rows: list[Row], marked: Any) -> list[str]:
    return [row["path"] for row, mark in zip(rows, marked, strict=True) if mark]


def test_deletes_that_would_dangle_without_some_files_are_told_beforehand() -> None:
    rows = [data("a", 1), data("b", 1), data("c", 1, P1), equality("e", 2), equality("f", 2, P1), vector("v", 2, of="a")]
    index = index_of(rows)
    assert paths(rows, index.dangling(without=np.array([True, False, False, False, False, False]))) == ["v"]
    assert paths(rows, index.dangling(without=np.array([True, True, False, False, False, False]))) == ["e", "v"]
    assert paths(rows, index.dangling()) == []


def test_tells_which_files_a_delete_applies_to() -> None:
    rows = [data("a", 1), data("b", 2), data("c", 1, P1), equality("e", 2), equality("f", 3), equality("g", 2, UNPARTITIONED)]
    index = index_of(rows)
    assert [paths(rows, index.applies_to(np.arange(len(rows)) == i)) for i in (3, 4, 5)] == [["a"], ["a", "b"], ["a", "c"]]
    assert paths(rows, index.applies_to(np.isin(np.arange(len(rows)), [3, 4]))) == ["a", "b"]


names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(1, 5)
places = st.integers(0, 3)
files = st.lists(
    st.builds(data, names, numbers, places)
    | st.builds(lambda n, p, of: positions(f"p{n}{p}{of}", n, p, of=of), numbers, places, st.sampled_from(["", "a", "b", "z"]))
    | st.builds(lambda n, p: equality(f"e{n % 3}", n, p), numbers, places)
    | st.builds(lambda n, p, of: vector("v", n, p, of=of, offset=ord(of)), numbers, places, st.sampled_from(["a", "z"])),
    max_size=14,
)


def has_vector(rows: list[Row], file: Row) -> bool:
    return any(
        row.get("format") == "puffin"
        and row["referenced"] == file["path"]
        and row["sequence_number"] >= file["sequence_number"]
        for row in rows
    )


def concerns(rows: list[Row], delete: Row, file: Row) -> bool:
    """The specification, read aloud for one pair."""
    age = delete["sequence_number"] - file["sequence_number"]
    home = delete["partition"] == file["partition"]
    if delete["content"] == EQUALITY_DELETES:
        return age > 0 and (home or delete["partition"] == UNPARTITIONED)
    if delete.get("format") != "puffin" and has_vector(rows, file):
        return False
    return age >= 0 and (delete["referenced"] == file["path"] if delete["referenced"] else home)


def key(row: Row) -> tuple[str, int]:
    return row["path"], row.get("content_offset", UNKNOWN)


@given(files, st.lists(st.integers(0, 2), min_size=14, max_size=14))
def test_agrees_with_a_look_at_every_pair(rows: list[Row], groups: list[int]) -> None:
    rows = [{"content": DATA, "size_bytes": 7 ** (i % 5), **row} for i, row in enumerate(rows)]
    sizes: dict[Any, int] = {}
    for row in rows:
        row["size_bytes"] = sizes.setdefault((key(row), row["partition"]), row["size_bytes"])
    index = index_of(rows)
    live = [i for i, row in enumerate(rows) if row["content"] == DATA]
    deletes = [i for i, row in enumerate(rows) if row["content"] != DATA]
    pairs = {(i, j) for i in live for j in deletes if concerns(rows, rows[j], rows[i])}

    found = set()
    for i in live:
        attached = np.concatenate([index.vectors.for_any(i), index.positions_for(i), index.equality_for(i)]).tolist()
        once = [(key(rows[j]), rows[j]["partition"]) for j in attached]
        assert len(set(once)) == len(once)
        found |= {(i, same) for same in once}
        assert {(i, j) for j in attached} <= pairs
    assert found == {(i, (key(rows[j]), rows[j]["partition"])) for i, j in pairs}

    assert set(np.flatnonzero(index.has_deletes())) == {i for i, _ in pairs}
    used = {key(rows[j]) for _, j in pairs}
    assert set(np.flatnonzero(index.dangling())) == {j for j in deletes if key(rows[j]) not in used}
    gone = np.array([groups[i] == 0 for i in range(len(rows))], dtype=bool)
    used = {key(rows[j]) for i, j in pairs if not gone[i]}
    assert set(np.flatnonzero(index.dangling(without=gone))) == {j for j in deletes if key(rows[j]) not in used}

    sums = index.sums(np.array(live, dtype=np.int64), np.array([groups[i] for i in live], dtype=np.int64), 3)
    for group in range(3):
        entries = {(key(rows[j]), rows[j]["partition"]): rows[j] for i, j in pairs if groups[i] == group}
        by_equality = [row for row in entries.values() if row["content"] == EQUALITY_DELETES]
        assert sums.files[group] == len(entries)
        assert sums.bytes[group] == sum(row["size_bytes"] for row in entries.values())
        assert sums.equality_bytes[group] == sum(row["size_bytes"] for row in by_equality)
