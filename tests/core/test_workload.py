"""The class of a workload, case by case."""

from __future__ import annotations

import pytest

from neve.health.inspection import WorkloadKind
from neve.health.workload import classify, operation_of
from neve.table.state import Snapshot

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 100 * DAY


def snapshot(at_ms: int, operation: str = "append", **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=at_ms,
        parent_id=None,
        sequence_number=1,
        timestamp_ms=at_ms,
        operation=operation,
        summary={key.replace("_", "-"): value for key, value in summary.items()},
    )


def every(gap_ms: int, count: int, operation: str = "append", **summary: str) -> list[Snapshot]:
    return [snapshot(NOW - i * gap_ms - 1, operation, **summary) for i in range(count)]


@pytest.mark.parametrize(
    ("snapshots", "kind"),
    [
        ([], WorkloadKind.EMPTY),
        (every(MINUTE, 50, "replace"), WorkloadKind.EMPTY),
        (every(MINUTE, 50), WorkloadKind.STREAMING),
        (every(15 * MINUTE, 3), WorkloadKind.STREAMING),
        (every(15 * MINUTE, 2), WorkloadKind.APPEND),
        (every(2 * HOUR, 20), WorkloadKind.APPEND),
        (every(13 * HOUR, 8), WorkloadKind.BATCH),
        (every(MINUTE, 1), WorkloadKind.BATCH),
        (every(MINUTE, 20, "overwrite"), WorkloadKind.BATCH),
        (every(MINUTE, 20, "overwrite", added_delete_files="1"), WorkloadKind.CDC),
        (every(MINUTE, 20) + every(MINUTE, 2, "delete", added_dvs="3"), WorkloadKind.STREAMING),
        (every(MINUTE, 18) + every(MINUTE, 2, "delete", added_dvs="3"), WorkloadKind.CDC),
        ([snapshot(NOW - 8 * DAY)], WorkloadKind.COLD),
    ],
)
def test_names_the_class(snapshots: list[Snapshot], kind: WorkloadKind) -> None:
    assert classify(snapshots, NOW).kind is kind


def test_leaves_our_own_commits_out_of_the_cadence() -> None:
    ours = [
        Snapshot(
            snapshot_id=i,
            parent_id=None,
            sequence_number=1,
            timestamp_ms=NOW - i,
            operation="append",
            summary={"neve.run-id": "r"},
        )
        for i in range(100)
    ]
    workload = classify([*ours, *every(2 * HOUR, 5)], NOW)
    assert (workload.kind, workload.commits, workload.median_gap_seconds) == (WorkloadKind.APPEND, 5, 7200.0)


def test_does_not_depend_on_the_order_of_snapshots() -> None:
    snapshots = every(7 * MINUTE, 11)
    assert classify(snapshots, NOW) == classify(snapshots[::-1], NOW)


def test_looks_only_at_the_last_week_that_saw_writes() -> None:
    workload = classify([*every(MINUTE, 3), snapshot(NOW - 30 * DAY)], NOW)
    assert (workload.commits, workload.window_seconds) == (3, 120.0)


@pytest.mark.parametrize(
    ("snapshots", "evidence"),
    [
        (every(MINUTE, 1), "1 append only"),
        (every(13 * HOUR, 8), "8 appends, 13 h apart"),
        (every(MINUTE, 1, "overwrite"), "1 of 1 write overwrites or deletes"),
        (every(MINUTE, 20, "overwrite"), "20 of 20 writes overwrite or delete"),
        (
            [*every(MINUTE, 19), snapshot(NOW, "overwrite", added_data_files="1", added_delete_files="1")],
            "19 appends and 1 update, 60 s apart (median)",
        ),
        (
            [*every(MINUTE, 19), snapshot(NOW, "overwrite", added_data_files="1", deleted_data_files="1")],
            "19 appends and 1 overwrite, 60 s apart (median)",
        ),
        (
            [*every(13 * HOUR, 8), snapshot(NOW - 1, "delete", deleted_data_files="1"), snapshot(NOW, "overwrite")],
            "8 appends, 1 overwrite and 1 delete, 13 h apart",
        ),
    ],
)
def test_the_evidence_counts_in_plain_words(snapshots: list[Snapshot], evidence: str) -> None:
    assert classify(snapshots, NOW).evidence == evidence


@pytest.mark.parametrize(
    ("operation", "summary", "told"),
    [
        ("append", {"added_data_files": "1"}, "append"),
        ("append", {}, "append"),
        ("overwrite", {"added_data_files": "1", "added_delete_files": "1"}, "update"),
        ("overwrite", {"added_data_files": "1", "added_position_deletes": "5"}, "update"),
        ("append", {"added_data_files": "1", "added_dvs": "1"}, "update"),
        ("overwrite", {"added_data_files": "1", "deleted_data_files": "1"}, "overwrite"),
        ("overwrite", {"added_data_files": "1", "replace_partitions": "true"}, "overwrite"),
        ("overwrite", {"deleted_data_files": "1", "added_data_files": "0"}, "delete"),
        ("overwrite", {"added_delete_files": "1"}, "delete"),
        ("delete", {"added_dvs": "1"}, "delete"),
        ("delete", {"deleted_data_files": "1"}, "delete"),
        ("overwrite", {}, "overwrite"),
        ("delete", {}, "delete"),
        ("something-new", {}, "something-new"),
    ],
)
def test_a_write_is_named_by_what_it_did(operation: str, summary: dict[str, str], told: str) -> None:
    one = snapshot(NOW, operation, **summary)
    assert operation_of(one) == told
    assert classify([one], NOW).operations == {told: 1}
