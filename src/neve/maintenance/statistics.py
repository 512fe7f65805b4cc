"""Statistics of a table's columns and partitions: whether they have aged, and for which columns they are made. Pure.

Sketches of the different values in columns, and numbers by partition, belong to the snapshot they were made at; engines plan
joins by them long afterwards. How far the table has moved on is told by the summaries of the snapshots since. Carried out by
`operations.statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from neve.errors import BadRequestError
from neve.health.not_due import NotDue, Unit
from neve.maintenance.record import MaintenanceRecord
from neve.policy.model import Policy
from neve.table.frozen import Frozen
from neve.table.state import Column, Snapshot, StatisticsFile, TableState

THETA = "apache-datasketches-theta-v1"
"""The kind of sketch that counts different values."""

RELATIVE_ERROR = 1 / 64
"""The standard error of such a sketch with Iceberg's 4,096 entries; two times that holds for 95 of 100 columns."""

_CHANGES = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")
_UNCOUNTABLE = ("geometry", "geography", "variant", "unknown")


class Distinct(Frozen):
    """About how many different values a column has."""

    column: str
    values: int | None


class StatisticsPlan(Frozen):
    """What is made at the snapshot; nothing, with the reason and the rule behind it, where what is there will do."""

    snapshot_id: int | None
    columns: tuple[str, ...] = ()
    partitions: bool = False
    reason: str
    not_due: tuple[NotDue, ...] = ()
    changed: float | None = None
    """Rows added and removed since the statistics there are, as a share of those there were; None where there are none, or
    where snapshots in between are gone."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.columns and not self.partitions


class StatisticsRecord(MaintenanceRecord):
    """Statistics that were made, or would be."""

    columns: tuple[str, ...] = ()
    partitions: bool = False
    changed: float | None = None
    distinct: tuple[Distinct, ...] = ()
    files: tuple[StatisticsFile, ...] = ()


def plan_statistics(state: TableState, policy: Policy, *, columns: Sequence[str] = (), force: bool = False) -> StatisticsPlan:
    """What is worth making now; `columns` come before those of the policy."""
    if state.snapshot_id is None:
        reason = "the table has no snapshot"
        rule = NotDue(rule="no-snapshot", what=reason, until="rows are written")
        return StatisticsPlan(snapshot_id=None, reason=reason, not_due=(rule,))
    named = columns or [name.strip() for name in (policy.stats_columns or "").split(",") if name.strip()]
    wanted = chosen_columns(state, named)
    latest, changed = _latest(state, state.statistics)
    missing = [c.name for c in wanted if latest is None or not _has(latest, c)]
    due = force or missing or changed is None or changed >= policy.stats_change
    made, reason = [c.name for c in wanted] if due else [], _reason(latest, changed, missing, policy)
    if latest is not None and latest.snapshot_id == state.snapshot_id and made:
        made = _beside(state, latest, made)
        reason = reason if made else "this snapshot has statistics of another kind, in whose place ours would be"
    partitions = _partitions_due(state, policy, force=force)
    unmet = () if made or partitions else _unmet(state, latest, changed, reason, policy)
    return StatisticsPlan(
        snapshot_id=state.snapshot_id,
        columns=tuple(made),
        partitions=partitions,
        changed=changed,
        reason=reason,
        not_due=unmet,
    )


def _unmet(
    state: TableState, latest: StatisticsFile | None, changed: float | None, reason: str, policy: Policy
) -> tuple[NotDue, ...]:
    """Returns how many more rows have to change, of those that there were with the last statistics."""
    made_at = next((s for s in state.snapshots if latest is not None and s.snapshot_id == latest.snapshot_id), None)
    if changed is None or made_at is None or changed >= policy.stats_change:
        return (NotDue(rule="statistics", what=reason, until="the table has another snapshot, or a column to count"),)
    rows = max(made_at.count("total-records") or 0, 1)
    return (
        NotDue(
            rule="stats-change",
            what="share of the rows changed since the last statistics",
            measured=round(changed, 6),
            threshold=policy.stats_change,
            unit=Unit.RATIO,
            knob="stats-change",
            more=max(ceil(policy.stats_change * rows) - round(changed * rows), 1),
            more_of="changed row",
        ),
    )


def chosen_columns(state: TableState, names: Sequence[str]) -> list[Column]:
    """The columns with these names, or all whose values can be counted; Iceberg counts those of the top level only."""
    able = {c.name: c for c in state.fields if "." not in c.name and not c.type.startswith(_UNCOUNTABLE)}
    strange = [name for name in names if name not in able]
    if strange:
        raise BadRequestError(
            f"Cannot count the values of {strange[0]}: {state.name} has no such column that holds one value each",
            hint=f"There are {', '.join(able) or 'none'}.",
        )
    return [able[name] for name in dict.fromkeys(names)] or list(able.values())


def _latest(state: TableState, files: Sequence[StatisticsFile]) -> tuple[StatisticsFile | None, float | None]:
    """The statistics nearest to the snapshot in its own past, and how much has changed since."""
    by_snapshot = {file.snapshot_id: file for file in files}
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in state.snapshots}
    at, changed = state.snapshot, 0
    while at is not None:
        if at.snapshot_id in by_snapshot:
            rows = at.count("total-records")
            return by_snapshot[at.snapshot_id], changed / max(rows or 0, 1) if rows is not None or not changed else None
        changed += _changed_rows(at)
        at = snapshots.get(at.parent_id) if at.parent_id is not None else None
    return None, None


def _changed_rows(snapshot: Snapshot) -> int:
    """A compaction writes rows that were there before."""
    return 0 if snapshot.operation == "replace" else sum(snapshot.count(key) or 0 for key in _CHANGES)


def _has(file: StatisticsFile, column: Column) -> bool:
    return any(sketch.field_ids == (column.field_id,) and sketch.kind == THETA for sketch in file.sketches)


def _beside(state: TableState, latest: StatisticsFile, made: Sequence[str]) -> list[str]:
    """A snapshot has one statistics file: a new one in its place keeps the columns of the old one. Nothing is made where that
    has what we could not make again."""
    names = {column.field_id: column.name for column in chosen_columns(state, ())}
    if any(s.kind != THETA or len(s.field_ids) != 1 or s.field_ids[0] not in names for s in latest.sketches):
        return []
    return list(dict.fromkeys([*(names[s.field_ids[0]] for s in latest.sketches), *made]))


def _partitions_due(state: TableState, policy: Policy, *, force: bool) -> bool:
    if not any(spec.fields for spec in state.specs):
        return False
    latest, changed = _latest(state, state.partition_statistics)
    return force or latest is None or changed is None or changed >= policy.stats_change


def _reason(latest: StatisticsFile | None, changed: float | None, missing: Sequence[str], policy: Policy) -> str:
    if latest is None:
        return "there are no statistics of the table as it was before"
    if changed is None:
        return "how much has changed since the last ones is not known"
    if changed < policy.stats_change and missing:
        return f"there are none for {', '.join(missing)}"
    verb = "less than" if changed < policy.stats_change else "at least"
    return f"{changed:.1%} of the rows have changed since the last ones, {verb} {policy.stats_change:.1%} (stats-change)"
