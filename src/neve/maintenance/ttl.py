"""Data TTL: which rows are past their time, and of which files that is certain from metadata alone. Pure.

Carried out by `operations.ttl`. A row is past if the time that its column tells, and the whole period that it tells, lies
before the cutoff. Nulls never are, nor values that tell no time. Whatever metadata does not prove is left to the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, NamedTuple

from neve.errors import BadRequestError
from neve.health.not_due import NotDue, Unit
from neve.maintenance.record import MaintenanceRecord
from neve.policy.model import Policy
from neve.rewrite.live_files import LiveFile
from neve.table import time_format
from neve.table.calendar import days_to
from neve.table.frozen import Frozen
from neve.table.literals import serialized
from neve.table.metrics import from_bytes
from neve.table.state import Column, PartitionSpec, TableState
from neve.table.units import exact_seconds

_DAY = 86_400
_PER_SECOND = {"timestamp": 10**6, "timestamptz": 10**6, "timestamp_ns": 10**9, "timestamptz_ns": 10**9}
_NUMBERS = frozenset({"int", "long"})
_BOUND_BYTES = {"date": (4,), "int": (4,), "long": (4, 8)} | dict.fromkeys(_PER_SECOND, (8,))
"""A bound of another length was written when the column had another type, such as a date that is a timestamp now."""
_PERIODS = {"hour": 3600, "day": _DAY}
_EARLIEST_MS = days_to(-290_000) * _DAY * 1000


class TtlRule(Frozen):
    """What a table's limit is, in the words of its policy."""

    column: str
    field_id: int
    type: str
    format: str | None = None
    keep_seconds: float
    since: str = "now"
    by: str = "row"


class TtlCounts(Frozen):
    """What a preview tells and an enforcement does, on one snapshot. Rows of dropped files are those that are stored in them,
    deleted ones included; rows deleted one by one are those that readers saw."""

    files_dropped: int = 0
    rows_dropped: int = 0
    bytes_dropped: int = 0
    files_touched: int = 0
    """That hold rows past their time beside others."""
    rows_deleted: int = 0
    files_left: int = 0
    """For another run: beyond the limit of one, or not to be opened; and those whose rows readers see differently."""

    @property
    def nothing(self) -> bool:
        """Whether no row would go."""
        return not self.files_dropped and not self.rows_deleted


class UnprovedFile(Frozen):
    """A file that metadata says is past its time as a whole, and whose own footer does not confirm it (`ttl_proof`)."""

    path: str
    reason: str
    left: bool
    """Whether its rows are left alone. Otherwise they are read, and those past their time are deleted one by one."""
    unreadable: bool = False


class TtlRecord(MaintenanceRecord):
    """A preview, where `dry_run`, or an enforcement."""

    rule: TtlRule
    cutoff_ms: int | None
    """None where the last write is unknown: then every row is kept."""
    counts: TtlCounts = TtlCounts()
    previewed_by: str | None = None
    """The run whose cutoff this one took over."""
    files: tuple[str, ...] = ()
    """That are dropped whole."""
    unproved: tuple[UnprovedFile, ...] = ()
    """That are not dropped whole since their footers do not confirm it."""
    recorded: bool = True
    """Whether the state store has it: a preview with `--dry-run` is not remembered, and nothing can be enforced by it."""


@dataclass(frozen=True)
class TtlLimits:
    """`low <= value < high`, and for texts and digits the pattern that they match; numbers are in the column's own unit."""

    low: int | None
    high: int | str
    pattern: str | None = None

    def hold(self, value: int | str) -> bool:
        """Whether a value is past."""
        if isinstance(value, str):
            return isinstance(self.high, str) and value < self.high and time_format.matches(self.pattern or "", value)
        is_between = (self.low is None or value >= self.low) and value < int(self.high)
        return is_between and (self.pattern is None or time_format.matches(self.pattern, str(value)))

    def hold_between(self, lower: int, upper: int) -> bool:
        """Whether every number from one to the other is past. Between two months there are digits that are no day."""
        ends = self.hold(lower) and self.hold(upper)
        return ends and (self.pattern is None or time_format.differ_in_last_field(self.pattern, lower, upper))

    def end_before(self, value: int | str) -> bool:
        """Whether a value, and with it every larger one, lies behind the limits."""
        return value >= str(self.high) if isinstance(value, str) else value >= int(self.high)


class FileVerdict(StrEnum):
    """What metadata says of a file's rows."""

    PAST = "past"  # every one of them
    KEPT = "kept"  # none of them
    UNSURE = "unsure"


def rule_of(state: TableState, policy: Policy) -> TtlRule:
    """The table's rule. Raises BadRequestError where it has none, or none that can be meant."""
    keep = policy.ttl_seconds
    if keep is None:
        hint = "Say how long rows are kept: --ttl '30 days', or the table property neve.ttl."
        raise BadRequestError(f"Cannot find rows of {state.name} past their time: no limit is set", hint=hint)
    if keep < policy.ttl_floor_seconds:
        reason = f"that is below ttl-floor, {exact_seconds(policy.ttl_floor_seconds)}"
        hint = "A limit in the wrong unit would empty the table. Lower ttl-floor if it is really meant."
        raise BadRequestError(f"Cannot keep rows of {state.name} for {exact_seconds(keep)} only: {reason}", hint=hint)
    column = _column(state, policy.ttl_column)
    rule = TtlRule(
        column=column.name,
        field_id=column.field_id,
        type=column.type,
        format=policy.ttl_format if column.type in _NUMBERS | {"string"} else None,
        keep_seconds=keep,
        since=policy.ttl_since,
        by=policy.ttl_by,
    )
    limits_of(rule, 0)
    return rule


def _column(state: TableState, name: str | None) -> Column:
    """The named one, or the only one that the table is partitioned by as a time."""
    known = {column.field_id: column for column in state.fields}
    if name is not None:
        found = [column for column in state.fields if column.name == name]
    else:
        sources = {f.source_id for f in state.spec(state.default_spec_id).fields if f.transform not in ("void", "bucket")}
        found = [known[i] for i in sorted(sources & known.keys()) if known[i].type == "date" or known[i].type in _PER_SECOND]
    if len(found) == 1:
        return found[0]
    reason = f"it has no column {name} of single values" if name else f"{len(found)} columns partition it by time, not one"
    hint = "Name the column that tells when a row was made: --ttl-column ts, or the table property neve.ttl-column."
    raise BadRequestError(f"Cannot tell the age of rows of {state.name}: {reason}", hint=hint)


def cutoff_ms(rule: TtlRule, now_ms: int, last_write_ms: int | None) -> int | None:
    """Before this moment a row is past. None keeps every row: by `last-write` none is past while that is unknown.

    A last write in the future comes from a wrong clock and never moves the cutoff past that of `now`. No cutoff is
    before the year -290000, near which the timestamps of Iceberg and Spark begin.
    """
    if rule.since != "last-write":
        since = now_ms
    elif last_write_ms is None:
        return None
    else:
        since = min(now_ms, last_write_ms)
    return max(since - int(rule.keep_seconds * 1000), _EARLIEST_MS)


def next_past(rule: TtlRule, lowers: Iterable[bytes | None], cutoff_ms: int, now_ms: int) -> NotDue:
    """Returns when the next row is past its time; `lowers` are the lower bounds of the column in the table's data files.

    A bound may be of a row that was deleted since, so that the first row may be past later than that.
    """
    keep_seconds, ttl = rule.keep_seconds, {"rule": "ttl", "knob": "ttl"}
    oldest = min((bound for data in lowers if (bound := _bound(rule, data)) is not None), default=None)
    past_ms = None if oldest is None else _past_from(rule, oldest, cutoff_ms)
    if past_ms is None:
        return NotDue(what=f"no file tells how old its values of {rule.column} are", until="rows grow older", **ttl)
    what = f"age of the oldest {rule.column}, by the bounds of data files"
    if rule.since == "last-write":
        what = f"{what}, at the last write"
        age = keep_seconds - (past_ms - cutoff_ms) / 1000
        when: dict[str, Any] = {"until": "the table is written again"}
    else:
        due_ms = past_ms + round(keep_seconds * 1000)
        age, when = keep_seconds - (due_ms - now_ms) / 1000, {"due_ms": due_ms}
    numbers = {"measured": round(age, 3), "threshold": keep_seconds, "unit": Unit.SECONDS}
    return NotDue.model_validate({"what": what, **numbers, **ttl, **when})


def _past_from(rule: TtlRule, value: int | str, after_ms: int) -> int | None:
    """The first cutoff by which a value is past, None if none of the next hundred years is."""
    span = range(after_ms, after_ms + _CENTURY_MS)
    place = bisect_left(span, True, key=lambda cutoff: limits_of(rule, cutoff).hold(value))
    return None if place == len(span) else span[place]


_CENTURY_MS = 36_525 * _DAY * 1000


class Tally(NamedTuple):
    """Rows of one file that readers see: past their time, and all others, those that tell no time included."""

    past: int
    kept: int


def wrongly_removed(before: Iterable[Tally], after: Iterable[Tally]) -> int:
    """How many rows that are not past their time a delete removed, by the files that it changed."""
    return sum(tally.kept for tally in before) - sum(tally.kept for tally in after)


@dataclass(frozen=True)
class TtlTarget:
    """What a destructive statement is aimed at. It is compared with the table right before each of them is sent."""

    table_uuid: str
    branch: str
    field_id: int
    column: str
    type: str

    def objection(self, table_uuid: str, schema: Mapping[str, Any]) -> str | None:
        """Why a table with this uuid and schema, in Iceberg's JSON, is not the target; None if it is."""
        if table_uuid != self.table_uuid:
            return f"the table was replaced by another one (uuid {table_uuid}, planned for {self.table_uuid})"
        found = field_of(schema, self.field_id)
        if found is None:
            return f"column {self.column} (field {self.field_id}) is no longer in the table"
        path, kind = found
        if ".".join(path) != self.column or kind != self.type:
            return f"field {self.field_id} is now {'.'.join(path)} ({kind}) and was planned as {self.column} ({self.type})"
        return None


def field_of(schema: Mapping[str, Any], field_id: int) -> tuple[tuple[str, ...], str] | None:
    """The path of names to a primitive column, struct by struct, and its type. Names may contain dots, so a path is no text."""
    for field in schema.get("fields") or ():
        kind = field["type"]
        if field["id"] == field_id:
            return ((field["name"],), kind) if isinstance(kind, str) else None
        if isinstance(kind, dict) and kind.get("type") == "struct" and (found := field_of(kind, field_id)) is not None:
            return (field["name"], *found[0]), found[1]
    return None


def limits_of(rule: TtlRule, cutoff_ms: int) -> TtlLimits:
    """Between which values of the column a row is past. Raises BadRequestError for a column that tells no time."""
    kind, form, seconds = rule.type, rule.format, cutoff_ms // 1000
    if kind in _PER_SECOND:
        return TtlLimits(None, cutoff_ms * (_PER_SECOND[kind] // 1000))
    if kind == "date":
        return TtlLimits(None, seconds // _DAY)
    if kind not in _NUMBERS | {"string"}:
        raise BadRequestError(f"Cannot tell the age of rows by {rule.column}: a {kind} is no time")
    if form is None:
        hint = "State it: --ttl-format yyyy-MM-dd, or milliseconds, or the table property neve.ttl-format."
        raise BadRequestError(f"Cannot tell the age of rows by {rule.column}: a {kind} has no format of its own", hint=hint)
    if kind == "string" and form not in time_format.UNITS:
        return TtlLimits(None, time_format.written(form, seconds), form)
    if kind in _NUMBERS and form in time_format.UNITS:
        per_second = time_format.UNITS[form]
        return TtlLimits(time_format.EARLIEST_SECONDS * per_second, cutoff_ms * per_second // 1000)
    if kind in _NUMBERS and time_format.is_numeric(form):
        high = time_format.written(form, seconds)
        return TtlLimits(10 ** (len(high) - 1), int(high), form)
    raise BadRequestError(f"Cannot tell the age of rows by {rule.column}: a {kind} cannot be written as {form}")


def verdict(file: LiveFile, rule: TtlRule, limits: TtlLimits, spec: PartitionSpec | None) -> FileVerdict:
    """By the file's partition, else by its bounds."""
    by_partition = _by_partition(file, rule, limits, spec)
    return by_partition if by_partition is not FileVerdict.UNSURE else _by_bounds(file, rule, limits)


def _by_partition(file: LiveFile, rule: TtlRule, limits: TtlLimits, spec: PartitionSpec | None) -> FileVerdict:
    for field, value in zip(spec.fields if spec else (), file.data_file.get("partition") or (), strict=False):
        if field.source_id != rule.field_id or field.transform not in ("identity", "year", "month", *_PERIODS):
            continue
        if value is None:
            return FileVerdict.KEPT  # of a null the transform is null, and of nothing else
        with suppress(ValueError, BadRequestError):  # such as a year beyond what Python counts
            found = _by_value(field.transform, value, rule, limits)
            if found is not FileVerdict.UNSURE:
                return found
    return FileVerdict.UNSURE


def is_past_by_partition(file: LiveFile, rule: TtlRule, limits: TtlLimits, spec: PartitionSpec | None) -> bool:
    """Whether the file's partition alone says that every row is past its time."""
    return _by_partition(file, rule, limits, spec) is FileVerdict.PAST


def identity_value(file: LiveFile, rule: TtlRule, spec: PartitionSpec | None) -> int | str | None:
    """The value of the column by which the file is partitioned, in the column's own unit; None if it is not, or by a null."""
    for field, value in zip(spec.fields if spec else (), file.data_file.get("partition") or (), strict=False):
        if field.source_id == rule.field_id and field.transform == "identity" and value is not None:
            with suppress(ValueError, BadRequestError):
                return _plain(rule, value)
    return None


def _by_value(transform: str, value: Any, rule: TtlRule, limits: TtlLimits) -> FileVerdict:
    if transform == "identity":
        return FileVerdict.PAST if limits.hold(_plain(rule, value)) else FileVerdict.KEPT
    return _by_period(transform, value, rule, limits)


def _plain(rule: TtlRule, value: Any) -> int | str:
    """A value of Iceberg's JSON in the column's own unit."""
    if rule.type == "string":
        return str(value)
    return int(from_bytes("long", serialized(Column(field_id=rule.field_id, name=rule.column, type=rule.type), value)))


def _by_period(transform: str, value: Any, rule: TtlRule, limits: TtlLimits) -> FileVerdict:
    if rule.type != "date" and rule.type not in _PER_SECOND:
        return FileVerdict.UNSURE
    start, end = _period(transform, value)
    per_second = _PER_SECOND.get(rule.type, 1)
    first, after = (at // _DAY if rule.type == "date" else at * per_second for at in (start, end))
    if after <= int(limits.high):
        return FileVerdict.PAST
    return FileVerdict.KEPT if first >= int(limits.high) else FileVerdict.UNSURE


def _period(transform: str, value: Any) -> tuple[int, int]:
    """The seconds in which a partition begins and ends; days come as texts, the others as numbers since 1970."""
    if transform in _PERIODS:
        number = (date.fromisoformat(value) - date(1970, 1, 1)).days if isinstance(value, str) else int(value)
        return number * _PERIODS[transform], (number + 1) * _PERIODS[transform]
    months = int(value) * (12 if transform == "year" else 1)
    return _month(months), _month(months + (12 if transform == "year" else 1))


def _month(number: int) -> int:
    return (date(1970 + number // 12, number % 12 + 1, 1) - date(1970, 1, 1)).days * _DAY


def _by_bounds(file: LiveFile, rule: TtlRule, limits: TtlLimits) -> FileVerdict:
    metrics = file.metrics.get(rule.field_id)
    if metrics is None:
        return FileVerdict.UNSURE
    if metrics.values is not None and metrics.values == metrics.nulls:
        return FileVerdict.KEPT
    lower, upper = (_bound(rule, data) for data in (metrics.lower, metrics.upper))
    if lower is not None and limits.end_before(lower):
        return FileVerdict.KEPT
    # Between two texts of the format there may be others that are none.
    if not isinstance(lower, int) or not isinstance(upper, int) or metrics.nulls != 0:
        return FileVerdict.UNSURE
    return FileVerdict.PAST if limits.hold_between(lower, upper) else FileVerdict.UNSURE


def _bound(rule: TtlRule, data: bytes | None) -> int | str | None:
    if data is None:
        return None
    if rule.type == "string":
        return data.decode(errors="replace")
    return int(from_bytes("long", data)) if len(data) in _BOUND_BYTES[rule.type] else None
