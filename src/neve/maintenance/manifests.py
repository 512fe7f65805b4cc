"""Which manifests are worth rewriting, and what queries gain by it. Pure: from the manifest list alone, no manifest is opened.

A query opens every manifest whose partition ranges do not exclude it. So there are two gains: fewer manifests in all, where
many are small, and fewer for a query of one partition, where each manifest holds files of many. A rewrite is planned where it
spares a query at least `manifest-min-count` manifests, and half of what it opens. See `operations.rewrite_manifests`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import BadRequestError
from neve.health.not_due import NotDue, Unit, nearest
from neve.maintenance.record import MaintenanceRecord
from neve.policy.model import Policy
from neve.rewrite.cost import Rates
from neve.table.bounds import ranked
from neve.table.frozen import Frozen
from neve.table.state import Column, Manifest, PartitionSpec, TableState
from neve.table.units import MIB

ORDER = "neve.manifests-by"
"""Stands in the summary of a rewrite of manifests: the partition fields that it sorted by."""

LIMIT = 10_000
"""The most manifests that one run rewrites, unless told otherwise."""

READ_BYTES_PER_SECOND = 20 * MIB
"""How fast one core reads manifests: packed, and with the statistics of every column."""

Ranks = npt.NDArray[np.int64]


class Motive(StrEnum):
    """What a rewrite is good for."""

    MERGE = "merge"  # fewer manifests for every query
    CLUSTER = "cluster"  # fewer manifests for a query of one partition


class ManifestGroup(Frozen):
    """Manifests of one spec and one kind that become others."""

    spec_id: int
    holds_deletes: bool
    motive: Motive
    paths: tuple[str, ...]
    bytes: int
    files: int
    outputs: int
    """Expected, from the bytes and the target."""


class ManifestReads(Frozen):
    """Manifests that one query opens: of the whole table, and on average of one value of the first field that manifests are
    sorted by; that is None where the table has no partitions, or tells no ranges. `seconds` are those of one core."""

    whole: int
    one: float | None
    seconds: float


class ManifestPlan(Frozen):
    """What is rewritten; nothing, with the reason and the rules behind it, where it is not worth it."""

    snapshot_id: int | None
    by: tuple[str, ...] = ()
    groups: tuple[ManifestGroup, ...] = ()
    reason: str | None = None
    not_due: tuple[NotDue, ...] = ()
    target_bytes: int
    before: ManifestReads
    after: ManifestReads

    @property
    def replaced(self) -> frozenset[str]:
        """Paths of the manifests that go."""
        return frozenset(path for group in self.groups for path in group.paths)


class Entries(Frozen):
    """All that a snapshot's manifests say of live files, in a form that compares: numbers, row ids, statistics, all."""

    files: int
    digest: str


class WrittenManifests(Frozen):
    """Manifests that exist and that no snapshot has yet."""

    replaced: dict[str, int | None]
    """Paths of those whose entries they hold, each with the first row id that the list gave it."""
    added: tuple[str, ...]
    leftovers: tuple[str, ...] = ()
    """Written on the way, and needed by nobody."""
    format_version: int
    before: Entries
    after: Entries


class ManifestsRecord(MaintenanceRecord):
    """A rewrite of manifests, done or foretold."""

    by: tuple[str, ...] = ()
    groups: tuple[ManifestGroup, ...] = ()
    files: int = 0
    """Live files and deletes in the manifests that were replaced; the same are in the new ones."""
    manifests_replaced: int = 0
    manifests_written: int = 0
    """Where `dry_run`, expected."""
    before: ManifestReads | None = None
    after: ManifestReads | None = None
    """Where `dry_run`, predicted; afterwards from the list that was committed."""
    set_aside: int = 0
    """Files that were written for it and not used, recorded in the quarantine."""

    @property
    def leaves_traces(self) -> bool:
        """Files in the quarantine name their run, also if that had nothing left to do in the end."""
        return super().leaves_traces or self.set_aside > 0


def plan_manifests(
    state: TableState,
    manifests: Sequence[Manifest],
    policy: Policy,
    *,
    by: Sequence[str] = (),
    limit: int = LIMIT,
) -> ManifestPlan:
    """What to rewrite at the state's snapshot; `by` are names of partition fields in the order in which they are to be sorted,
    all of the current spec unless given."""
    spec = state.spec(state.default_spec_id)
    order = tuple(by) or tuple(field.name for field in spec.fields)
    _check_order(order, spec, state)
    target, spared = policy.manifest_target_bytes, policy.manifest_min_count
    groups: list[ManifestGroup] = []
    unmet: list[NotDue] = [_OLD_FORMAT] if state.format_version == 1 else []
    kinds = sorted({(m.spec_id, m.holds_deletes) for m in manifests}) if state.format_version > 1 else []
    for spec_id, deletes in kinds:
        alike = [m for m in manifests if (m.spec_id, m.holds_deletes) == (spec_id, deletes)]
        clusters = spec_id == spec.spec_id and not deletes and not _in_order(alike, state, order)
        wish = _cluster(alike, state, order, target, spared) if clusters and order else None
        wish = wish or _merge(alike, target, spared)
        if wish is not None and (wish := _within(wish, alike, target, limit)) is not None:
            limit -= len(wish.paths)
            groups.append(wish)
        else:
            unmet += _unmet(alike, state, order if clusters else (), policy)
    before = reads(state, manifests, order)
    after = _predicted(state, manifests, groups, order)
    reason = f"a rewrite would spare no query {spared} manifests (manifest-min-count); the table has {len(manifests):,}"
    if not manifests:
        unmet = [NotDue(rule="no-manifests", what="the table has no manifests", until="rows are written")]
    if state.format_version == 1:
        reason = "manifests of format version 1 have to be copied to be committed; upgrade the table to version 2 first"
    return ManifestPlan(
        snapshot_id=state.snapshot_id,
        by=order,
        groups=tuple(groups),
        reason=None if groups else reason,
        not_due=() if groups else nearest(unmet),
        target_bytes=target,
        before=before,
        after=after if groups else before,
    )


def _check_order(order: Sequence[str], spec: PartitionSpec, state: TableState) -> None:
    known = [field.name for field in spec.fields]
    strange = [name for name in order if name not in known]
    if strange or len(set(order)) < len(order):
        what = f"{strange[0]} is no partition field" if strange else "a field is named twice"
        raise BadRequestError(
            f"Cannot sort manifests of {state.name} by {', '.join(order)}: {what}",
            hint=f"Its partition fields are {', '.join(known) or 'none'}.",
        )


def _in_order(alike: Sequence[Manifest], state: TableState, order: Sequence[str]) -> bool:
    """Whether one rewrite has written most of them in this order: it could not do better a second time."""
    ours = {s.snapshot_id for s in state.snapshots if s.summary.get(ORDER) == ", ".join(order)}
    size = sum(m.length_bytes for m in alike if m.added_snapshot_id in ours)
    return 2 * size > sum(m.length_bytes for m in alike)


def _merge(alike: Sequence[Manifest], target: int, spared: int) -> ManifestGroup | None:
    """Small ones become few; those of half the target or more stay."""
    small = [m for m in alike if 2 * m.length_bytes < target]
    group = _group(small, Motive.MERGE, target)
    return group if _is_worth(len(small), group.outputs, spared) else None


def _cluster(
    alike: Sequence[Manifest], state: TableState, order: Sequence[str], target: int, spared: int
) -> ManifestGroup | None:
    """All of a spec, sorted, where a query of one partition gains."""
    group, ranges = _group(alike, Motive.CLUSTER, target), _ranges(alike, state, order[0])
    if ranges is None:
        return None
    return group if _is_worth(ranges.depth(), ranges.if_sorted(group.outputs), spared) else None


def _is_worth(before: float, after: float, spared: int) -> bool:
    return before - after >= spared and 2 * after <= before


_OLD_FORMAT = NotDue(
    rule="format-version",
    what="format version of the table",
    measured=1,
    threshold=2,
    until="the table is upgraded to format version 2",
)


def _unmet(alike: Sequence[Manifest], state: TableState, order: Sequence[str], policy: Policy) -> Iterator[NotDue]:
    """Yields by how much manifests of one kind stay below what a rewrite is worth: merged, and sorted by `order` if given."""
    target, whose = policy.manifest_target_bytes, "delete" if alike[0].holds_deletes else "data"
    small = [m for m in alike if 2 * m.length_bytes < target]
    merged = _group(small, Motive.MERGE, target).outputs
    what = f"{whose} manifests that a merge spares every query"
    yield _spared("manifests", what, len(small), merged, policy.manifest_min_count, more_of="small manifest")
    ranges = _ranges(alike, state, order[0]) if order else None
    if ranges is not None:
        depth, after = ranges.depth(), ranges.if_sorted(_group(alike, Motive.CLUSTER, target).outputs)
        what = f"{whose} manifests that sorting them spares a query for one {order[0]}"
        yield _spared("manifest-depth", what, depth, after, policy.manifest_min_count, more_of="overlapping manifest")


def _spared(rule: str, what: str, before: float, after: float, least: int, *, more_of: str) -> NotDue:
    if before - after < least:
        return NotDue(
            rule=rule,
            what=what,
            measured=round(max(before - after, 0), 1),
            threshold=least,
            knob="manifest-min-count",
            more=ceil(least - (before - after)),
            more_of=more_of,
        )
    return NotDue(
        rule=f"{rule}-left",
        what=f"share left of {what.partition(' that ')[0]} that a query opens",
        measured=round(after / before, 3),
        threshold=0.5,
        comparison="up to",
        unit=Unit.RATIO,
        until="there are more of them to spare",
    )


def _group(manifests: Sequence[Manifest], motive: Motive, target: int) -> ManifestGroup:
    size = sum(m.length_bytes for m in manifests)
    return ManifestGroup(
        spec_id=manifests[0].spec_id if manifests else 0,
        holds_deletes=bool(manifests) and manifests[0].holds_deletes,
        motive=motive,
        paths=tuple(m.path for m in manifests),
        bytes=size,
        files=sum(m.live_files or 0 for m in manifests),
        outputs=ceil(size / target),
    )


def _within(group: ManifestGroup, alike: Sequence[Manifest], target: int, limit: int) -> ManifestGroup | None:
    """As many of a group as one run may take, the smallest first; None where one is left alone."""
    if len(group.paths) <= limit:
        return group
    chosen = sorted((m for m in alike if m.path in set(group.paths)), key=lambda m: (m.length_bytes, m.path))[:limit]
    return _group(chosen, Motive.MERGE, target) if len(chosen) > 1 else None


def reads(state: TableState, manifests: Sequence[Manifest], order: Sequence[str]) -> ManifestReads:
    """What queries open of these manifests."""
    ranges = _ranges(manifests, state, order[0]) if order else None
    return ManifestReads(
        whole=len(manifests),
        one=None if ranges is None else round(ranges.depth(), 1),
        seconds=_seconds(len(manifests), sum(m.length_bytes for m in manifests)),
    )


def _predicted(
    state: TableState, manifests: Sequence[Manifest], groups: Sequence[ManifestGroup], order: Sequence[str]
) -> ManifestReads:
    gone = {path for group in groups for path in group.paths}
    kept = [m for m in manifests if m.path not in gone]
    outputs, size = sum(group.outputs for group in groups), sum(m.length_bytes for m in manifests)
    every = _ranges(manifests, state, order[0]) if order else None
    one = None
    if every is not None:
        stays = np.array([m.path not in gone for m in manifests])
        # Of each group, sorted by itself, a query opens what holds its value, and a cut in the middle of it costs one more.
        one = round(every.depth(stays) + sum(every.if_sorted(group.outputs) for group in groups), 1)
    return ManifestReads(whole=len(kept) + outputs, one=one, seconds=_seconds(len(kept) + outputs, size))


def _seconds(manifests: int, size: int) -> float:
    return round(manifests * Rates().open_seconds + size / READ_BYTES_PER_SECOND, 3)


class _Ranges:
    """The range of one partition field in each manifest, as ranks among all bounds; a manifest that tells none is opened by
    every query."""

    def __init__(self, lower: Ranks, upper: Ranks, values: int) -> None:
        self._lower, self._upper, self._values = lower, upper, values
        known = (lower >= 0) & (upper >= lower)
        self.points = np.unique(np.concatenate((lower[known], upper[known])))

    def depth(self, chosen: npt.NDArray[np.bool_] | None = None) -> float:
        """How many hold a value, on average over all values that are a bound of one."""
        lower, upper = (self._lower, self._upper) if chosen is None else (self._lower[chosen], self._upper[chosen])
        begun = np.searchsorted(np.sort(lower), self.points, side="right")
        ended = np.searchsorted(np.sort(upper), self.points, side="left")
        return float(np.mean(begun - ended))

    def if_sorted(self, outputs: int) -> float:
        """The same of so many that do not overlap: each cut falls into one value, whose query opens one more."""
        return min(outputs, 1 + (outputs - 1) / max(self._values, 1))


def _ranges(manifests: Sequence[Manifest], state: TableState, name: str) -> _Ranges | None:
    """Of the partition field with that name; None where nothing is known of it."""
    field_id = next(f.field_id for f in state.spec(state.default_spec_id).fields if f.name == name)
    data = {"lower": [], "upper": []}  # type: dict[str, list[bytes | None]]
    for manifest in manifests:
        bounds = _bounds_of(manifest, state.spec(manifest.spec_id), field_id)
        for side, bound in zip(data, bounds, strict=True):
            data[side].append(bound)
    column = Column(field_id=field_id, name=name, type=_type_of(state, field_id))
    table = pa.table({f"{field_id}.{side}": pa.array(values, pa.binary()) for side, values in data.items()})
    lower, upper, _, keys = ranked(table, column)
    found = _Ranges(lower, upper, _values(keys, sum(m.live_files or 0 for m in manifests)))
    return found if len(found.points) else None


def _values(keys: pa.Array, files: int) -> int:
    """About how many values there are between the outermost bounds: of numbers, all, but no more than there are files."""
    if pa.types.is_integer(keys.type) and len(keys):
        span: int = keys[-1].as_py() - keys[0].as_py() + 1
        return max(len(keys), min(span, files))
    return len(keys)


def _bounds_of(manifest: Manifest, spec: PartitionSpec, field_id: int) -> tuple[bytes | None, bytes | None]:
    place = next((i for i, field in enumerate(spec.fields) if field.field_id == field_id), None)
    if place is None or place >= len(manifest.ranges):
        return None, None
    told = manifest.ranges[place]
    return tuple(None if bound is None else bytes.fromhex(bound) for bound in (told.lower, told.upper))  # type: ignore[return-value]


def _type_of(state: TableState, field_id: int) -> str:
    """The type of a partition field's values, which for most transforms is a number."""
    field = next(f for f in state.spec(state.default_spec_id).fields if f.field_id == field_id)
    if field.transform.partition("[")[0] in ("identity", "truncate"):
        return next((c.type for c in state.fields if c.field_id == field.source_id), "unknown")
    return "int"
