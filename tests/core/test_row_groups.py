"""How many row groups files have, where the metadata does not tell."""

from __future__ import annotations

from typing import Any

from neve.health.row_groups import count_row_groups, estimated, row_groups_by_file, untold
from neve.policy.model import Policy
from neve.table.files import POSITION_DELETES, FileColumns
from neve.table.units import MIB
from tests.builders.files import make_files

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


def test_row_groups_with_half_the_rows_that_the_policy_fixes_are_not_small() -> None:
    files = make_files([{"size_bytes": MIB, "row_groups": 2, "records": records} for records in (100, 1000)])
    assert _small(files, Policy()) == 2
    assert _small(files, Policy.model_validate({"row-group-rows": 500})) == 1


def _small(files: FileColumns, policy: Policy) -> int:
    found = count_row_groups(files, policy, {}, {})
    assert found is not None
    return found.files_with_small_groups


def test_only_sources_that_told_of_a_data_file_are_named() -> None:
    files = make_files(
        [
            {"path": "ours"},
            {"path": "told", "row_groups": 3},
            {"path": "read"},
            {"path": "delete", "content": POSITION_DELETES, "row_groups": 1},
        ]
    )

    def named(records: dict[str, int], footers: dict[str, int]) -> tuple[str, tuple[str, ...]]:
        found = count_row_groups(files, Policy(), records, footers)
        assert found is not None
        return found.source, found.sources

    assert named({}, {}) == ("split-offsets", ("split-offsets",))
    assert named({"ours": 2}, {}) == ("mixed", ("records", "split-offsets"))
    assert named({"ours": 2}, {"read": 2}) == ("mixed", ("records", "footers", "split-offsets"))
    assert named({"ours": 2, "told": 3}, {}) == ("records", ("records",))
