"""What stated queries would read after a plan's run, from metadata alone. Pure; called by `operations.queries`.

Which files a query reads now, Iceberg's planning says. Files that the plan leaves alone are read as before; of a group whose
files are joined, about the share that is read of the inputs; of a group that is brought into order, the pieces of each column
that hold the values asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from neve.health.clustering import Outcome
from neve.health.queries import Condition, Planned, QueryGain, QueryReads, is_read, reads_of, summed
from neve.health.row_groups import ROW_GROUP_BYTES
from neve.rewrite.group import Kernel
from neve.rewrite.groups import KERNELS
from neve.rewrite.plan import Plan
from neve.table.bounds import Ranges
from neve.table.files import FileColumns
from neve.table.literals import serialized

Column = npt.NDArray[Any]
Piece = tuple[float, float]
"""A part of the way from a column's smallest value to its largest, from 0 to 1."""

EVERYTHING: Piece = (0.0, 1.0)


def predicted_gain(planned: Planned, plan: Plan, files: FileColumns, ranges: Ranges | None) -> QueryGain:
    """The query before the plan's run and after it; `files` are the table's, `ranges` those of the columns of its layout."""
    paths = files.table.column("path").combine_chunks()
    rows = pc.index_in(plan.files.table.column("path"), paths).to_numpy()
    stays = np.ones(len(files), dtype=np.bool_)
    stays[rows] = False
    before, stay = reads_of(planned, files), summed(files, is_read(files, planned) & stays)
    written = _of_groups(planned, plan, files, rows[plan.groups.files], ranges)
    predicted = QueryReads(
        files=stay.files + written.files, row_groups=stay.row_groups + written.row_groups, bytes=stay.bytes + written.bytes
    )
    return QueryGain(query=planned.query, before=before, predicted=predicted)


def _of_groups(planned: Planned, plan: Plan, files: FileColumns, rows: Column, ranges: Ranges | None) -> QueryReads:
    """What the query reads of the files that the plan's groups become; `rows` are those of the groups' inputs."""
    groups, number = plan.groups, np.repeat(np.arange(len(plan.groups)), np.diff(plan.groups.offsets))
    read, sizes = is_read(files, planned)[rows], files.column("size_bytes")[rows]
    # Files keep the order in which they were written: what is read of the inputs is about what is read of the outputs.
    share = np.bincount(number, read * sizes, len(groups)) / np.maximum(groups.input_bytes, 1)
    if ranges is not None and plan.layout is not None:
        for i in np.flatnonzero((groups.ordered > 0) & (share > 0)).tolist():
            inputs = ranges.take(rows[groups.offsets[i] : groups.offsets[i + 1]])
            outcome = Outcome(plan.layout.kind, len(ranges.columns), int(groups.outputs[i]))
            share[i] = min(share[i], _share(planned.condition, inputs, outcome))
    outputs = np.minimum(np.ceil(np.round(share * groups.outputs, 9)), groups.outputs)
    part = outputs / np.maximum(groups.outputs, 1)
    kept = np.bincount(number, np.maximum(files.column("row_groups")[rows], 1), len(groups))
    made = np.maximum(groups.outputs, np.ceil(groups.input_bytes / ROW_GROUP_BYTES))
    row_groups = np.where(groups.kernel == KERNELS.index(Kernel.COPY), kept, made)
    return QueryReads(
        files=int(outputs.sum()),
        row_groups=int(np.ceil(part * row_groups).sum()),
        bytes=int((part * groups.input_bytes).sum()),
    )


def _share(condition: Condition, ranges: Ranges, outcome: Outcome) -> float:
    """Of the files of a group that is brought into order, the share that a query meets."""
    met = 1.0
    for i, width in enumerate(outcome.shares.tolist()):
        if ((ranges.lower[:, i] >= 0) & (ranges.upper[:, i] < len(ranges.keys[i]))).all():
            reached = _union((start - width / 2, end + width / 2) for start, end in _pieces(condition, ranges, i))
            met *= min(1.0, sum(end - start for start, end in reached))
    return met


def _pieces(condition: Condition, ranges: Ranges, i: int) -> list[Piece]:
    """Where the values of one column lie that the condition leaves; everything where it does not speak of the column."""
    if isinstance(condition, bool):
        return [EVERYTHING] if condition else []
    kind = condition["type"]
    if kind in {"and", "or"}:
        left, right = (_pieces(condition[side], ranges, i) for side in ("left", "right"))
        if kind == "or":
            return [*left, *right]
        both = [(max(a, c), min(b, d)) for a, b in left for c, d in right]
        return [(start, end) for start, end in both if start <= end]
    if condition.get("term") != ranges.columns[i].name:
        return [EVERYTHING]
    if kind not in {"eq", "in", "starts-with", "lt", "lt-eq", "gt", "gt-eq"}:
        return [EVERYTHING]
    at = [_position(ranges, i, value) for value in (condition["values"] if kind == "in" else [condition["value"]])]
    if kind.startswith("lt"):
        return [(0.0, min(at[0], 1.0))] if at[0] >= 0 else []
    if kind.startswith("gt"):
        return [(max(at[0], 0.0), 1.0)] if at[0] <= 1 else []
    return [(place, place) for place in at if 0 <= place <= 1]


def _union(pieces: Iterable[Piece]) -> list[Piece]:
    merged: list[Piece] = []
    for start, end in sorted(pieces):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _position(ranges: Ranges, i: int, value: Any) -> float:
    """How far a value is on the way from the smallest to the largest of a column; beyond them where it is none of them."""
    first, last = (ranges.keys[i][int(rank)].as_py() for rank in (ranges.lower[:, i].min(), ranges.upper[:, i].max()))
    asked = ranges.key_of(i, serialized(ranges.columns[i], value)).as_py()
    low, high, at = _numbers([first, last, asked])
    if high <= low:
        return 0.5 if at == low else -1.0 if at < low else 2.0
    return (at - low) / (high - low)


def _numbers(keys: Sequence[Any]) -> list[float]:
    """Keys as numbers that keep their order: of texts, the first few bytes in which they differ."""
    if not isinstance(keys[0], bytes):
        return [float(key) for key in keys]
    common = len(list(takewhile(lambda at: len({*at}) == 1, zip(*keys[:2], strict=False))))
    prefix = keys[0][:common]
    numbers = []
    for key in keys:
        if key[:common] != prefix:
            numbers.append(-1.0 if key[:common] < prefix else 2.0**57)
        else:
            numbers.append(float(int.from_bytes(key[common : common + 7].ljust(7, b"\x00"), "big")))
    return numbers
