"""Random Iceberg schemas with rows (hypothesis), and what a rewrite must keep of them."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from neve.kernels.arrow import Counts
from neve.kernels.arrow.schema import leaves
from tests.builders.arrow_files import field, list_of, map_of, schema, struct

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MICROS = st.integers(-(10**14), 10**14)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "time": st.times(),
    "timestamp": MICROS.map(lambda us: datetime(2000, 1, 1) + timedelta(microseconds=us)),  # noqa: DTZ001
    "string": TEXT,
    "binary": st.binary(max_size=6),
    "uuid": st.binary(min_size=16, max_size=16),
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "decimal(9, 2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "decimal(18, 3)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "decimal(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}


class Numbers:
    """Field ids, one after another."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> int:
        self.last += 1
        return self.last


@st.composite
def kinds(draw: st.DrawFn, number: Numbers, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    """An Iceberg type and a strategy for its values."""
    shape = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"] if depth else ["leaf"]))
    if shape == "leaf":
        kind = draw(st.sampled_from(sorted(PRIMITIVES)))
        return kind, PRIMITIVES[kind]
    if shape == "struct":
        children = [draw(fields(number, f"f{i}", depth - 1)) for i in range(draw(st.integers(1, 3)))]
        return struct(*[f for f, _ in children]), st.fixed_dictionaries({f["name"]: values for f, values in children})
    if shape == "list":
        mine, required = number(), draw(st.booleans())
        kind, values = draw(kinds(number, depth - 1))
        return list_of(mine, kind, required=required), st.lists(values if required else st.none() | values, max_size=3)
    key, mine, required = number(), number(), draw(st.booleans())
    kind, values = draw(kinds(number, depth - 1))
    pairs = st.lists(
        st.tuples(st.text(string.ascii_letters, max_size=3), values if required else st.none() | values), max_size=3
    )
    return map_of(key, "string", mine, kind, required=required), pairs


@st.composite
def fields(draw: st.DrawFn, number: Numbers, name: str, depth: int) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    mine, required = number(), draw(st.booleans())
    kind, values = draw(kinds(number, depth))
    return field(mine, name, kind, required=required), values if required else st.none() | values


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """A schema and the rows of a few files."""
    number = Numbers()
    columns = [draw(fields(number, f"c{i}", 2)) for i in range(draw(st.integers(1, 4)))]
    rows = st.fixed_dictionaries({f["name"]: values for f, values in columns})
    return schema(*[f for f, _ in columns]), draw(st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3))


def plain(value: Any) -> Any:
    """Compares NaN with NaN and tells zeros apart."""
    if isinstance(value, float):
        return ("float", "nan") if math.isnan(value) else ("float", value, math.copysign(1, value))
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def entries(kind: Any, value: Any) -> Iterator[tuple[int, Any]]:
    """(leaf, value) pairs as Parquet stores them, from a plain Python value: an empty or missing list is a null."""
    below = [(f["id"], f["name"], f["type"]) for f in kind["fields"]] if kind["type"] == "struct" else []
    for number, name, child in below:
        mine = None if value is None else value[name]
        yield from [(number, mine)] if isinstance(child, str) else entries(child, mine)
    if kind["type"] == "list":
        for element in value or [None]:
            child = kind["element"]
            yield from [(kind["element-id"], element)] if isinstance(child, str) else entries(child, element)
    if kind["type"] == "map":
        for key, element in value or [(None, None)]:
            yield kind["key-id"], key
            child = kind["value"]
            yield from [(kind["value-id"], element)] if isinstance(child, str) else entries(child, element)


def counted(of: dict[str, Any], rows: list[dict[str, Any]]) -> dict[int, Counts]:
    found: dict[int, list[Any]] = {leaf.field_id: [] for leaf in leaves(of)}
    for row in rows:
        for number, value in entries(of, row):
            found[number].append(value)
    kinds_of = {leaf.field_id: leaf.kind for leaf in leaves(of)}
    return {
        number: Counts(
            len(values),
            sum(v is None for v in values),
            sum(v is not None and math.isnan(v) for v in values) if kinds_of[number] in {"float", "double"} else None,
        )
        for number, values in found.items()
    }
