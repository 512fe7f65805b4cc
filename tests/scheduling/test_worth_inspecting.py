"""Whether a table's manifests are worth reading."""

from __future__ import annotations

from typing import Any

import pytest

from neve.scheduling.worth_inspecting import worth_inspecting
from neve.table.units import MIB
from tests.builders.scheduling import HOUR, MINUTE, NOW, counters, inspected, observation

GOOD: dict[str, Any] = {"data_files": 10, "total_bytes": 1_280 * MIB, "delete_files": 0}
SHABBY: dict[str, Any] = {"data_files": 100, "total_bytes": 100 * MIB, "delete_files": 0}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (GOOD, None),
        (GOOD | {"snapshot_id": None}, None),
        (GOOD | {"total_bytes": None}, "its summary has no totals"),
        (GOOD | {"data_files": None}, "its summary has no totals"),
        (GOOD | {"delete_files": 2}, "2 delete files"),
        (SHABBY, "files have 1 MB on average (below 64 MB)"),
        ({"data_files": 1, "total_bytes": 1, "delete_files": 0}, None),
        (GOOD | {"counters": counters(50)}, "50 commits since it was last inspected"),
        (GOOD | {"counters": counters(49)}, None),
        (SHABBY | {"properties": {"write.target-file-size-bytes": str(MIB)}}, None),
        (SHABBY | {"properties": {"neve.target-file-size": "64 MB"}}, "files have 1 MB on average (below 32 MB)"),
        (SHABBY | {"properties": {"neve.target-file-size": "nonsense"}}, "files have 1 MB on average (below 64 MB)"),
    ],
)
def test_a_table_that_was_never_inspected_is_if_its_summary_suggests_work(values: dict[str, Any], reason: str | None) -> None:
    assert worth_inspecting(observation(**values), NOW) == reason


def test_the_policys_small_size_goes_before_the_tables_own() -> None:
    seen = observation(**SHABBY)
    assert worth_inspecting(seen, NOW, small_bytes=MIB) is None
    assert worth_inspecting(seen, NOW, small_bytes=2 * MIB) == "files have 1 MB on average (below 2 MB)"


def test_a_table_that_has_not_changed_is_not_inspected_again() -> None:
    assert worth_inspecting(observation(**SHABBY, inspected=inspected(snapshot_id=5)), NOW) is None
    assert worth_inspecting(observation(**SHABBY, inspected=inspected(snapshot_id=4, inspected_ms=NOW - 2 * HOUR)), NOW)


def test_work_that_an_old_inspection_found_is_checked_again() -> None:
    old = inspected(snapshot_id=4, small_files=3, delete_files=1, inspected_ms=NOW - 2 * HOUR)
    seen = observation(data_files=10, total_bytes=10_000 * MIB, delete_files=0, inspected=old)
    assert worth_inspecting(seen, NOW) == "3 small files and 1 delete file were found at an earlier snapshot"
    clean = inspected(snapshot_id=4, inspected_ms=NOW - 2 * HOUR)
    assert worth_inspecting(seen.model_copy(update={"inspected": clean}), NOW) is None


RECENT = {"snapshot_id": 4, "inspected_ms": NOW - MINUTE, "data_files": 100, "commits": 7}


@pytest.mark.parametrize(
    ("values", "found", "waits"),
    [
        ({}, {}, True),
        ({"counters": counters(17)}, {}, False),
        ({"data_files": 111}, {}, False),
        ({"data_files": 110}, {}, True),
        ({"own_snapshot_id": 5}, {}, False),
        ({"hinted_ms": NOW}, {}, False),
        ({"hinted_ms": NOW - HOUR}, {}, True),
        ({}, {"inspected_ms": NOW - HOUR}, False),
        ({}, {"inspected_ms": NOW + HOUR}, False),
    ],
    ids=["little", "commits", "files", "few files", "our run", "hint", "old hint", "an hour", "clock set back"],
)
def test_a_table_that_changed_little_waits_up_to_an_hour(values: dict[str, Any], found: dict[str, Any], waits: bool) -> None:
    seen = observation(**{**SHABBY, "counters": counters(8), **values}, inspected=inspected(**{**RECENT, **found}))
    assert (worth_inspecting(seen, NOW) is None) == waits
