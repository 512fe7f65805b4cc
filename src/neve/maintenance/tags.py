"""Tags of ends of days, weeks and months: which are to be made, which have had their time. Pure; times are UTC.

A period gets a tag once it is over, if rows changed in it: the snapshot that was current at its end, as the table's own log
says. Kept are the newest of each kind by their number, not by their age: a clock that runs ahead, or a table that rests, drops
nothing. Only names that are ours to the last character are ever dropped, and no tag is moved. Carried out by
`operations.tags`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta

from neve.health.not_due import NotDue, nearest
from neve.maintenance.record import MaintenanceRecord
from neve.policy.auto_tags import Keep, Period
from neve.table.frozen import Frozen
from neve.table.state import RefKind, TableState

MAX_REF_AGE = "history.expire.max-ref-age-ms"
"""A table's own limit: an expiry drops every tag whose snapshot is older, unless the tag has a limit of its own."""

FOREVER_MS = 2**63 - 1

_DAY_MS = 86_400_000


_PERIODS = {Period.DAILY: "day", Period.WEEKLY: "week", Period.MONTHLY: "month"}


class Tag(Frozen):
    """A tag that is to be made, or to be dropped: then it names the snapshot that it must still name."""

    name: str
    snapshot_id: int
    max_ref_age_ms: int | None = None


class TagPlan(Frozen):
    """What is to be done; `kept` are names of ours that stay, `taken` those that others use for something else."""

    created: tuple[Tag, ...] = ()
    dropped: tuple[Tag, ...] = ()
    kept: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    not_due: tuple[NotDue, ...] = ()
    """When the next tag is made, if there is nothing to do."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.created and not self.dropped


class TagsRecord(MaintenanceRecord):
    """Tags that were made and dropped, or would be."""

    created: tuple[Tag, ...] = ()
    dropped: tuple[Tag, ...] = ()
    kept: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


def plan_tags(state: TableState, keep: Keep, *, prefix: str, now_ms: int) -> TagPlan:
    """What makes the table's tags those that `keep` asks for."""
    refs = {ref.name: ref for ref in state.refs}
    age = FOREVER_MS if MAX_REF_AGE in state.properties else None
    plan: dict[str, list[str]] = {"kept": [], "taken": []}
    created: list[Tag] = []
    dropped: list[Tag] = []
    for period, number in keep.items():
        ours = {start: name for name in refs if (start := _start_of(name, prefix, period)) is not None}
        ends = _ends(state, period, now_ms)
        newest = sorted({*ours, *ends}, reverse=True)[:number]
        for start in sorted(newest):
            name = tag_name(prefix, period, start)
            if name not in refs:
                created.append(Tag(name=name, snapshot_id=ends[start], max_ref_age_ms=age))
            else:
                plan["kept" if refs[name].kind is RefKind.TAG else "taken"].append(name)
        old = [refs[ours[start]] for start in sorted(ours) if start not in newest]
        dropped += [Tag(name=ref.name, snapshot_id=ref.snapshot_id) for ref in old if ref.kind is RefKind.TAG]
    kinds = (_next_tag(state, period, now_ms) for period, number in keep.items() if number)
    unmet = () if created or dropped else nearest(kinds) or (_NO_TAGS,)
    facts = {name: tuple(names) for name, names in plan.items()}
    return TagPlan(created=tuple(created), dropped=tuple(dropped), not_due=unmet, **facts)


_NO_TAGS = NotDue(rule="no-tags", what="auto-tags keeps no tags", knob="auto-tags", until="it keeps some")


def _next_tag(state: TableState, period: Period, now_ms: int) -> NotDue:
    """Returns when the next tag of a kind is made: at the end of a period in which rows changed."""
    start = _first_day(now_ms, period)
    end_ms = _end_ms(start, period) if start is not None else None
    operations = {snapshot.snapshot_id: snapshot.operation for snapshot in state.snapshots}
    is_written = any(_first_day(at, period) == start and operations.get(found) != "replace" for at, found in state.history)
    rule, what = f"{period}-tag", f"end of the current {_PERIODS[period]}"
    if is_written and end_ms is not None:
        return NotDue(rule=rule, what=f"{what}, in which rows changed", knob="auto-tags", due_ms=end_ms)
    return NotDue(rule=rule, what=what, knob="auto-tags", due_ms=end_ms, until="rows have changed in it")


def tag_name(prefix: str, period: Period, start: date) -> str:
    """`neve-daily-2025-06-14`, `neve-weekly-2025-W24`, `neve-monthly-2025-06`."""
    if period is Period.WEEKLY:
        year, week, _ = start.isocalendar()
        return f"{prefix}-{period}-{year:04}-W{week:02}"
    return f"{prefix}-{period}-{start.isoformat()[: 10 if period is Period.DAILY else 7]}"


def _start_of(name: str, prefix: str, period: Period) -> date | None:
    """The first day of the period that a tag of ours stands for; None for every other name."""
    text = name.removeprefix(f"{prefix}-{period}-")
    forms = {
        Period.DAILY: (r"\d{4}-\d{2}-\d{2}", text),
        Period.WEEKLY: (r"\d{4}-W\d{2}", f"{text}-1"),
        Period.MONTHLY: (r"\d{4}-\d{2}", f"{text}-01"),
    }
    pattern, day = forms[period]
    if text == name or re.fullmatch(pattern, text, re.ASCII) is None:
        return None
    try:
        return date.fromisoformat(day)
    except ValueError:
        return None


def _ends(state: TableState, period: Period, now_ms: int) -> dict[date, int]:
    """The snapshot that was current at the end of each period that is over and in which rows changed, by its first day."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in state.snapshots}
    times = [at for at, _ in state.history]
    ends: dict[date, int] = {}
    for at, snapshot_id in state.history:
        known = snapshots.get(snapshot_id)
        if known is not None and known.operation == "replace":
            continue  # a compaction, or the like
        start = _first_day(at, period)
        end_ms = _end_ms(start, period) if start is not None else None
        if start is None or end_ms is None or end_ms > now_ms:
            continue
        last = state.history[bisect_left(times, end_ms) - 1][1]
        if last in snapshots:
            ends[start] = last
    return ends


def _first_day(at_ms: int, period: Period) -> date | None:
    try:
        day = datetime.fromtimestamp(at_ms / 1000, UTC).date()
        if period is Period.WEEKLY:
            return day - timedelta(days=day.weekday())
    except (OverflowError, ValueError, OSError):
        return None
    return day.replace(day=1) if period is Period.MONTHLY else day


def _end_ms(start: date, period: Period) -> int | None:
    """When the period is over, None if that is beyond every year that a tag can name."""
    try:
        if period is Period.MONTHLY:
            after = (start.replace(day=28) + timedelta(days=4)).replace(day=1)
        else:
            after = start + timedelta(days=7 if period is Period.WEEKLY else 1)
    except OverflowError:
        return None
    return (after - date(1970, 1, 1)).days * _DAY_MS
