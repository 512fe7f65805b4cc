"""Column metrics of a data file as Iceberg's manifests hold them: counts and bounds by field id.

Kernels build exact metrics, `restrict` applies the table's metrics modes, `merge` adds up those of several files. A float's
bounds never leave this module without its NaN count: a reader would take the absence of a count for the absence of NaN.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_FLOATS = frozenset({"float", "double"})
_INTEGERS = {"int": 4, "date": 4} | dict.fromkeys(
    ("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), 8
)
_LAST_CODE_POINT, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


@dataclass(frozen=True)
class ColumnMetrics:
    """One column of one file; None stands for not known."""

    size_bytes: int | None = None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


def to_bytes(kind: str, value: Any) -> bytes:
    """Iceberg's single-value serialization. Dates and times are integers since the epoch, decimals unscaled."""
    if kind in _INTEGERS:
        return int(value).to_bytes(_INTEGERS[kind], "little", signed=True)
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    if kind in _FLOATS:
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind.startswith("decimal"):
        unscaled = int(value)
        return unscaled.to_bytes(((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8, "big", signed=True)
    return value.encode() if isinstance(value, str) else bytes(value)


def from_bytes(kind: str, data: bytes) -> Any:
    """The inverse of `to_bytes`; narrower bytes are a value written before the column was widened."""
    if kind in _INTEGERS:
        return int.from_bytes(data, "little", signed=True)
    if kind in _FLOATS:
        return struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    if kind.startswith("decimal"):
        return int.from_bytes(data, "big", signed=True)
    return data != b"\x00" if kind == "boolean" else data


def order_key(kind: str, data: bytes) -> Any:
    """Compares as the type's values do: UTF-8 bytes compare like code points, and -0.0 comes before 0.0."""
    value = from_bytes(kind, data)
    return (value, math.copysign(1.0, value)) if kind in _FLOATS else value


@dataclass(frozen=True)
class MetricsMode:
    """What a column keeps: nothing, counts, or bounds too, cut to `length` characters or bytes unless None."""

    counts: bool
    bounds: bool
    length: int | None = None

    @classmethod
    def parse(cls, text: str, default: MetricsMode) -> MetricsMode:
        """Reads `none`, `counts`, `full` or `truncate(n)`; anything else means the default, as in Iceberg."""
        name = text.strip().lower()
        if name in _MODES:
            return _MODES[name]
        cut = re.fullmatch(r"truncate\((\d+)\)", name)
        return cls(counts=True, bounds=True, length=int(cut[1])) if cut and int(cut[1]) > 0 else default


NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(counts=True, bounds=False)
FULL = MetricsMode(counts=True, bounds=True)
TRUNCATE_16 = MetricsMode(counts=True, bounds=True, length=16)
_MODES = {"none": NONE, "counts": COUNTS, "full": FULL}

_DEFAULT_KEY = "write.metadata.metrics.default"
_COLUMN_KEY = "write.metadata.metrics.column."
_LIMIT_KEY = "write.metadata.metrics.max-inferred-column-defaults"


def metrics_modes(
    schema: Mapping[str, Any], properties: Mapping[str, str], sorted_ids: Iterable[int] = ()
) -> dict[int, MetricsMode]:
    """The mode of each leaf column by field id, from the table's properties; columns sorted by keep bounds by default."""
    names = dict(_leaf_names(schema))
    configured = _DEFAULT_KEY in properties
    fallback = MetricsMode.parse(properties.get(_DEFAULT_KEY, ""), TRUNCATE_16)
    limit = int(properties.get(_LIMIT_KEY, "100"))
    modes = {}
    for position, (field_id, name) in enumerate(names.items()):
        mode = fallback if configured or position < limit else NONE
        if field_id in set(sorted_ids) and not mode.bounds:
            mode = TRUNCATE_16
        own = properties.get(_COLUMN_KEY + name)
        modes[field_id] = MetricsMode.parse(own, mode) if own is not None else mode
    return modes


def _leaf_names(kind: Any, prefix: str = "") -> Iterator[tuple[int, str]]:
    """Leaves by field id, a struct's primitive columns before its nested ones, as Iceberg counts towards the limit."""
    children = list(_children(kind, prefix))
    yield from ((field_id, name) for field_id, name, child in children if isinstance(child, str))
    for _, name, child in children:
        if not isinstance(child, str):
            yield from _leaf_names(child, f"{name}.")


def _children(kind: Any, prefix: str) -> Iterator[tuple[int, str, Any]]:
    if kind["type"] == "struct":
        yield from ((f["id"], prefix + f["name"], f["type"]) for f in kind["fields"])
    elif kind["type"] == "list":
        yield kind["element-id"], f"{prefix}element", kind["element"]
    else:
        yield kind["key-id"], f"{prefix}key", kind["key"]
        yield kind["value-id"], f"{prefix}value", kind["value"]


def restrict(column: ColumnMetrics, kind: str, mode: MetricsMode) -> ColumnMetrics:
    """What this mode lets a manifest hold of exact metrics."""
    if not mode.counts:
        return ColumnMetrics(size_bytes=column.size_bytes)
    if not mode.bounds or (kind in _FLOATS and column.nans is None):
        return replace(column, lower=None, upper=None)
    if mode.length is None and kind == "string":
        return replace(column, lower=_decodable(column.lower), upper=_decodable(column.upper))
    if mode.length is None or kind not in {"string", "binary"}:
        return column
    lower = None if column.lower is None else truncate_lower(kind, column.lower, mode.length)
    upper = None if column.upper is None else truncate_upper(kind, column.upper, mode.length)
    return replace(column, lower=lower, upper=upper)


def _decodable(bound: bytes | None) -> bytes | None:
    """A bound that is to be kept whole, unless readers would decode it to something else."""
    return bound if bound is not None and valid_text(bound).encode() == bound else None


def for_manifest(
    metrics: Mapping[int, ColumnMetrics], schema: Mapping[str, Any], modes: Mapping[int, MetricsMode]
) -> dict[int, ColumnMetrics]:
    """Exact metrics as a manifest entry holds them. Below lists and maps only sizes are kept, as Iceberg's writer does."""
    single = dict(_single_leaves(schema))
    kept = {i: restrict(column, single[i], modes.get(i, TRUNCATE_16)) for i, column in metrics.items() if i in single}
    return {i: kept.get(i, ColumnMetrics(size_bytes=column.size_bytes)) for i, column in metrics.items()}


def _single_leaves(kind: Any) -> Iterator[tuple[int, str]]:
    """Types by field id of the leaves that have one value per row."""
    for field in kind["fields"]:
        child = field["type"]
        if isinstance(child, str):
            yield field["id"], child
        elif child["type"] == "struct":
            yield from _single_leaves(child)


def valid_text(data: bytes) -> str:
    """The text up to the first byte that is not UTF-8: values of string columns are often bytes of another encoding."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()


def truncate_lower(kind: str, data: bytes, length: int) -> bytes:
    """The first characters or bytes: at or below every value that the bound was below.

    Text ends before the first byte that is not UTF-8: readers decode bounds, and would compare what they put in its place.
    """
    return valid_text(data)[:length].encode() if kind == "string" else data[:length]


def truncate_upper(kind: str, data: bytes, length: int) -> bytes | None:
    """A short value at or above the bound, None where there is none (all characters are the last possible one)."""
    if kind != "string":
        cut = data[:length].rstrip(b"\xff") if len(data) > length else data
        return data if len(data) <= length else (cut[:-1] + bytes([cut[-1] + 1]) if cut else None)
    text = valid_text(data)
    if len(text) <= length and text.encode() == data:
        return data
    return _after(text[:length])


def _after(text: str) -> bytes | None:
    """The least short text above everything that begins so, whatever bytes follow; None where there is none."""
    kept = text.rstrip(chr(_LAST_CODE_POINT))
    return (kept[:-1] + _next_character(kept[-1])).encode() if kept else None


def with_sure_bounds(
    metrics: Mapping[int, ColumnMetrics], kinds: Mapping[int, str], exact: Collection[int] = ()
) -> dict[int, ColumnMetrics]:
    """Metrics whose text bounds hold for the bytes of the values, in the order of unsigned bytes.

    Iceberg's Java writer decodes values and puts U+FFFD in place of each byte that is not UTF-8: such a bound may lie above a
    lower value or below an upper one. It is cut before that character, which is right for genuine ones too; bounds of the
    columns `exact`, which engines take for values (`MIN` and `MAX` of metrics mode `full`), are left out instead.
    """
    return {i: _sure(column, exact=i in exact) if kinds.get(i) == "string" else column for i, column in metrics.items()}


def _sure(column: ColumnMetrics, *, exact: bool) -> ColumnMetrics:
    lower, upper = column.lower, column.upper
    if lower is not None and (sure := _sure_text(lower)) is not None:
        lower = None if exact else sure.encode()
    if upper is not None and (sure := _sure_text(upper)) is not None:
        upper = None if exact else _after(sure)
    return replace(column, lower=lower, upper=upper)


def _sure_text(bound: bytes) -> str | None:
    """The part of a bound before the first character that is in doubt, None if none is. U+FFFE is U+FFFD rounded up."""
    text = valid_text(bound)
    sure = re.split("[\ufffd\ufffe]", text, maxsplit=1)[0]
    return None if sure.encode() == bound else sure


def _next_character(character: str) -> str:
    following = ord(character) + 1
    return chr(_SURROGATES.stop if following in _SURROGATES else following)


def merge(files: Sequence[Mapping[int, ColumnMetrics]], kinds: Mapping[int, str]) -> dict[int, ColumnMetrics]:
    """Metrics of the files' rows together. What any file lacks is left out, save bounds where it has no value to bound."""
    ids = dict.fromkeys(field_id for metrics in files for field_id in metrics if field_id in kinds)
    absent = ColumnMetrics()
    return {i: _merge_column(kinds[i], [metrics.get(i, absent) for metrics in files]) for i in ids}


def _merge_column(kind: str, columns: Sequence[ColumnMetrics]) -> ColumnMetrics:
    nans = _total(column.nans for column in columns)
    bounded = kind not in _FLOATS or nans is not None
    return ColumnMetrics(
        size_bytes=_total(column.size_bytes for column in columns),
        values=_total(column.values for column in columns),
        nulls=_total(column.nulls for column in columns),
        nans=nans,
        lower=_extreme(kind, columns, upper=False) if bounded else None,
        upper=_extreme(kind, columns, upper=True) if bounded else None,
    )


def _total(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def _extreme(kind: str, columns: Sequence[ColumnMetrics], *, upper: bool) -> bytes | None:
    bounds = []
    for column in columns:
        bound = column.upper if upper else column.lower
        if bound is not None:
            bounds.append(to_bytes(kind, from_bytes(kind, bound)))
        elif not _holds_nothing(column):
            return None
    pick = max if upper else min
    return pick(bounds, key=lambda data: order_key(kind, data)) if bounds else None


def _holds_nothing(column: ColumnMetrics) -> bool:
    """Nulls and NaN only, so that a missing bound is no lack."""
    if column.values is None or column.nulls is None:
        return False
    return column.values == column.nulls + (column.nans or 0)


def leaf_fields(schema: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Columns by field id that have one value per row, nested ones in structs included."""
    for field in schema["fields"]:
        if isinstance(field["type"], str):
            yield field["id"], field
        elif field["type"]["type"] == "struct":
            yield from leaf_fields(field["type"])
