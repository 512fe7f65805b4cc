"""Writers that change rows: their commits, their rhythm, when to commit between two of them, and which partitions to leave."""

from __future__ import annotations

from typing import Any

import pytest

from neve.health.row_changes import Rhythm, changes_rows, changing_since_ms
from neve.policy.model import Policy
from neve.rewrite.memory import Memory
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.table.state import RUN_ID, Snapshot
from neve.table.units import MIB
from tests.builders.files import make_files
from tests.builders.table_states import make_state

S = 1000
NOW = 1_000_000 * S


@pytest.mark.parametrize(
    ("operation", "summary", "expected"),
    [
        ("overwrite", {"deleted-data-files": "2", "added-data-files": "2"}, True),  # copy-on-write
        ("delete", {"deleted-data-files": "1"}, True),
        ("delete", {"added-delete-files": "1", "added-position-delete-files": "1"}, True),  # merge-on-read
        ("overwrite", {"added-dvs": "3", "added-data-files": "1"}, True),
        ("append", {"added-data-files": "5"}, False),
        ("replace", {"deleted-data-files": "9", "added-data-files": "1"}, False),
        ("overwrite", {"replace-partitions": "true", "deleted-data-files": "2"}, False),
        ("overwrite", {"added-equality-delete-files": "1", "added-position-delete-files": "1"}, False),  # Flink's upsert
        ("delete", {RUN_ID: "r", "deleted-data-files": "2"}, False),
        ("overwrite", {"deleted-data-files": "many"}, False),
        ("overwrite", {}, False),
    ],
)
def test_commits_that_replacing_files_can_make_fail_are_known(operation: str, summary: dict[str, str], expected: bool) -> None:
    assert changes_rows(operation, summary) is expected


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        ([], None),
        ([3], None),
        ([13, 8, 3], Rhythm(NOW - 3 * S, 5 * S)),
        ([3, 13, 8], Rhythm(NOW - 3 * S, 5 * S)),  # in any order
        ([600, 13, 8, 3], Rhythm(NOW - 3 * S, 5 * S)),  # a pause long ago does not count
        ([25, 20, 15], Rhythm(NOW - 15 * S, 5 * S)),
        ([26, 21, 16], None),  # more than three periods ago: it has stopped
        ([7200, 3600, 60], Rhythm(NOW - 60 * S, 3570 * S)),
    ],
)
def test_the_rhythm_of_a_writer_is_its_last_commit_and_its_usual_period(ago: list[int], expected: Rhythm | None) -> None:
    assert Rhythm.of([NOW - seconds * S for seconds in ago], NOW) == expected


def test_only_the_last_twenty_commits_count() -> None:
    old = [NOW - (100 * S + 60 * S * i) for i in range(30)]
    new = [NOW - S * i for i in range(21)]
    assert Rhythm.of([*old, *new], NOW) == Rhythm(NOW, S)


@pytest.mark.parametrize(("ago", "expected"), [([], 60), ([3], 60), ([13, 8, 3], 60), ([65, 35, 5], 300)])
def test_a_writer_is_at_work_in_a_partition_for_a_minute_or_for_ten_periods(ago: list[int], expected: int) -> None:
    assert changing_since_ms([NOW - seconds * S for seconds in ago], NOW) == NOW - expected * S


def snapshot(number: int, parent: int | None, ago: int, operation: str, **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_id=parent,
        sequence_number=number,
        timestamp_ms=NOW - ago * S,
        operation=operation,
        summary={key.replace("_", "-"): value for key, value in summary.items()},
    )


def planned(ago: int, *, compacted: int | None, request: Request | None = None, **knobs: Any) -> Plan:
    """Two partitions of small files. An UPDATE rewrote one file of `hot` so many seconds ago, a compaction one of each."""
    chain = [
        snapshot(1, None, 90_000, "append"),
        snapshot(2, 1, compacted or 80_000, "replace" if compacted else "append"),
        snapshot(3, 2, ago, "overwrite", deleted_data_files="1"),
    ]
    rows = [
        {"partition": home, "size_bytes": MIB, "row_groups": 1, "snapshot_id": number}
        for home in (0, 1)
        for number in [*[1] * 18, 2, 3 if home == 0 else 1]
    ]
    files = make_files(rows, partitions=["hot", "cold"])
    state = make_state(snapshots=tuple(chain), snapshot_id=3, files=files, sort_orders=(), default_sort_order_id=0, refs=())
    policy = Policy.model_validate({key.replace("_", "-"): value for key, value in knobs.items()})
    return plan(state, policy, now_ms=NOW, memory=Memory(), request=request)


def homes(found: Plan) -> list[str]:
    return sorted(group.partition for group in found.groups)


def test_a_partition_whose_rows_change_now_is_compacted_at_most_every_so_often() -> None:
    found = planned(10, compacted=120)
    assert homes(found) == ["cold"]
    (skipped,) = found.skipped
    assert skipped.partition == "hot"
    assert skipped.reason == (
        "another writer changed its rows 10 s ago (UPDATE, DELETE or MERGE); "
        "compacted 2 min ago, at most every 5 min (row-change-interval)"
    )


@pytest.mark.parametrize(
    "case",
    [
        {"ago": 61, "compacted": 120},  # the writer has moved on
        {"ago": 10, "compacted": 301},  # it has waited long enough
        {"ago": 10, "compacted": None},  # never compacted
        {"ago": 10, "compacted": 120, "row_change_interval": "1 min"},
        {"ago": 10, "compacted": 120, "request": Request(force=True)},
    ],
)
def test_other_partitions_are_not_left_for_that(case: dict[str, Any]) -> None:
    assert homes(planned(**case)) == ["cold", "hot"]
