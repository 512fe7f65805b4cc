"""The time that a partition stands for, such as a day, read from its spec and its path. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from neve.health.ranking import NEVER
from neve.table.calendar import days_to
from neve.table.files import Partition
from neve.table.state import TableState

_PARTS = {"year": 1, "month": 2, "day": 3, "hour": 4}
_VALUE = re.compile(r"(-?\d+)(?:-(\d\d))?(?:-(\d\d))?(?:-(\d\d))?", re.ASCII)
_HOUR_MS = 3_600_000


def end_ms(partition: Partition, state: TableState) -> int:
    """When the time that a partition stands for is over, NEVER where it stands for none."""
    values = {unquote_plus(name): value for name, _, value in (part.partition("=") for part in partition.path.split("/"))}
    types = {column.field_id: column.type for column in state.fields}
    ends = [NEVER]
    for field in next((spec.fields for spec in state.specs if spec.spec_id == partition.spec_id), ()):
        is_day = field.transform == "identity" and types.get(field.source_id) == "date"
        ends.append(period_end_ms("day" if is_day else field.transform, values.get(field.name, "null")))
    return max(ends)


def period_end_ms(transform: str, text: str) -> int:
    """The moment after the last one of a partition's value, NEVER where it is no time."""
    found = _VALUE.fullmatch(unquote_plus(text))
    parts = [int(part) for part in found.groups() if part is not None] if found is not None else []
    if len(parts) != _PARTS.get(transform, 0) or not parts:
        return NEVER
    if transform == "year":
        return days_to(parts[0] + 1) * 24 * _HOUR_MS
    try:
        start = days_to(*parts[:3])
    except ValueError:
        return NEVER
    if transform == "month":
        return days_to(parts[0] + parts[1] // 12, parts[1] % 12 + 1) * 24 * _HOUR_MS
    return (start + 1) * 24 * _HOUR_MS if transform == "day" else (start * 24 + parts[3] + 1) * _HOUR_MS
