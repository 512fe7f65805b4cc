"""Which files deletes may apply to, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from neve.core.deletes import may_have_deletes
from neve.core.files import EQUALITY_DELETES, POSITION_DELETES, FileColumns
from tests.core.make import make_files


def data(path: str, partition: int, number: int) -> dict[str, Any]:
    return {"path": path, "partition": partition, "sequence_number": number}


def delete(content: int, partition: int, number: int) -> dict[str, Any]:
    return {"path": f"d{content}{partition}{number}", "content": content, "partition": partition, "sequence_number": number}


def hit(rows: list[dict[str, Any]], *, unpartitioned: tuple[int, ...] = (), ours: tuple[str, ...] = ()) -> set[str]:
    files = make_files(rows, partitions=["p=0", "p=1"])
    mask = may_have_deletes(files, unpartitioned_specs=unpartitioned, ours=ours)
    return {row["path"] for row, marked in zip(rows, mask, strict=True) if marked}


DATA_FILES = [data("old", 0, 1), data("same", 0, 3), data("new", 0, 4), data("elsewhere", 1, 1)]


@pytest.mark.parametrize(
    ("content", "expected"), [(POSITION_DELETES, {"old", "same"}), (EQUALITY_DELETES, {"old"})], ids=["position", "equality"]
)
def test_a_delete_applies_in_its_partition_to_files_that_are_old_enough(content: int, expected: set[str]) -> None:
    assert hit([*DATA_FILES, delete(content, 0, 3)]) == expected


def test_the_newest_of_several_deletes_counts() -> None:
    rows = [*DATA_FILES, delete(EQUALITY_DELETES, 0, 2), delete(EQUALITY_DELETES, 0, 5), delete(POSITION_DELETES, 1, 1)]
    assert hit(rows) == {"old", "same", "new", "elsewhere"}


def test_an_equality_delete_of_an_unpartitioned_spec_applies_everywhere_and_a_position_delete_does_not() -> None:
    files = [*DATA_FILES, {**data("home", 0, 1)}]
    assert hit([*files, delete(EQUALITY_DELETES, 0, 2)], unpartitioned=(0,)) == {"old", "home", "elsewhere"}
    assert hit([*files, delete(POSITION_DELETES, 0, 2)], unpartitioned=(0,)) == {"old", "home"}


def test_a_file_that_we_wrote_is_not_named_by_position_deletes_as_old_as_itself() -> None:
    rows = [*DATA_FILES, delete(POSITION_DELETES, 0, 3)]
    assert hit(rows, ours=("same",)) == {"old"}
    assert hit([*rows, delete(POSITION_DELETES, 0, 4)], ours=("same", "new")) == {"old", "same"}


def test_a_table_without_deletes_has_none() -> None:
    assert hit(DATA_FILES) == set()
    assert not may_have_deletes(FileColumns.empty(), unpartitioned_specs=(), ours=()).any()
