"""From the columns of a table's files to the finished plan with reasons and prices: 10 k, 100 k, 1 M files.

Run as `python -m bench.planning`. Exits with 1 when a bar is missed, with 2 when a plan does not cover the table.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.chart import Chart, Series
from bench.chart_page import Figures, leave, machine
from neve.policy.model import Policy
from neve.rewrite.plan import Plan
from neve.rewrite.planner import plan
from neve.table.files import SCHEMA, FileColumns, Partition, default_columns
from neve.table.state import PartitionField, PartitionSpec, Snapshot, TableName, TableState
from neve.table.units import KIB, MIB

BARS = {100_000: 0.1, 1_000_000: 1.0}
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
FILES_PER_PARTITION = 400


@dataclass(frozen=True)
class Row:
    """One size: medians over the repeats."""

    files: int
    partitions: int
    groups: int
    chosen_files: int
    skipped: int
    plan_seconds: float
    """To the plan, whose groups, reasons and prices are columns."""
    cpu_seconds: float
    walk_seconds: float
    """Each group as an object with its reasons and price besides, which a run does as it goes; no part of the bar."""
    json_seconds: float
    """And the plan's JSON, which `neve plan --json` prints; no part of the bar."""
    peak_rss_bytes: int

    @property
    def verdict(self) -> str:
        """`ok`, what was missed, or nothing where there is no bar."""
        bar = BARS.get(self.files)
        if bar is None:
            return "-"
        return "ok" if self.plan_seconds < bar else f"over {bar:g} s"


def state_with(files: int) -> TableState:
    """A table of so many files in daily partitions: mostly fragments, the rest undersized or good."""
    rng = np.random.default_rng(7)
    partitions = max(1, files // FILES_PER_PARTITION)
    kind = rng.random(files)
    size = np.where(kind < 0.7, rng.integers(100 * KIB, 8 * MIB, files), rng.integers(20 * MIB, 140 * MIB, files))
    columns = {
        "path": pa.array([f"s3://lake/events/data/{number:08d}-neve-bench.parquet" for number in range(files)]),
        "content": np.zeros(files, np.int64),
        "format": pa.array(["parquet"] * files),
        "partition": rng.integers(0, partitions, files),
        "size_bytes": size,
        "records": size // 40,
        "row_groups": np.ones(files, np.int64),
        "sort_order_id": np.zeros(files, np.int64),
        "sequence_number": rng.integers(1, 50, files),
        "snapshot_id": np.ones(files, np.int64),
        **default_columns(files),
    }
    table = pa.table([pa.array(columns[field.name]).cast(field.type) for field in SCHEMA], schema=SCHEMA)
    homes = tuple(Partition(0, f"day={number:05d}") for number in range(partitions))
    return _state(FileColumns(table=table, partitions=homes))


def _state(files: FileColumns) -> TableState:
    snapshot = Snapshot(
        snapshot_id=1, parent_id=None, sequence_number=60, timestamp_ms=NOW_MS - DAY_MS, operation="append", summary={}
    )
    return TableState(
        name=TableName(catalog="local", namespace=("bench",), name="events"),
        uuid="00000000-0000-0000-0000-000000000000",
        format_version=2,
        location="s3://lake/events",
        metadata_location="s3://lake/events/metadata/v1.json",
        metadata_bytes=10_000,
        metadata_log_entries=1,
        properties={},
        schema_id=0,
        columns=12,
        specs=(PartitionSpec(spec_id=0, fields=(PartitionField(name="day", transform="day", source_id=1, field_id=1000),)),),
        default_spec_id=0,
        sort_orders=(),
        default_sort_order_id=0,
        snapshot_id=1,
        snapshots=(snapshot,),
        refs=(),
        statistics_files=0,
        files=files,
    )


def measure(files: int, *, repeats: int) -> Row:
    """Plans the same table again and again; the state is made before, as an inspection leaves it."""
    state = state_with(files)
    policy = Policy.model_validate({"max-files": max(files, 10_000)})
    plan(state, policy, now_ms=NOW_MS)
    wall, cpu, walk, dump = [], [], [], []
    for _ in range(repeats):
        gc.collect()
        start, used = time.perf_counter(), time.process_time()
        planned = plan(state, policy, now_ms=NOW_MS)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
        walk.append(_seconds(lambda planned=planned: _check(planned, state)))
        dump.append(_seconds(planned.model_dump_json))
    return Row(
        files=files,
        partitions=len(state.files.partitions) if state.files is not None else 0,
        groups=len(planned.groups),
        chosen_files=planned.input_files,
        skipped=len(planned.skipped),
        plan_seconds=statistics.median(wall),
        cpu_seconds=statistics.median(cpu),
        walk_seconds=statistics.median(walk),
        json_seconds=statistics.median(dump),
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
    )


class WrongPlanError(Exception):
    """The plan is not one: its time means nothing."""


def _check(planned: Plan, state: TableState) -> None:
    """Every file once, every partition spoken of, every group with its words and its price."""
    assert state.files is not None
    groups = list(planned.groups)
    spoken_of = {group.partition for group in groups} | {skipped.partition for skipped in planned.skipped}
    files = sum(len(group.files) for group in groups)
    complete = all(group.reason and group.kernel_reason and group.price.core_seconds > 0 for group in groups)
    if not groups or not complete or files != planned.input_files or len(spoken_of) != len(state.files.partitions):
        raise WrongPlanError(
            f"The plan for {len(state.files)} files has {len(groups)} groups of {files} files, and is not whole"
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Measures, prints, writes, judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000,1000000", metavar="LIST", help="files per table")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="plans of each size (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/planning.json)")
    options = parser.parse_args()
    about = machine()
    try:
        rows = [measure(size, repeats=options.repeats) for size in map(int, options.sizes.split(","))]
    except WrongPlanError as error:
        print(error, file=sys.stderr)
        return 2
    content = {**about, "rows": [{**asdict(row), "verdict": row.verdict} for row in rows]}
    leave("planning", _figures(rows), content, {"planning": _chart(rows)}, json_file=options.json, quick=False)
    return 0 if all(row.verdict in ("ok", "-") for row in rows) else 1


def _figures(rows: list[Row]) -> Figures:
    head = ["files", "partitions", "groups", "chosen", "plan s", "CPU s", "walk s", "JSON s", "peak MiB", "bar"]
    lines = [
        [
            *(f"{number:,}" for number in (row.files, row.partitions, row.groups, row.chosen_files)),
            *(f"{value:.3f}" for value in (row.plan_seconds, row.cpu_seconds, row.walk_seconds, row.json_seconds)),
            f"{row.peak_rss_bytes / MIB:.0f}",
            row.verdict,
        ]
        for row in rows
    ]
    return Figures(head, lines, left=0)


def _chart(rows: list[Row]) -> Chart:
    return Chart(
        title="From columns to the finished plan",
        x_label="files",
        y_label="seconds",
        series=[Series("plan", [(row.files, row.plan_seconds) for row in rows])],
        bars=[(files, seconds, f"{seconds:g} s") for files, seconds in BARS.items()],
    )


if __name__ == "__main__":
    sys.exit(main())
