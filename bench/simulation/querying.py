"""What queries cost, from metadata alone: which files they open, how many requests and bytes that is, and its price.

Called by `running` for every half hour. A query is not drawn but weighed: each file counts by the chance that it is opened.
"""

from __future__ import annotations

import numpy as np

from bench.simulation.prices import EXECUTORS, Cost, metadata_cost
from bench.simulation.table import SECOND_MS, Array, Files, Table
from bench.simulation.workloads import Query, Workload
from neve.rewrite.cost import Rates, Scanned
from neve.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES


def ask(table: Table, query: Query, rates: Rates, *, now_ms: int) -> Cost:
    """The price of asking once, planning included."""
    scanned = scan(table.files, query, table.workload, now_ms=now_ms)
    requests = float(scanned.files + scanned.row_groups + 2 * scanned.deletes)
    spent = Cost(requests=requests, money=float(scanned.money(rates)))
    return spent + metadata_cost(rates, len(table.files["number"]))


def scan(files: Files, query: Query, workload: Workload, *, now_ms: int) -> Scanned:
    """What the query reads in the mean: files whose bounds let it through, and the deletes that apply to them."""
    chance = np.where(files["content"] == DATA, chances(files, query, workload, now_ms), 0.0)
    opens = delete_opens(files, chance)
    read = chance * files["size_bytes"] * query.read
    return Scanned(
        files=chance.sum(),
        row_groups=(chance * files["row_groups"]).sum(),
        deletes=opens.sum(),
        bytes=read.sum() + (opens * files["size_bytes"]).sum(),
        slowed_bytes=read[has_deletes(files)].sum(),
    )


def chances(files: Files, query: Query, workload: Workload, now_ms: int) -> Array:
    """Of each file, the chance that it is opened; values that are asked for are evenly spread over the column's."""
    chance = np.ones(len(files["number"]))
    for i, column in enumerate(workload.columns):
        lower, upper = files["lower"][:, i], files["upper"][:, i]
        if column.kind == "time" and query.window is not None:
            until = (now_ms - query.ago * SECOND_MS) * 1000
            since = until - query.window * SECOND_MS * 1000
            chance *= (upper >= since) & (lower < until)
        width = 1 if column.name in query.equal else query.range.get(column.name, 0) * column.values
        if width:
            chance *= np.minimum((upper - lower + width) / column.values, 1.0)
    if workload.bucket_column in query.equal:
        chance /= workload.buckets
    return chance


def delete_opens(files: Files, chance: Array) -> Array:
    """How often each delete is opened: by every executor that has a file it applies to, in the mean."""
    content = files["content"]
    opens = np.zeros(len(chance))
    vectors = np.flatnonzero(content == POSITION_DELETES)
    opens[vectors] = chance[_owners(files, vectors)]
    equality = np.flatnonzero(content == EQUALITY_DELETES)
    if len(equality):
        opens[equality] = np.minimum(_older(files, chance, equality), EXECUTORS)
    return opens


def _owners(files: Files, vectors: Array) -> Array:
    return np.searchsorted(files["number"], files["referenced"][vectors])


def _older(files: Files, chance: Array, deletes: Array) -> Array:
    """Of each delete, the files opened that are of its partition and older."""
    data = np.flatnonzero(files["content"] == DATA)
    width = int(files["sequence_number"].max()) + 2
    keys = files["partition"] * width + files["sequence_number"]
    order = data[np.argsort(keys[data], kind="stable")]
    sums = np.concatenate([[0.0], np.cumsum(chance[order])])
    until = np.searchsorted(keys[order], keys[deletes])
    since = np.searchsorted(keys[order], files["partition"][deletes] * width)
    return sums[until] - sums[since]


def has_deletes(files: Files) -> Array:
    """Data files that deletes apply to."""
    content = files["content"]
    found = np.zeros(len(content), dtype=bool)
    found[_owners(files, np.flatnonzero(content == POSITION_DELETES))] = True
    equality = content == EQUALITY_DELETES
    if equality.any():
        newest = np.zeros(int(files["partition"].max()) + 1, dtype=np.int64)
        np.maximum.at(newest, files["partition"][equality], files["sequence_number"][equality])
        found |= (content == DATA) & (files["sequence_number"] < newest[files["partition"]])
    return found
