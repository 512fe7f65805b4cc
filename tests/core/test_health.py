"""Each finding: when it is made, how bad it is, what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve.health.inspection import DeleteCounts, Finding, ManifestCounts, RowGroups
from neve.health.not_due import NotDue
from neve.health.score import RULES, Compaction, EqualityDeletes, Vitals, assess
from neve.health.skipping import Clustering, ColumnClustering
from neve.policy.model import Policy
from neve.table.units import GIB, MIB
from tests.builders.measurements import HEALTHY, SICK, manifest_plan

FEW_FILES = NotDue(
    rule="fragments", what="files below 16 MB", where="p=1", measured=4, threshold=5, knob="min-input-files", more=1
)
FEW_DELETES = NotDue(
    rule="delete-files",
    what="delete files per data file",
    measured=0.05,
    threshold=0.1,
    unit="ratio",
    knob="delete-ratio",
    more=5,
    more_of="delete file",
)
FRESH_GROUPS = NotDue(
    rule="small-row-groups",
    what="time since the last compaction",
    measured=3600,
    threshold=86400,
    unit="seconds",
    knob="reencode-after",
    due_ms=0,
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


CRUMBS = replace(HEALTHY, data_files=50, data_bytes=50 * MIB, small_files=50, removable_files=49)


def test_small_files_are_as_bad_as_the_share_that_a_compaction_removes() -> None:
    found = finding(replace(CRUMBS, compaction=Compaction(removed_files=49)), "small-files")
    assert found is not None
    assert (found.severity, found.operation, found.not_due) == (0.98, "compact", ())
    assert found.evidence == "50 of 50 data files are below 64 MB, 1 MB on average"
    assert found.fix == "Merge them: about 1 file of up to 128 MB would remain"


def test_small_files_that_the_policy_leaves_alone_take_no_points_and_say_why() -> None:
    found = finding(replace(CRUMBS, compaction=Compaction(not_due=(FEW_FILES, FEW_DELETES))), "small-files")
    assert found is not None
    assert (found.points, found.operation, found.not_due) == (0, None, (FEW_FILES,))
    assert (found.title, found.fix) == (
        "Small files that the policy leaves alone",
        "Nothing to do now. Files below 16 MB in p=1: 4, due from 5 (min-input-files), with 1 more file",
    )


def test_of_small_files_only_those_count_that_are_due() -> None:
    found = finding(replace(CRUMBS, compaction=Compaction(removed_files=10, not_due=(FEW_FILES,))), "small-files")
    assert found is not None
    assert (found.severity, found.operation, found.not_due) == (0.2, "compact", (FEW_FILES,))
    assert found.fix == "Merge them: about 40 files of up to 128 MB would remain"


def test_small_files_that_the_strategy_does_not_take_name_the_strategy() -> None:
    found = finding(CRUMBS, "small-files")
    assert found is not None
    assert found.fix == "Nothing to do now. Strategy small-files takes other files, due once another one is set"


def test_without_the_files_small_ones_are_an_estimate_and_no_operation_is_advised() -> None:
    found = finding(replace(CRUMBS, small_files=None, compaction=None), "small-files")
    assert found is not None
    assert (found.severity, found.operation) == (0.98, None)
    assert found.fix == "An estimate from the table's totals: inspect with --depth files to see what can be done"


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
    compaction = Compaction(files_with_deletes=4, applied_files=4)
    found = finding(replace(HEALTHY, deletes=deletes, compaction=compaction), "deletes")
    assert found is not None
    assert (found.severity, found.operation) == (pytest.approx(severity), "compact")
    assert found.fix == "Rewrite 4 files that they apply to, so that the deleted rows are gone for good"


DELETES = DeleteCounts(position_files=5, position_rows=0)


def test_of_deletes_only_those_count_that_a_compaction_would_apply() -> None:
    some = Compaction(files_with_deletes=4, applied_files=1, not_due=(FEW_FILES, FEW_DELETES))
    found = finding(replace(HEALTHY, deletes=DELETES, compaction=some), "deletes")
    assert found is not None
    assert (found.severity, found.operation, found.not_due) == (0.25, "compact", (FEW_DELETES,))


def test_deletes_below_the_limit_take_no_points_and_say_how_many_more_make_them_due() -> None:
    none = Compaction(files_with_deletes=4, not_due=(FEW_FILES, FEW_DELETES))
    found = finding(replace(HEALTHY, deletes=DELETES, compaction=none), "deletes")
    assert found is not None
    assert (found.points, found.operation, found.title) == (0, None, "Deletes that the policy leaves alone")
    assert found.fix == (
        "Nothing to do now. Delete files per data file: 0.05, due from 0.1 (delete-ratio), with 5 more delete files"
    )


def test_deletes_that_apply_to_no_file_are_pruned() -> None:
    found = finding(replace(HEALTHY, deletes=DELETES), "deletes")
    assert found is not None
    assert (found.severity, found.operation, found.title) == (1.0, "deletes prune", "Deletes apply to no file")


@pytest.mark.parametrize(
    ("equality", "severity", "operation"),
    [
        (EqualityDeletes(convertible=3, prunable=0), 0.3, "deletes convert"),
        (EqualityDeletes(convertible=0, prunable=2), 0.2, "deletes prune"),
        (EqualityDeletes(convertible=3, prunable=2), 0.5, "deletes convert"),
        (EqualityDeletes(convertible=0, prunable=0), 0.0, None),
    ],
)
def test_equality_deletes_count_if_they_can_be_converted_or_pruned(
    equality: EqualityDeletes, severity: float, operation: str | None
) -> None:
    deletes = DeleteCounts(equality_files=5, equality_rows=9)
    found = finding(replace(HEALTHY, deletes=deletes, equality=equality), "equality-deletes")
    assert found is not None
    assert (found.severity, found.operation) == (severity, operation)
    assert bool(found.not_due) == (operation is None)


GROUPS = RowGroups(files_known=10, row_groups=50, average_bytes=1, source="footers", files_with_small_groups=5)


def test_small_row_groups_count_once_they_are_due() -> None:
    found = finding(replace(HEALTHY, row_groups=GROUPS, compaction=Compaction(reencoded_files=5)), "small-row-groups")
    assert found is not None
    assert (found.severity, found.operation, found.fix) == (0.5, "compact", "Re-encode 5 files")
    resting = Compaction(not_due=(FEW_FILES, FRESH_GROUPS))
    found = finding(replace(HEALTHY, row_groups=GROUPS, compaction=resting), "small-row-groups")
    assert found is not None
    assert (found.points, found.operation, found.not_due) == (0, None, (FRESH_GROUPS,))


@pytest.mark.parametrize(("count", "severity"), [(11, 0.1), (51, 0.5), (1000, 1.0)])
def test_manifests_are_as_bad_as_the_number_that_a_rewrite_spares(count: int, severity: float) -> None:
    manifests = ManifestCounts(data_manifests=count, delete_manifests=0, bytes=1000, average_files=1)
    found = finding(replace(HEALTHY, manifests=manifests, manifest_plan=manifest_plan(count, 1)), "manifests")
    assert found is not None
    assert (found.severity, found.operation, found.fix) == (severity, "manifests", "Rewrite the manifests: 1 would do")


def test_manifests_with_next_to_no_files_are_not_told_to_have_none() -> None:
    manifests = ManifestCounts(data_manifests=11, delete_manifests=0, bytes=1000, average_files=1 / 11)
    found = finding(replace(HEALTHY, manifests=manifests, manifest_plan=manifest_plan(11, 1)), "manifests")
    assert found is not None
    assert found.evidence == "11 manifests with 1000 B in all, fewer than 1 file each"


def test_manifests_that_are_sorted_spare_a_query_for_one_value() -> None:
    manifests = ManifestCounts(data_manifests=40, delete_manifests=0, bytes=40 * 8 * MIB, average_files=1)
    found = finding(replace(HEALTHY, manifests=manifests, manifest_plan=manifest_plan(40, 40, one=(40.0, 1.4))), "manifests")
    assert found is not None
    assert (found.severity, found.fix) == (0.386, "Sort the manifests: a query for one day opens 1.4 instead of 40.0")


def test_many_manifests_without_a_plan_take_no_points_and_say_why() -> None:
    manifests = ManifestCounts(data_manifests=10, delete_manifests=5, bytes=1000, average_files=1)
    rule = NotDue(rule="manifests", what="spared", measured=9, threshold=10, more=1, more_of="small manifest")
    found = finding(replace(HEALTHY, manifests=manifests, manifest_plan=manifest_plan(15, 15, rule)), "manifests")
    assert found is not None
    assert (found.points, found.operation, found.not_due) == (0, None, (rule,))


def test_few_manifests_are_no_finding() -> None:
    manifests = ManifestCounts(data_manifests=10, delete_manifests=0, bytes=1000, average_files=9)
    assert finding(replace(HEALTHY, manifests=manifests, manifest_plan=manifest_plan(10, 10, FEW_FILES)), "manifests") is None
    many = ManifestCounts(data_manifests=100, delete_manifests=0, bytes=100 * 8 * MIB, average_files=9)
    assert finding(replace(HEALTHY, manifests=many, manifest_plan=manifest_plan(100, 100, FEW_FILES)), "manifests") is None


def test_a_large_metadata_file_advises_an_expiry_only_if_there_is_something_to_expire() -> None:
    large = replace(HEALTHY, metadata_bytes=2 * MIB)
    found = finding(replace(large, expirable_snapshots=3), "metadata-size")
    assert found is not None
    assert (found.severity, found.operation) == (0.2, "expire")
    assert found.fix == "Expire snapshots, and drop schemas and specs that nothing uses"
    kept = NotDue(rule="kept", what="snapshots kept: 1 head of a branch", until="another snapshot is committed")
    found = finding(replace(large, expiry=(kept,)), "metadata-size")
    assert found is not None
    assert (found.severity, found.operation, found.not_due) == (0.2, None, (kept,))
    assert found.fix == (
        "Drop schemas and specs that nothing uses. No snapshot can be expired yet (snapshots kept: 1 head of a branch, "
        "due once another snapshot is committed)"
    )


def test_few_tiny_partitions_are_no_finding() -> None:
    assert finding(replace(HEALTHY, partitions=200, tiny_partitions=99), "tiny-partitions") is None
    assert finding(replace(HEALTHY, partitions=200, tiny_partitions=100), "tiny-partitions") is not None


CITY = ColumnClustering(name="city", depth=9, point_read=0.9, point_read_after=0.1, range_read=0.95, range_read_after=0.2)
DEEP = Clustering(
    layout="sort(city)",
    depth=9,
    worst_depth=12,
    depth_after=1,
    columns=(CITY,),
    run_files=40,
    run_bytes=GIB // 4,
    advised=True,
)
FLAT = DEEP.model_copy(update={"advised": False, "not_due": (FEW_FILES,)})


def test_files_that_overlap_are_found_where_clustering_is_advised() -> None:
    found = finding(replace(HEALTHY, clustering=DEEP, cluster=()), "overlap")
    assert found is not None
    assert (found.severity, found.operation) == (0.25, "cluster")
    assert found.evidence == "a row's values lie in 9.0 files on average; a query for one value of city reads 90% of the bytes"
    assert found.fix == "Cluster 40 files (256 MB): such a query would read 10%"
    assert finding(replace(HEALTHY, clustering=FLAT), "overlap") is None


def test_files_that_overlap_and_cannot_be_clustered_now_say_why() -> None:
    found = finding(replace(HEALTHY, clustering=DEEP, cluster=(FEW_FILES,)), "overlap")
    assert found is not None
    assert (found.points, found.operation, found.not_due) == (0, None, (FEW_FILES,))


@pytest.mark.parametrize(
    ("changes", "severity", "operation"),
    [
        ({"compaction": Compaction(sorted_files=5)}, 0.5, "compact"),
        ({"clustering": DEEP, "cluster": ()}, 0.8, "cluster"),
        ({"clustering": FLAT}, 0.0, None),
        ({"clustering": DEEP, "cluster": (FEW_FILES,)}, 0.0, None),
    ],
)
def test_unsorted_files_count_if_a_merge_or_a_clustering_takes_them(
    changes: dict[str, object], severity: float, operation: str | None
) -> None:
    vitals = replace(HEALTHY, unsorted_files=8, **changes)  # type: ignore[arg-type]
    found = finding(vitals, "unsorted")
    assert found is not None
    assert (found.severity, found.operation) == (severity, operation)
    assert found.not_due == (() if operation else (FEW_FILES,))
    assert finding(vitals, "overlap") is None
