"""The time that a partition stands for, such as a day, read from its spec and its path. Pure."""

from __future__ import annotations

import datetime as dt
from urllib.parse import unquote_plus

from neve.core.files import Partition
from neve.core.model import TableState
from neve.core.ranking import NEVER

_FORMATS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_SPANS = {"year": dt.timedelta(days=366), "month": dt.timedelta(days=31), "day": dt.timedelta(days=1)}


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
    if transform not in _FORMATS:
        return NEVER
    try:
        start = dt.datetime.strptime(unquote_plus(text), _FORMATS[transform]).replace(tzinfo=dt.UTC)
    except ValueError:  # null, or a year beyond what Python counts
        return NEVER
    end = start + _SPANS.get(transform, dt.timedelta(hours=1))
    if transform in ("year", "month"):
        end = end.replace(day=1)
    return int(end.timestamp() * 1000)
