"""Values for columns that a file lacks: initial defaults as the schema's JSON spells them, and identity partition values."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from neve.kernels.arrow.schema import primitive

_NANOS = re.compile(r"(.*\.\d{6})(\d{1,3})(.*)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        return date.fromisoformat(value)
    if kind == "time":
        return time.fromisoformat(value)
    if kind.startswith("timestamp"):
        return _since_epoch(value, nanos=kind.endswith("_ns"))
    return value


def _since_epoch(text: str, *, nanos: bool) -> int:
    """Microseconds or nanoseconds, since Python's own datetime ends at microseconds."""
    match = _NANOS.fullmatch(text)
    moment = datetime.fromisoformat(match[1] + match[3] if match else text)
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    micros = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    return micros * 1000 + int(match[2].ljust(3, "0") if match else 0) if nanos else micros


def partition_scalar(kind: str, value: Any) -> pa.Scalar:
    """An identity partition value: as Python has it, or as Iceberg stores it (days, microseconds)."""
    return pa.scalar(value.bytes if isinstance(value, UUID) else value, primitive(kind))
