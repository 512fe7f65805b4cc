"""Partition scores against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from neve.health.ranking import partition_columns, rank
from neve.policy.model import Policy
from neve.table.files import Partition
from neve.table.state import Snapshot
from neve.table.units import MIB
from tests.builders.files import make_files

HOUR = 3_600_000
NOW = 1000 * HOUR


def snapshot(snapshot_id: int, at_ms: int, operation: str = "append") -> Snapshot:
    return Snapshot(
        snapshot_id=snapshot_id, parent_id=None, sequence_number=1, timestamp_ms=at_ms, operation=operation, summary={}
    )


def score(rows: Sequence[dict[str, Any]], snapshots: list[Snapshot], compacted: dict[Partition, int] | None = None) -> float:
    files = make_files(rows)
    columns = partition_columns(files, Policy(), snapshots, compacted or {})
    return rank(files, columns, NOW, 10)[0].score


def test_adds_the_four_parts_with_their_weights() -> None:
    rows = [{"size_bytes": MIB} for _ in range(10)] + [{"size_bytes": 100 * MIB} for _ in range(10)]
    rows += [{"content": 1, "size_bytes": 1} for _ in range(5)]
    # 20 data files, 5 deletes, written 12 hours ago and never compacted, 10 small
    assert score(rows, [snapshot(1, NOW - 12 * HOUR)]) == pytest.approx(0.3 * 0.2 + 0.3 * 0.25 + 0.2 * 0.5 + 0.2 * 0.5)


def test_every_part_is_clamped_to_its_weight() -> None:
    rows = [{"size_bytes": 1} for _ in range(500)] + [{"content": 2} for _ in range(2000)]
    assert score(rows, [snapshot(1, 0)]) == pytest.approx(1.0)


def test_a_file_written_by_a_replace_snapshot_tells_the_last_compaction() -> None:
    rows = [{"size_bytes": 100 * MIB, "snapshot_id": 1}, {"size_bytes": 100 * MIB, "snapshot_id": 2}]
    snapshots = [snapshot(1, NOW - 100 * HOUR), snapshot(2, NOW - 6 * HOUR, "replace")]
    assert score(rows, snapshots) == pytest.approx(0.3 * 0.02 + 0.2 * 0.25)


def test_our_records_come_before_replace_snapshots() -> None:
    rows = [{"size_bytes": 100 * MIB, "snapshot_id": 2}]
    snapshots = [snapshot(2, NOW - 12 * HOUR, "replace")]
    assert score(rows, snapshots, {Partition(0, ""): NOW - 3 * HOUR}) == pytest.approx(0.3 * 0.01 + 0.2 * 0.125)


def test_a_partition_of_unknown_age_counts_as_old() -> None:
    assert score([{"size_bytes": 100 * MIB, "snapshot_id": 99}], []) == pytest.approx(0.3 * 0.01 + 0.2)


def test_a_clock_behind_the_writer_does_not_lower_the_score_below_the_other_parts() -> None:
    assert score([{"size_bytes": 100 * MIB}], [snapshot(1, NOW + 50 * HOUR)]) == pytest.approx(0.003)


def test_ranks_the_worst_first_then_by_bytes_then_by_name() -> None:
    rows = [{"partition": p, "size_bytes": size} for p, size in ((0, 9 * MIB), (1, 5 * MIB), (2, 9 * MIB))]
    rows += [{"partition": 3, "size_bytes": MIB} for _ in range(3)]
    files = make_files(rows, partitions=("d=b", "d=c", "d=a", "d=d"))
    ranked = rank(files, partition_columns(files, Policy(), [], {}), NOW, 10)
    assert [p.partition for p in ranked] == ["d=d", "d=a", "d=b", "d=c"]


def test_lists_no_more_than_the_limit() -> None:
    files = make_files([{"partition": i} for i in range(5)], partitions=[f"d={i}" for i in range(5)])
    assert len(rank(files, partition_columns(files, Policy(), [], {}), NOW, 2)) == 2


def test_an_empty_table_has_no_partitions_to_rank() -> None:
    files = make_files([], partitions=())
    assert rank(files, partition_columns(files, Policy(), [], {}), NOW, 10) == ()


@pytest.mark.parametrize(
    ("sizes", "removable"),
    [
        ([1], 0),
        ([1, 1], 1),
        ([60, 60, 60], 1),
        ([60, 60, 60, 60], 2),
        ([100, 1], 0),
        ([100, 1, 1], 1),
        ([], 0),
    ],
)
def test_counts_the_files_that_merging_would_remove(sizes: list[int], removable: int) -> None:
    files = make_files([{"size_bytes": size * MIB} for size in sizes])
    assert partition_columns(files, Policy(), [], {}).removable_files(128 * MIB) == removable


def test_merging_never_crosses_a_partition() -> None:
    files = make_files([{"partition": 0}, {"partition": 1}], partitions=("a", "b"))
    assert partition_columns(files, Policy(), [], {}).removable_files(128 * MIB) == 0
