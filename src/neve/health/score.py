"""The health score: 100 minus what each named finding takes off.

A finding has a weight (the most it can take; all weights add up to 100), a severity, the evidence and the cure. Only what an
operation would cure now counts: what the policy leaves alone takes no points and says why. Called by `operations.examine`;
pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import ceil

from neve.health.inspection import DeleteCounts, Finding, Health, ManifestCounts, RowGroups
from neve.health.not_due import NotDue, sentences
from neve.health.skipping import Clustering
from neve.maintenance.manifests import ManifestPlan
from neve.policy.model import Policy
from neve.table.units import MIB, averaged, counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Compaction:
    """What `neve compact` would do, in as many runs as it takes. Nothing, and why, where the policy leaves all files alone."""

    removed_files: int = 0
    """How many fewer data files there would be."""
    files_with_deletes: int = 0
    applied_files: int = 0
    """Of the data files that deletes apply to, those that would be rewritten."""
    reencoded_files: int = 0
    """Files with small row groups that would be rewritten."""
    sorted_files: int = 0
    """Files that are not recorded as sorted and would be."""
    not_due: tuple[NotDue, ...] = ()


@dataclass(frozen=True)
class EqualityDeletes:
    """Equality delete files by what can be done about them without a compaction."""

    convertible: int
    prunable: int
    """They apply to no live file."""


@dataclass(frozen=True)
class Vitals:
    """What the findings look at. None means that this depth of inspection did not read it."""

    data_files: int | None
    data_bytes: int | None
    rows: int | None
    small_files: int | None
    removable_files: int | None
    """Data files that merging within partitions would make superfluous."""
    partitions: int | None
    tiny_partitions: int | None
    """Partitions whose data together is smaller than one fragment."""
    deletes: DeleteCounts | None
    row_groups: RowGroups | None
    unsorted_files: int | None
    clustering: Clustering | None
    manifests: ManifestCounts | None
    expirable_snapshots: int
    metadata_bytes: int | None
    compaction: Compaction | None = None
    """None where files were not read: findings about files are estimates then, and advise no operation."""
    equality: EqualityDeletes | None = None
    manifest_plan: ManifestPlan | None = None
    expiry: tuple[NotDue, ...] = ()
    """Why no snapshot can be expired, if none can."""
    cluster: tuple[NotDue, ...] | None = None
    """Why `neve cluster` would do nothing although it is advised; empty if it has a plan, None if it was not asked."""


def assess(vitals: Vitals, policy: Policy) -> Health:
    """Every rule in turn; the score is never below 0."""
    found = [finding for rule in RULES if (finding := rule(vitals, policy)) is not None]
    worst_first = sorted(found, key=lambda f: (-f.points, f.code))
    return Health(score=max(0, round(100 - sum(f.points for f in found))), findings=tuple(worst_first))


def _small_files(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.data_files or not vitals.removable_files:
        return None
    small = f"{vitals.small_files:,} of " if vitals.small_files is not None else ""
    average = format_bytes((vitals.data_bytes or 0) / vitals.data_files)
    evidence = (
        f"{small}{vitals.data_files:,} data files are below {format_bytes(policy.small_bytes)}, {average} on average"
        if small
        else f"{vitals.data_files:,} data files of {average} on average"
    )
    found = Finding(code="small-files", title="Too many small files", weight=35, severity=0, evidence=evidence, fix=_ESTIMATED)
    if vitals.compaction is None:
        return found.model_copy(update={"severity": vitals.removable_files / vitals.data_files})
    removed = min(vitals.compaction.removed_files, vitals.removable_files)
    rules = _rules(vitals.compaction.not_due, without=(*_DELETES, *_ROW_GROUPS))
    if not removed:
        return _left_alone(found, "Small files that the policy leaves alone", rules, policy)
    remain = f"about {counted(vitals.data_files - removed, 'file')} of up to {format_bytes(policy.target_file_size_bytes)}"
    changes = {"severity": removed / vitals.data_files, "fix": f"Merge them: {remain} would remain", "operation": "compact"}
    return found.model_copy(update=changes | {"not_due": rules if removed < vitals.removable_files else ()})


def _deletes(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.deletes or not vitals.deletes.files:
        return None
    by_files = vitals.deletes.files / max(vitals.data_files or 0, 1)
    by_rows = vitals.deletes.rows / max(vitals.rows or 0, 1)
    severity = min(1.0, max(by_files, by_rows) / (5 * policy.delete_ratio_limit))
    evidence = (
        f"{counted(vitals.deletes.files, 'delete file')} for {counted(vitals.data_files or 0, 'data file')}, "
        f"hiding up to {min(by_rows, 1):.1%} of the rows"
    )
    found = Finding(code="deletes", title="Deletes slow every read", weight=15, severity=0, evidence=evidence, fix=_ESTIMATED)
    compaction = vitals.compaction
    if compaction is None:
        return found.model_copy(update={"severity": severity})
    if not compaction.files_with_deletes:
        changes = {"title": "Deletes apply to no file", "severity": severity, "operation": "deletes prune"}
        return found.model_copy(update=changes | {"fix": "Drop them: no data file needs them any more"})
    rules = _rules(compaction.not_due, only=_DELETES) or _rules(compaction.not_due, without=_ROW_GROUPS)
    if not compaction.applied_files:
        return _left_alone(found, "Deletes that the policy leaves alone", rules, policy)
    fix = f"Rewrite {counted(compaction.applied_files, 'file')} that they apply to, so that the deleted rows are gone for good"
    share = compaction.applied_files / compaction.files_with_deletes
    changes = {"severity": severity * share, "fix": fix, "operation": "compact"}
    return found.model_copy(update=changes | {"not_due": rules if share < 1 else ()})


def _equality_deletes(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.deletes or not vitals.deletes.equality_files:
        return None
    evidence = (
        f"{counted(vitals.deletes.equality_files, 'equality delete file')} with {counted(vitals.deletes.equality_rows, 'row')}"
    )
    title, equality = "Equality deletes must be joined by every reader", vitals.equality
    found = Finding(code="equality-deletes", title=title, weight=10, severity=0, evidence=evidence, fix=_ESTIMATED)
    if equality is None:
        return found.model_copy(update={"severity": min(1.0, vitals.deletes.equality_files / 10)})
    if not equality.convertible and not equality.prunable:
        return _left_alone(found, "Equality deletes that cannot be converted", (_UNCONVERTIBLE,), policy)
    prune = "Drop those that apply to no file: `neve deletes prune TABLE`"
    fix = "Turn them into position deletes or vectors, or apply them" if equality.convertible else prune
    fix = f"{fix}. {prune}" if equality.convertible and equality.prunable else fix
    severity = min(1.0, (equality.convertible + equality.prunable) / 10)
    operation = "deletes convert" if equality.convertible else "deletes prune"
    return found.model_copy(update={"severity": severity, "fix": fix, "operation": operation})


def _row_groups(vitals: Vitals, policy: Policy) -> Finding | None:
    groups, compaction = vitals.row_groups, vitals.compaction
    if not groups or not groups.files_with_small_groups or compaction is None:
        return None
    found = Finding(
        code="small-row-groups",
        title="Row groups too small to read well",
        weight=10,
        severity=0,
        evidence=f"{groups.files_with_small_groups:,} of {groups.files_known:,} files have row groups below "
        f"{format_bytes(policy.row_group_min_bytes)} on average",
        fix=f"Re-encode {counted(compaction.reencoded_files, 'file')}",
    )
    rules = _rules(compaction.not_due, only=_ROW_GROUPS) or _rules(compaction.not_due, without=_DELETES)
    if not compaction.reencoded_files:
        return _left_alone(found, "Small row groups that the policy leaves alone", rules, policy)
    severity = min(1.0, compaction.reencoded_files / max(groups.files_known, 1))
    left = rules if compaction.reencoded_files < groups.files_with_small_groups else ()
    return found.model_copy(update={"severity": severity, "operation": "compact", "not_due": left})


def _manifests(vitals: Vitals, policy: Policy) -> Finding | None:
    plan = vitals.manifest_plan
    if not vitals.manifests or plan is None:
        return None
    count = vitals.manifests.data_manifests + vitals.manifests.delete_manifests
    needed = max(1, ceil(vitals.manifests.bytes / policy.manifest_target_bytes))
    found = Finding(
        code="manifests",
        title="Planning reads too many manifests",
        weight=10,
        severity=0,
        evidence=f"{counted(count, 'manifest')} with {format_bytes(vitals.manifests.bytes)} in all, "
        f"{averaged(vitals.manifests.average_files, 'file')} each",
        fix=f"Rewrite the manifests: {plan.after.whole:,} would do",
    )
    if not plan.groups:
        if count - needed < policy.manifest_min_count:
            return None
        return _left_alone(found, "Manifests that are left alone", plan.not_due, policy)
    spared = max(plan.before.whole - plan.after.whole, (plan.before.one or 0) - (plan.after.one or 0))
    if plan.after.whole == plan.before.whole:
        query = f"a query for one {plan.by[0]} opens {plan.after.one or 0:,.1f} instead of {plan.before.one or 0:,.1f}"
        found = found.model_copy(update={"fix": f"Sort the manifests: {query}"})
    return found.model_copy(update={"severity": min(1.0, spared / 100), "operation": "manifests"})


def _snapshots(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.expirable_snapshots:
        return None
    return Finding(
        code="snapshots",
        title="Old snapshots keep dead files alive",
        weight=5,
        severity=min(1.0, vitals.expirable_snapshots / 100),
        evidence=f"{counted(vitals.expirable_snapshots, 'snapshot')} older than {format_seconds(policy.snapshot_keep_seconds)}",
        fix="Expire them",
        operation="expire",
    )


def _metadata(vitals: Vitals, policy: Policy) -> Finding | None:  # noqa: ARG001 - every rule has one shape
    if (vitals.metadata_bytes or 0) < MIB:
        return None
    size, expires = vitals.metadata_bytes or 0, bool(vitals.expirable_snapshots)
    others = "drop schemas and specs that nothing uses"
    kept = f" No snapshot can be expired yet ({vitals.expiry[0]})" if vitals.expiry else ""
    return Finding(
        code="metadata-size",
        title="The metadata file is large",
        weight=5,
        severity=min(1.0, size / (10 * MIB)),
        evidence=f"every commit writes and every reader loads {format_bytes(size)}",
        fix=f"Expire snapshots, and {others}" if expires else f"{others.capitalize()}.{kept}",
        operation="expire" if expires else None,
        not_due=vitals.expiry,
    )


def _tiny_partitions(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.partitions or vitals.partitions < 100 or not vitals.tiny_partitions:
        return None
    if 2 * vitals.tiny_partitions < vitals.partitions:
        return None
    return Finding(
        code="tiny-partitions",
        title="Partitions too fine for the data",
        weight=5,
        severity=vitals.tiny_partitions / vitals.partitions,
        evidence=f"{vitals.tiny_partitions:,} of {vitals.partitions:,} partitions hold less than "
        f"{format_bytes(policy.fragment_bytes)}, so no rewrite can give them good files",
        fix="Partition more coarsely (months for days, fewer buckets)",
    )


def _layout(vitals: Vitals, policy: Policy) -> Finding | None:
    return _unsorted(vitals, policy) or _overlap(vitals, policy)


def _unsorted(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.unsorted_files or not vitals.data_files or vitals.compaction is None:
        return None
    found = Finding(
        code="unsorted",
        title="Files do not follow the table's sort order",
        weight=5,
        severity=0,
        evidence=f"{vitals.unsorted_files:,} of {vitals.data_files:,} data files are not recorded as sorted",
        fix="Rewrite them sorted",
    )
    clustering, merged = vitals.clustering, vitals.compaction.sorted_files
    if clustering is not None and clustering.advised and vitals.cluster == ():
        files = max(merged, min(clustering.run_files, vitals.unsorted_files))
        return found.model_copy(update={"severity": files / vitals.data_files, "operation": "cluster"})
    if merged:
        return found.model_copy(update={"severity": merged / vitals.data_files, "operation": "compact"})
    rules = vitals.cluster or (clustering.not_due if clustering is not None else ()) or vitals.compaction.not_due
    return _left_alone(found, "Unsorted files that are left alone", rules, policy)


def _overlap(vitals: Vitals, policy: Policy) -> Finding | None:
    clustering = vitals.clustering
    if clustering is None or not clustering.advised or not vitals.data_bytes or vitals.cluster is None:
        return None
    worst = max(clustering.columns, key=lambda column: column.point_read - column.point_read_after)
    found = Finding(
        code="overlap",
        title="Files overlap in the columns that they are laid out by",
        weight=5,
        severity=0,
        evidence=f"a row's values lie in {clustering.depth:.1f} files on average; a query for one value of {worst.name} reads "
        f"{worst.point_read:.0%} of the bytes",
        fix=f"Cluster {counted(clustering.run_files, 'file')} ({format_bytes(clustering.run_bytes)}): such a query would read "
        f"{worst.point_read_after:.0%}",
    )
    if vitals.cluster:
        return _left_alone(found, "Overlapping files that are left alone", vitals.cluster, policy)
    severity = min(1.0, clustering.run_bytes / vitals.data_bytes)
    return found.model_copy(update={"severity": severity, "operation": "cluster"})


_ESTIMATED = "An estimate from the table's totals: inspect with --depth files to see what can be done"
_DELETES = ("delete-files", "deleted-rows", "deletes")
_ROW_GROUPS = ("small-row-groups",)
_UNCONVERTIBLE = NotDue(
    rule="unconvertible",
    what="equality deletes that are not in Parquet files, or compare nested columns",
    until="their writer uses top-level columns and Parquet",
)


def _rules(rules: Collection[NotDue], *, only: Collection[str] = (), without: Collection[str] = ()) -> tuple[NotDue, ...]:
    return tuple(rule for rule in rules if rule.rule not in without and (not only or rule.rule in only))


def _left_alone(found: Finding, title: str, rules: tuple[NotDue, ...], policy: Policy) -> Finding:
    """The finding as it is told where no operation has work: without points, with the nearest rule."""
    other = NotDue(
        rule="strategy", what=f"strategy {policy.strategy} takes other files", knob="strategy", until="another one is set"
    )
    rules = rules or (other,)
    fix = f"Nothing to do now. {sentences(rules[:1])}"
    return found.model_copy(update={"title": title, "severity": 0.0, "fix": fix, "not_due": rules})


RULES: tuple[Callable[[Vitals, Policy], Finding | None], ...] = (
    _small_files,
    _deletes,
    _equality_deletes,
    _row_groups,
    _manifests,
    _snapshots,
    _metadata,
    _tiny_partitions,
    _layout,
)
