"""Values for columns that a file lacks: initial defaults as the schema's JSON spells them, and identity partition values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from neve.kernels.arrow.schema import primitive
from neve.table.calendar import parsed_day, parsed_moment, parsed_time


def default_scalar(kind: str, value: Any) -> pa.Scalar:
    """An `initial-default`, from Iceberg's JSON single-value serialization."""
    return pa.scalar(_parsed(kind, value), primitive(kind))


def _parsed(kind: str, value: Any) -> Any:
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind in ("float", "double"):
        return float(value)  # Iceberg's JSON spells NaN and the infinities as texts
    if kind == "uuid":
        return UUID(value).bytes
    if kind == "binary" or kind.startswith("fixed"):
        return bytes.fromhex(value)
    if kind == "date":
        return parsed_day(value)
    if kind == "time":
        return parsed_time(value) // 1000
    if kind.startswith("timestamp"):
        return parsed_moment(value) // (1 if kind.endswith("_ns") else 1000)
    return value


def constant(kind: str, value: Any) -> Any:
    """An identity partition value from Iceberg's JSON as `partition_scalar` takes it: dates and times are whole numbers, since
    Python has neither nanoseconds nor every year."""
    if value is None:
        return None
    scalar = default_scalar(kind, value)
    return scalar.value if kind in ("date", "time") or kind.startswith("timestamp") else scalar.as_py()


def partition_scalar(kind: str, value: Any) -> pa.Scalar:
    """An identity partition value: as Python has it, or as Iceberg stores it (days, microseconds)."""
    return pa.scalar(value.bytes if isinstance(value, UUID) else value, primitive(kind))
