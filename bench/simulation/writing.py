"""What each commit of a workload's writers brings: files with sizes, partitions and bounds, and the deletes that come along.

Called by `running`. All chance comes from the generator given, so that a seed is a whole history.
"""

from __future__ import annotations

import math

import numpy as np

from bench.simulation.table import DAY_MS, HOUR_MS, SECOND_MS, Array, Files, Table, files_of
from bench.simulation.workloads import Deletes, Start, Write
from neve.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES

_QUIETEST_HOUR = 3


def begin(table: Table, start: Start, *, now_ms: int, rng: np.random.Generator) -> None:
    """One commit long ago with files whose rows are spread over the time since."""
    age_ms = int(start.age * SECOND_MS)
    sizes = _sizes(start.files, start.file_size, start.spread, rng)
    times = now_ms - age_ms + (np.arange(start.files) * age_ms) // start.files
    span_ms = age_ms if table.workload.partitioning in ("none", "bucket") else HOUR_MS
    homes = _homes(table, times)
    times = np.full(start.files, now_ms - age_ms) if span_ms == age_ms else times
    added = _data(table, homes, sizes, times, span_ms=span_ms, row_bytes=start.row_bytes)
    table.commit(added, at_ms=now_ms - age_ms, operation="append")


def write(table: Table, kind: Write, *, now_ms: int, rng: np.random.Generator) -> None:
    """One commit of a writer."""
    span_ms = int(min(kind.every, 86_400) * SECOND_MS)
    prompt = 1.0 - sum(late.share for late in kind.late)
    median = kind.file_size * _daylight(now_ms, kind.night)
    sizes = [_sizes(kind.files, median * prompt, kind.spread, rng)]
    times = [np.full(kind.files, now_ms - span_ms)]
    for late in kind.late:
        sizes.append(_sizes(late.files, median * kind.files * late.share / late.files, kind.spread, rng))
        days = rng.choice(late.days, size=late.files, replace=late.files > late.days) + 1
        times.append(now_ms - span_ms - days * DAY_MS)
    every = np.concatenate(times)
    added = _data(table, _homes(table, every), np.concatenate(sizes), every, span_ms=span_ms, row_bytes=kind.row_bytes)
    deletes, superseded = _deletes(table, kind.deletes, added, rng) if kind.deletes else (None, None)
    if deletes is not None:
        added = {name: np.concatenate([column, deletes[name]]) for name, column in added.items()}
    table.commit(added, superseded, at_ms=now_ms, operation="append" if deletes is None else "overwrite")


def _sizes(count: int, median: float, spread: float, rng: np.random.Generator) -> Array:
    return np.maximum(median * np.exp(spread * rng.standard_normal(count)), 1_000).astype(np.int64)


def _daylight(now_ms: int, night: float) -> float:
    """1 in the afternoon, `night` twelve hours later."""
    hour = now_ms / HOUR_MS % 24
    return night + (1 - night) * (1 - math.cos((hour - _QUIETEST_HOUR) * math.pi / 12)) / 2


def _homes(table: Table, times: Array) -> Array:
    kind = table.workload.partitioning
    if kind == "none":
        return np.full(len(times), table.partition(""))
    if kind == "bucket":
        name = f"{table.workload.bucket_column}_bucket"
        return np.array([table.partition(f"{name}={i % table.workload.buckets}") for i in range(len(times))])
    return np.array([table.partition_at(int(time)) for time in times])


def _data(table: Table, homes: Array, sizes: Array, times: Array, *, span_ms: int, row_bytes: float) -> Files:
    records = np.maximum(sizes / row_bytes, 1).astype(np.int64)
    lower, upper = np.zeros((2, len(sizes), table.dimensions), dtype=np.int64)
    for i, column in enumerate(table.workload.columns):
        if column.kind == "time":
            lower[:, i], upper[:, i] = times * 1000, (times + span_ms) * 1000 - 1
        else:
            # Where so many values are drawn, the smallest lies about here.
            lower[:, i] = column.values // (records + 1)
            upper[:, i] = column.values - 1 - lower[:, i]
    return files_of(len(sizes), table.dimensions, partition=homes, size_bytes=sizes, records=records, lower=lower, upper=upper)


def _deletes(table: Table, kind: Deletes, added: Files, rng: np.random.Generator) -> tuple[Files, Array | None]:
    """The delete files, and which older ones they take the place of."""
    return _equality(table, kind, added) if kind.kind == "equality" else _vectors(table, kind, added, rng)


def _equality(table: Table, kind: Deletes, added: Files) -> tuple[Files, Array | None]:
    files = table.files
    data = files["content"] == DATA
    gone = np.bincount(added["partition"], weights=kind.replaced * added["records"], minlength=len(table.partitions))
    _hide(files, data, gone)
    records = added["records"]
    deletes = files_of(
        len(records),
        table.dimensions,
        content=EQUALITY_DELETES,
        partition=added["partition"],
        size_bytes=np.maximum(records * kind.row_bytes, 500),
        records=records,
    )
    return deletes, None


def _hide(files: Files, chosen: Array, gone: Array) -> None:
    """Spreads rows that are gone, by partition, over the chosen files as they have rows left."""
    live = np.where(chosen, files["records"] - files["dead"], 0.0)
    total = np.bincount(files["partition"], weights=live, minlength=len(gone))
    share = np.minimum(gone / np.maximum(total, 1.0), 1.0)
    files["dead"] += live * share[files["partition"]]


def _vectors(table: Table, kind: Deletes, added: Files, rng: np.random.Generator) -> tuple[Files, Array | None]:
    files = table.files
    data = np.flatnonzero(files["content"] == DATA)
    chosen = np.zeros(len(files["number"]), dtype=bool)
    chosen[rng.choice(data, size=max(1, round(kind.touched * len(data))), replace=False)] = True
    _hide(files, chosen, np.bincount(added["partition"], weights=kind.replaced * added["records"]))
    records = np.maximum(files["dead"][chosen], 1).astype(np.int64)
    deletes = files_of(
        int(chosen.sum()),
        table.dimensions,
        content=POSITION_DELETES,
        partition=files["partition"][chosen],
        size_bytes=np.maximum(records * kind.row_bytes, 100),
        records=records,
        referenced=files["number"][chosen],
    )
    return deletes, np.isin(files["referenced"], files["number"][chosen])
