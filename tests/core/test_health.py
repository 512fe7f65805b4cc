"""Each finding: when it is made, how bad it is, what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve.core.health import RULES, Vitals, assess
from neve.core.inspection import DeleteCounts, Finding, ManifestCounts, RowGroups
from neve.core.policy import Policy
from neve.core.skipping import Clustering, ColumnClustering
from neve.core.units import GIB, MIB

HEALTHY = Vitals(
    data_files=10,
    data_bytes=GIB,
    rows=1000,
    small_files=0,
    removable_files=0,
    partitions=1,
    tiny_partitions=0,
    deletes=DeleteCounts(),
    row_groups=None,
    unsorted_files=None,
    clustering=None,
    manifests=ManifestCounts(data_manifests=1, delete_manifests=0, bytes=1000, average_files=10),
    expirable_snapshots=0,
    metadata_bytes=1000,
)
SICK = replace(
    HEALTHY,
    data_files=100,
    small_files=100,
    removable_files=100,
    partitions=200,
    tiny_partitions=200,
    deletes=DeleteCounts(equality_files=100, equality_rows=1000),
    row_groups=RowGroups(files_known=5, row_groups=50, average_bytes=1, source="footers", files_with_small_groups=5),
    unsorted_files=100,
    manifests=ManifestCounts(data_manifests=500, delete_manifests=1, bytes=1000, average_files=1),
    expirable_snapshots=1000,
    metadata_bytes=100 * MIB,
)


def finding(vitals: Vitals, code: str) -> Finding | None:
    return next((f for f in assess(vitals, Policy()).findings if f.code == code), None)


def test_a_healthy_table_scores_100_without_findings() -> None:
    assert assess(HEALTHY, Policy()).model_dump() == {"score": 100, "findings": ()}


def test_the_sickest_table_scores_0_and_shows_every_rule() -> None:
    health = assess(SICK, Policy())
    assert (health.score, len(health.findings)) == (0, len(RULES))


def test_the_weights_add_up_to_100() -> None:
    assert sum(f.weight for f in assess(SICK, Policy()).findings) == 100


def test_the_worst_finding_comes_first() -> None:
    points = [f.points for f in assess(replace(SICK, removable_files=20), Policy()).findings]
    assert points == sorted(points, reverse=True)


def test_small_files_are_as_bad_as_the_share_that_merging_removes() -> None:
    found = finding(replace(HEALTHY, data_files=50, data_bytes=50 * MIB, small_files=50, removable_files=49), "small-files")
    assert found is not None
    assert found.severity == 0.98
    assert found.evidence == "50 of 50 data files are below 64 MB, 1 MB on average"
    assert found.fix == "Merge them: about 1 file of up to 128 MB would remain"


def test_a_small_file_that_has_no_neighbour_is_no_finding() -> None:
    assert finding(replace(HEALTHY, small_files=10, removable_files=0), "small-files") is None


def test_what_was_not_read_is_no_finding() -> None:
    nothing = Vitals(None, None, None, None, None, None, None, None, None, None, None, None, 0, None)
    assert assess(nothing, Policy()).score == 100


@pytest.mark.parametrize(
    ("deletes", "severity"),
    [
        (DeleteCounts(position_files=1, position_rows=0), 0.2),
        (DeleteCounts(vectors=1, vector_rows=400), 0.8),
        (DeleteCounts(position_files=5, position_rows=0), 1.0),
    ],
)
def test_deletes_weigh_by_files_or_rows_whichever_is_worse(deletes: DeleteCounts, severity: float) -> None:
    found = finding(replace(HEALTHY, deletes=deletes), "deletes")
    assert found is not None
    assert found.severity == pytest.approx(severity)


@pytest.mark.parametrize(("count", "severity"), [(10, None), (11, 0.1), (51, 0.5), (1000, 1.0)])
def test_manifests_count_from_ten_too_many(count: int, severity: float | None) -> None:
    manifests = ManifestCounts(data_manifests=count, delete_manifests=0, bytes=1000, average_files=1)
    found = finding(replace(HEALTHY, manifests=manifests), "manifests")
    assert (found.severity if found else None) == severity


def test_many_manifests_are_right_for_much_metadata() -> None:
    manifests = ManifestCounts(data_manifests=100, delete_manifests=0, bytes=100 * 8 * MIB, average_files=9)
    assert finding(replace(HEALTHY, manifests=manifests), "manifests") is None


def test_few_tiny_partitions_are_no_finding() -> None:
    assert finding(replace(HEALTHY, partitions=200, tiny_partitions=99), "tiny-partitions") is None
    assert finding(replace(HEALTHY, partitions=200, tiny_partitions=100), "tiny-partitions") is not None


def test_files_that_overlap_are_told_where_the_table_has_a_layout_and_none_is_unsorted() -> None:
    column = ColumnClustering(name="city", depth=9, point_read=0.9, point_read_after=0.1, range_read=0.95, range_read_after=0.2)
    clustering = Clustering(
        layout="sort(city)", depth=9, worst_depth=12, depth_after=1, columns=(column,), run_files=40, run_bytes=GIB // 4
    )
    found = finding(replace(HEALTHY, clustering=clustering), "overlap")
    assert found is not None
    assert found.severity == 0.25
    assert found.evidence == "a row's values lie in 9.0 files on average; a query for one value of city reads 90% of the bytes"
    assert found.fix == "Cluster 40 files (256 MB): such a query would read 10%"
    assert finding(replace(HEALTHY, clustering=clustering.model_copy(update={"run_bytes": 0})), "overlap") is None
    assert finding(replace(HEALTHY, clustering=clustering, unsorted_files=1), "overlap") is None
    hopeless = clustering.model_copy(update={"columns": (column.model_copy(update={"point_read_after": 0.8}),)})
    assert finding(replace(HEALTHY, clustering=hopeless), "overlap") is None
