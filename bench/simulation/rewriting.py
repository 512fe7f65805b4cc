"""What a rewrite leaves behind: how many files of which size, rows, row groups and bounds. Called by `running` and `replaying`.

File counts follow the kernels' own arithmetic (`kernels.arrow.goals`); bytes follow a factor and an overhead by kernel that
were learned from recorded runs (`calibration.json`, made by `bench/simulate.py learn`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench.simulation.table import Array, Files, Table, files_of, number_of, path_of
from bench.simulation.tiling import boxes_of, in_sequence, ordered
from neve.kernels.arrow.goals import Goals
from neve.kernels.arrow.model import WriteOptions
from neve.rewrite.group import Kernel
from neve.rewrite.groups import KERNELS
from neve.rewrite.plan import Plan
from neve.table.delete_index import DeleteIndex, unpartitioned
from neve.table.files import DATA
from neve.table.layout import WRITTEN_IN, Layout
from neve.table.state import RUN_ID, PartitionSpec
from neve.table.units import MIB

ROW_GROUP_BYTES = 128 * MIB
PENDING_BYTES = 90 * MIB
"""About the most stored bytes that the arrow kernel gathers in its memory before it writes a row group."""

SPARK_COUNTS = 1.37
"""Bytes that Iceberg's writer believes to have written for each one that it has: it counts pages before they are compressed."""


@dataclass(frozen=True)
class Fit:
    """Bytes written = factor x (live bytes - overhead x row groups gone); the factor is for bytes that others encoded."""

    factor: float
    overhead_bytes: float

    def written(self, live_bytes: float, raw: float, groups_gone: int) -> float:
        """The size of all outputs; `raw` is the share of bytes that no kernel of ours has encoded."""
        factor = 1 + (self.factor - 1) * raw
        return factor * max(live_bytes - self.overhead_bytes * max(groups_gone, 0), live_bytes / 10)


@dataclass(frozen=True)
class Calibration:
    """What was learned: a fit for each kernel, and how much larger rows become that lose the order in which they came."""

    fits: Mapping[Kernel, Fit]
    scattering: float

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"scattering": self.scattering, "fits": {str(kernel): vars(fit) for kernel, fit in self.fits.items()}}


CALIBRATION = Path(__file__).parent / "calibration.json"


def calibration() -> Calibration:
    """The one that is kept."""
    found = json.loads(CALIBRATION.read_text(encoding="utf-8"))
    return Calibration({Kernel(name): Fit(**fit) for name, fit in found["fits"].items()}, found["scattering"])


@dataclass(frozen=True)
class Inputs:
    """The files of a group, in the order in which they are read."""

    sizes: Array
    records: Array
    dead: Array
    raw: Array
    scattered: Array
    row_groups: Array

    @classmethod
    def of(cls, files: Files, rows: Array) -> Inputs:
        """Some files of a table."""
        names = ("size_bytes", "records", "dead", "raw", "scattered", "row_groups")
        return cls(*(files[name][rows] for name in names))

    def share(self, column: Array) -> float:
        """The mean of a share, by bytes."""
        return float((self.sizes * column).sum() / max(self.sizes.sum(), 1))

    @property
    def groups(self) -> int:
        """Row groups of all files."""
        return int(np.maximum(self.row_groups, 1).sum())

    @cached_property
    def live_rows(self) -> Array:
        """Rows that no delete hides."""
        return np.maximum(self.records - self.dead, 0)

    @cached_property
    def live_bytes(self) -> float:
        """The bytes of those rows."""
        return float((self.sizes * self.live_rows / np.maximum(self.records, 1)).sum())


@dataclass(frozen=True)
class Outputs:
    """Files that were written."""

    sizes: Array
    records: Array
    row_groups: Array

    def __len__(self) -> int:
        return len(self.sizes)


def rewritten(
    inputs: Inputs, kernel: Kernel, *, planned: int, target_bytes: int, learned: Calibration, is_ordered: bool = False
) -> Outputs:
    """What a kernel makes of a group that was planned to become so many files."""
    fit, raw = learned.fits[kernel], inputs.share(inputs.raw)
    if kernel is Kernel.COPY:
        # A copy loses footers, not row groups.
        written = fit.written(float(inputs.sizes.sum()), raw, len(inputs.sizes) - 1)
        return _shared(inputs, [1.0], written, [inputs.groups])
    if inputs.live_bytes < 1:
        return Outputs(np.zeros(0), np.zeros(0), np.zeros(0))
    limit = 2 * target_bytes
    if planned > 1:
        limit = min(limit, int(inputs.sizes.sum()) * 11 // (10 * planned))
    growth = 1 + (learned.scattering - 1) * inputs.share(1 - inputs.scattered) if is_ordered else 1.0
    if kernel is Kernel.SPARK:
        parts = _parts(inputs.live_bytes, limit) if is_ordered else _filled(inputs.live_bytes, limit / SPARK_COUNTS)
    else:
        ratio = fit.written(inputs.live_bytes, raw, inputs.groups - planned) * growth / inputs.live_bytes
        parts = _rolled(inputs.live_bytes, ratio, limit)
    groups = [count for _, count in parts]
    written = fit.written(inputs.live_bytes, raw, inputs.groups - sum(groups)) * growth
    return _shared(inputs, [stored / inputs.live_bytes for stored, _ in parts], written, groups)


def _shared(inputs: Inputs, shares: list[float], written: float, row_groups: list[int]) -> Outputs:
    rows = float(inputs.live_rows.sum())
    share = np.array(shares)
    return Outputs((share * written).astype(np.int64), np.round(share * rows).astype(np.int64), np.array(row_groups))


def _parts(stored: float, limit: float) -> list[tuple[float, int]]:
    """The spark kernel cuts ordered rows into equal parts."""
    count = math.ceil(stored / limit)
    return [(stored / count, 1)] * count


def _filled(stored: float, limit: float) -> list[tuple[float, int]]:
    """Where it does not order them, Iceberg's writer fills one file after the other; the last one gets the rest."""
    whole, rest = divmod(stored, limit)
    return [(limit, 1)] * int(whole) + ([(rest, 1)] if rest >= 1 else [])


def _rolled(stored: float, ratio: float, limit: int) -> list[tuple[float, int]]:
    """Stored bytes and row groups of each file that the arrow kernel would write."""
    goals = Goals(WriteOptions(target_bytes=limit, row_group_bytes=ROW_GROUP_BYTES), stored)
    files: list[tuple[float, int]] = []
    taken, written, groups, left = 0.0, 0, 0, stored
    while left >= 1:
        piece = min(goals.row_group_bytes(written) / goals.ratio, PENDING_BYTES, left)
        goals.wrote(piece, int(piece * ratio))
        left, taken, written, groups = left - piece, taken + piece, written + int(piece * ratio), groups + 1
        if goals.is_full(written) or left < 1:
            files.append((taken, groups))
            taken, written, groups = 0.0, 0, 0
    return files


def carry_out(table: Table, plan: Plan, specs: Sequence[PartitionSpec], learned: Calibration, *, now_ms: int) -> None:
    """Commits what a run of the plan would; groups in the layout's order have a commit of their own, which names the layout."""
    for is_ordered in (False, True):
        chosen = np.flatnonzero(plan.groups.ordered == is_ordered)
        if len(chosen):
            summary = {RUN_ID: "simulated"} | ({WRITTEN_IN: str(plan.layout)} if is_ordered else {})
            _commit(table, plan, chosen.tolist(), specs, learned, at_ms=now_ms, summary=summary)


def _commit(
    table: Table,
    plan: Plan,
    groups: Sequence[int],
    specs: Sequence[PartitionSpec],
    learned: Calibration,
    *,
    at_ms: int,
    summary: Mapping[str, str],
) -> None:
    """Deletes that have become void go with the files; outputs are as old as the plan if any file of its time stays."""
    files = table.files
    place = np.searchsorted(files["number"], [number_of(path) for path in plan.files.table.column("path").to_pylist()])
    removed, made = np.zeros(len(files["number"]), dtype=bool), []
    for i in groups:
        rows = place[plan.groups.files[plan.groups.offsets[i] : plan.groups.offsets[i + 1]]]
        removed[rows] = True
        made.append(_group(table, plan, i, rows, learned))
    added, void = _joined(table, made), _void(table, specs, removed)
    stays = bool(((files["content"] == DATA) & ~removed).any())
    keeps, first = plan.sequence_number if stays else None, table.next_number
    table.commit(added, removed | void, at_ms=at_ms, operation="replace", keeps=keeps, summary=summary)
    homes = {table.partitions[one.partition]: at_ms for one in made}
    numbers = range(first, table.next_number)
    table.remember(homes, dict(zip(map(path_of, numbers), added["row_groups"].tolist(), strict=True)))


def _void(table: Table, specs: Sequence[PartitionSpec], removed: Array) -> Array:
    """Deletes that applied to nothing but what is rewritten."""
    if (table.files["content"] == DATA).all():
        return np.zeros(len(removed), dtype=bool)
    index = DeleteIndex.of(table.columns(), unpartitioned_specs=unpartitioned(specs))
    return index.dangling(removed) & ~index.dangling()


@dataclass(frozen=True)
class _Made:
    """The outputs of one group."""

    partition: int
    outputs: Outputs
    raw: float
    scattered: float
    order_id: int
    bounds: list[tuple[Array, Array]]


def _group(table: Table, plan: Plan, i: int, rows: Array, learned: Calibration) -> _Made:
    files, groups = table.files, plan.groups
    kernel = KERNELS[groups.kernel[i]]
    inputs = Inputs.of(files, rows)
    target = plan.policy.target_file_size_bytes
    layout, planned = plan.layout if groups.ordered[i] else None, int(groups.outputs[i])
    outputs = rewritten(inputs, kernel, planned=planned, target_bytes=target, learned=learned, is_ordered=layout is not None)
    return _Made(
        partition=int(groups.partition[i]),
        outputs=outputs,
        raw=inputs.share(inputs.raw) if kernel is Kernel.COPY else 0.0,
        scattered=inputs.share(inputs.scattered) if layout is None else 1.0,
        order_id=layout.order_id if layout else 0,
        bounds=_bounds(table, rows, inputs, len(outputs), layout),
    )


def _bounds(table: Table, rows: Array, inputs: Inputs, count: int, layout: Layout | None) -> list[tuple[Array, Array]]:
    if not count or not table.dimensions:
        return []
    boxes = boxes_of(table.files["lower"][rows], table.files["upper"][rows], inputs.live_rows)
    if layout is None or count == 1:
        return in_sequence(boxes, count)
    names = [column.name for column in table.workload.columns]
    return ordered(boxes, count, layout.kind, [names.index(name) for name in layout.columns])


def _joined(table: Table, made: list[_Made]) -> Files:
    counts = [len(one.outputs) for one in made]
    bounds = np.array([pair for one in made for pair in one.bounds]).reshape(sum(counts), 2, table.dimensions)
    sizes, records, row_groups = (
        np.concatenate([getattr(one.outputs, name) for one in made]) for name in ("sizes", "records", "row_groups")
    )
    partition, raw, scattered, order_id = (
        np.repeat([getattr(one, name) for one in made], counts) for name in ("partition", "raw", "scattered", "order_id")
    )
    return files_of(
        sum(counts),
        table.dimensions,
        partition=partition,
        size_bytes=sizes,
        records=records,
        row_groups=row_groups,
        raw=raw,
        scattered=scattered,
        sort_order_id=order_id,
        lower=bounds[:, 0],
        upper=bounds[:, 1],
    )
