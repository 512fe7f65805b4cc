"""Which rows share a file: the layout that a rewrite gives to its outputs, as a value and as text. Pure.

A table keeps its clustering in the property `neve.cluster-by`, so that any later run goes on with the same layout; a sort order
of the table is a layout as well. Read by planners, carried by work orders, obeyed by kernels. `Layout.parse(str(layout))` is
the layout again.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

from pydantic import Field

from neve.table.frozen import Frozen

CLUSTER_BY = "neve.cluster-by"
"""The table property that keeps a clustering, such as `hilbert(city, amount)`."""

WRITTEN_IN = "neve.layout"
"""Stands in the summary of every snapshot of ours all of whose files are in one layout, with that layout."""


class LayoutKind(StrEnum):
    """How rows are brought into one order."""

    SORT = "sort"  # by the first column, then the next
    ZORDER = "z-order"  # by the interleaved bits of all columns
    HILBERT = "hilbert"  # along Hilbert's curve: as z-order, without its jumps


_TERM = re.compile(
    r"^(?:(?P<transform>\w+(?:\[\d+\])?)\((?P<inner>.+)\)|(?P<name>.+?))"
    r"(?P<words>(?:\s+(?:asc|desc|nulls[- ](?:first|last)))*)$",
    re.I,
)
_KIND = re.compile(r"^\s*(?P<kind>sort|z-?order|hilbert)\s*\((?P<inner>.*)\)\s*$", re.I | re.S)


class SortField(Frozen):
    """One column of a layout by its name in the current schema, dots between levels; `str` gives Iceberg's spelling.

    Where nothing is said, nulls come first in ascending and last in descending order, as in Iceberg and Spark.
    """

    name: str = Field(min_length=1)
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        column = self.name if self.transform == "identity" else f"{self.transform}({self.name})"
        return f"{column} {'desc' if self.descending else 'asc'} nulls-{'first' if self.nulls_first else 'last'}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name`, `name desc nulls-last` or `bucket[16](name) asc nulls-first`, in any case of the words."""
        found = _TERM.match(text.strip())
        name = (found["inner"] or found["name"]).strip() if found else ""
        if not found or not name or "," in name:
            raise ValueError(f"{text.strip()!r} is not a column; write name, name desc nulls-last or truncate[4](name)")
        words = found["words"].lower().replace("-", " ").split()
        descending = "desc" in words
        nulls_first = "first" in words or ("last" not in words and not descending)
        transform = (found["transform"] or "identity").lower()
        return cls(name=name, transform=transform, descending=descending, nulls_first=nulls_first)


class Layout(Frozen):
    """The order of rows within a partition. `order_id` is that of the table's own sort order, 0 for any other layout: files
    are recorded as sorted by it only where they are."""

    kind: LayoutKind
    fields: tuple[SortField, ...] = Field(min_length=1)
    order_id: int = 0

    def __str__(self) -> str:
        plain = self.kind is not LayoutKind.SORT
        return f"{self.kind}({', '.join(field.name if plain else str(field) for field in self.fields)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns by name, the most important first."""
        return tuple(field.name for field in self.fields)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `z-order(a, b)`, `hilbert(a, b)`, `sort(a desc, b)`, or plain `a, b`: one column is sorted by, several are
        laid along Hilbert's curve."""
        found = _KIND.match(text)
        inner = found["inner"] if found else text
        fields = tuple(SortField.parse(part) for part in inner.split(","))
        word = found["kind"].lower().replace("zorder", "z-order") if found else ("sort" if len(fields) == 1 else "hilbert")
        kind = LayoutKind(word)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise ValueError(f"{text!r} names a column twice")
        if kind is not LayoutKind.SORT and any(field != SortField(name=field.name) for field in fields):
            raise ValueError(f"{text!r} gives an order or a transform to columns of a curve; only sort takes them")
        return cls(kind=kind, fields=fields)


def sorted_by(order_id: int, fields: tuple[str, ...]) -> Layout:
    """The layout of a table's own sort order, whose fields are spelled as `SortField` does."""
    return Layout(kind=LayoutKind.SORT, fields=tuple(SortField.parse(field) for field in fields), order_id=order_id)
