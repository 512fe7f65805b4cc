"""How many row groups files have, where the metadata does not tell."""

from __future__ import annotations

from typing import Any

from neve.core.row_groups import estimated, row_groups_by_file, untold
from neve.core.units import MIB
from tests.core.make import make_files

ROWS: list[dict[str, Any]] = [
    {"path": "a", "size_bytes": 64 * MIB, "row_groups": -1},
    {"path": "b", "size_bytes": 32 * MIB, "row_groups": -1},
    {"path": "c", "size_bytes": 32 * MIB, "row_groups": 2},
    {"path": "d", "size_bytes": MIB, "row_groups": -1},
    {"path": "e", "size_bytes": 32 * MIB, "row_groups": -1, "format": "orc"},
    {"path": "f", "size_bytes": 32 * MIB, "row_groups": -1, "content": 1},
]


def test_only_parquet_data_files_that_nobody_knows_are_worth_a_look_at_their_footer() -> None:
    assert untold(make_files(ROWS), {"b": 4}) == ["a", "d"]


def test_files_that_nobody_knows_are_taken_to_be_cut_like_those_that_were_read() -> None:
    files, footers = make_files(ROWS), {"a": 8}
    groups, _ = row_groups_by_file(files, {}, footers)
    assert estimated(files, groups, footers).tolist() == [8, 4, 2, 1, -1, -1]


def test_without_a_sample_what_is_not_known_stays_unknown() -> None:
    files = make_files(ROWS)
    groups, _ = row_groups_by_file(files, {}, {})
    assert estimated(files, groups, {}).tolist() == [-1, -1, 2, -1, -1, -1]
