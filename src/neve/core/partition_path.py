"""A partition as people and Iceberg write it: `day=2025-01-17/region=eu`.

Both metadata readers (plain Python and Spark) spell partitions through here, so that the same partition has one name
whichever reader saw it. Values come as stored in manifests: days and months as integers, decimals and UUIDs as Python values.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import quote_plus

EPOCH_DATE = dt.date(1970, 1, 1)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Iceberg's timestamps without zone count from here


class TypedField(NamedTuple):
    """A partition field with the Iceberg type of its stored value."""

    name: str
    transform: str
    type: str


def partition_path(fields: Sequence[TypedField], values: Sequence[Any]) -> str:
    """The partition's path; void fields are left out, as a reader cannot tell them apart.

    Iceberg spells the text `null` like no value at all, though these are two partitions: the text's first letter is escaped.
    """
    return "/".join(
        f"{quote_plus(field.name)}={'%6Eull' if value == 'null' else quote_plus(human(field.transform, field.type, value))}"
        for field, value in zip(fields, values, strict=True)
        if field.transform != "void"
    )


def human(transform: str, type_: str, value: Any) -> str:
    """One partition value as Iceberg's own tools print it."""
    if value is None:
        return "null"
    if transform in _BY_TRANSFORM:
        return _BY_TRANSFORM[transform](value)
    return _BY_TYPE.get(type_.partition("(")[0].partition("[")[0], str)(value)


def _day(value: int | dt.date) -> str:
    return (value if isinstance(value, dt.date) else EPOCH_DATE + dt.timedelta(days=value)).isoformat()


def _month(value: int) -> str:
    return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"


def _hour(value: int) -> str:
    return (EPOCH + dt.timedelta(hours=value)).strftime("%Y-%m-%d-%H")


def _timestamp(value: int | dt.datetime) -> str:
    if isinstance(value, int):
        return _fractional(EPOCH + dt.timedelta(microseconds=value))
    return _fractional((value.astimezone(dt.UTC) if value.tzinfo else value).replace(tzinfo=None))


def _timestamp_nanos(value: int) -> str:
    whole = _fractional(EPOCH + dt.timedelta(seconds=value // 10**9))
    fraction = f"{value % 10**9:09d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _time(value: int | dt.time) -> str:
    if isinstance(value, int):
        value = (EPOCH + dt.timedelta(microseconds=value)).time()
    return _strip_zeros(value.isoformat(timespec="microseconds"))


def _fractional(value: dt.datetime) -> str:
    return _strip_zeros(value.isoformat(timespec="microseconds"))


def _strip_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _zoned(plain: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: plain(value) + "+00:00"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


_BY_TRANSFORM: dict[str, Callable[[Any], str]] = {
    "year": lambda value: f"{1970 + value:04d}",
    "month": _month,
    "day": _day,
    "hour": _hour,
}
_BY_TYPE: dict[str, Callable[[Any], str]] = {
    "boolean": lambda value: "true" if value else "false",
    "date": _day,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _zoned(_timestamp),
    "timestamp_ns": _timestamp_nanos,
    "timestamptz_ns": _zoned(_timestamp_nanos),
    "decimal": _decimal,
    "binary": lambda value: base64.b64encode(value).decode(),
    "fixed": lambda value: base64.b64encode(value).decode(),
}
