"""Stated queries: predicates that readers are known to ask, and what each has to read. Pure values and counts.

Predicates are Spark SQL; an engine plans them and hands on what it found, with the condition as Iceberg's own JSON. What a plan
makes of the files that a query reads is worked out by `query_gain`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.table.files import DATA, FileColumns
from neve.table.frozen import Frozen

Mask = npt.NDArray[np.bool_]
Condition = Mapping[str, Any] | bool
"""A node of Iceberg's JSON for expressions, bound to the table's schema and free of NOT."""


class QueryReads(Frozen):
    """What planning a query chooses: files, the row groups and bytes in them, and how long planning took, if it was done."""

    files: int
    row_groups: int
    bytes: int
    planning_seconds: float | None = None


class QueryGain(Frozen):
    """One stated query: as it was before a run, as it was predicted to be after, and as it is, once the run is over."""

    query: str
    before: QueryReads
    predicted: QueryReads
    after: QueryReads | None = None


@dataclass(frozen=True)
class Planned:
    """What an engine's planning says of a query: its condition, the files that it has to read, and how long that took."""

    query: str
    condition: Condition
    paths: Collection[str]
    seconds: float


def split_queries(text: str) -> tuple[str, ...]:
    """Predicates that stand between semicolons, those within quotes not counted."""
    parts = re.findall(r"""(?:'[^']*'|"[^"]*"|`[^`]*`|[^;])+""", text)
    return tuple(part.strip() for part in parts if part.strip())


def reads_of(planned: Planned, files: FileColumns) -> QueryReads:
    """The query's files in numbers; `files` are those of the snapshot that it was planned on."""
    return summed(files, is_read(files, planned), planned.seconds)


def is_read(files: FileColumns, planned: Planned) -> Mask:
    """Which of the files the query has to read."""
    read = pc.is_in(files.table.column("path"), value_set=pa.array(sorted(planned.paths), pa.string()))
    mask: Mask = np.asarray(read) & (files.column("content") == DATA)
    return mask


def summed(files: FileColumns, read: Mask, seconds: float | None = None) -> QueryReads:
    """These files in numbers."""
    groups, sizes = np.maximum(files.column("row_groups"), 1), files.column("size_bytes")
    return QueryReads(
        files=int(read.sum()), row_groups=int(groups[read].sum()), bytes=int(sizes[read].sum()), planning_seconds=seconds
    )
