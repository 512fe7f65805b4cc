"""Values as people and Iceberg's JSON for expressions write them, turned into Iceberg's bytes. Pure; called by `query_gain`."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from fractions import Fraction
from typing import Any
from uuid import UUID

from neve.errors import BadRequestError
from neve.table.metrics import to_bytes
from neve.table.state import Column


def serialized(column: Column, value: Any) -> bytes:
    """A value as Iceberg's bytes for this column. Dates, times, decimals, UUIDs and bytes may be text, as in Iceberg's JSON for
    expressions; dates and times may be numbers, as there."""
    try:
        return _serialized(column.type, value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise BadRequestError(f"Cannot compare {column.name} with {value!r}: not a value of type {column.type}") from error


def _serialized(kind: str, value: Any) -> bytes:
    if kind in {"int", "long"}:
        if int(value) != value:
            raise ValueError(value)
        return to_bytes("long", value)
    if kind in {"float", "double"}:
        return to_bytes("double", float(value))
    if kind in {"date", "time"} or kind.startswith("timestamp"):
        return to_bytes("long", value if isinstance(value, int) else _number_of(kind, value))
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        return to_bytes(kind, int(Fraction(str(value)) * 10**scale))  # exact: Python's decimals round to 28 digits
    if kind == "uuid":
        return (value if isinstance(value, UUID) else UUID(value)).bytes
    if isinstance(value, str) and (kind == "binary" or kind.startswith("fixed")):
        return bytes.fromhex(value)
    if not isinstance(value, {"string": str, "boolean": bool}.get(kind, bytes)):
        raise TypeError(value)
    return to_bytes(kind, value)


def _number_of(kind: str, value: Any) -> int:
    """A date or time as Iceberg counts it."""
    if kind == "date":
        return int((_parsed(date, value) - date(1970, 1, 1)).days)
    if kind == "time":
        at = _parsed(time, value)
        return int(((at.hour * 60 + at.minute) * 60 + at.second) * 10**6 + at.microsecond)
    at = _parsed(datetime, value)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return int(micros * 1000 if kind.endswith("_ns") else micros)


def _parsed(kind: Any, value: Any) -> Any:
    return kind.fromisoformat(value) if isinstance(value, str) else value
