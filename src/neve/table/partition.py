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

from neve.table.calendar import day_of, iso_moment


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
        f"{_quoted(field.name)}={'%6Eull' if value == 'null' else _quoted(human(field.transform, field.type, value))}"
        for field, value in zip(fields, values, strict=True)
        if field.transform != "void"
    )


def _quoted(text: str) -> str:
    """A text as a path can hold it; half a pair of surrogates too, as its own, so that no two partitions share a name."""
    return quote_plus(text, errors="surrogatepass")


def human(transform: str, type_: str, value: Any) -> str:
    """One partition value as Iceberg's own tools print it."""
    if value is None:
        return "null"
    if transform in _BY_TRANSFORM:
        return _BY_TRANSFORM[transform](value)
    return _BY_TYPE.get(type_.partition("(")[0].partition("[")[0], str)(value)


def _day(value: int | dt.date) -> str:
    on = value if isinstance(value, dt.date) else day_of(value)
    return f"{on.year:04d}-{on.month:02d}-{on.day:02d}"


def _month(value: int) -> str:
    return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"


def _hour(value: int) -> str:
    return f"{_day(value // 24)}-{value % 24:02d}"


def _timestamp(value: int | dt.datetime) -> str:
    if isinstance(value, int):
        return iso_moment(value // 10**6, f"{value % 10**6:06d}")
    plain = (value.astimezone(dt.UTC) if value.tzinfo else value).replace(tzinfo=None)
    return _strip_zeros(plain.isoformat(timespec="microseconds"))


def _timestamp_nanos(value: int) -> str:
    return iso_moment(value // 10**9, f"{value % 10**9:09d}")


def _time(value: int | dt.time) -> str:
    if isinstance(value, int):
        return iso_moment(value // 10**6, f"{value % 10**6:06d}").partition("T")[2]
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
