"""The metadata simulator: its laws, its agreement with recorded runs, and the bars it judges by."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bench import simulate
from bench.simulation.prices import Cost
from bench.simulation.querying import ask, chances, has_deletes, scan
from bench.simulation.replaying import compare, left_out, recordings
from bench.simulation.rewriting import Calibration, Fit, Inputs, calibration, rewritten
from bench.simulation.running import START_MS, Life, Strategy, live
from bench.simulation.table import Table, files_of
from bench.simulation.tiling import Boxes, boxes_of, in_sequence, ordered
from bench.simulation.workloads import Query, Workload, names, workload
from bench.simulation.writing import begin, write
from neve.rewrite.cost import Rates
from neve.rewrite.group import Kernel
from neve.table.files import EQUALITY_DELETES, POSITION_DELETES
from neve.table.layout import LayoutKind
from neve.table.units import MIB

ROOT = Path(__file__).resolve().parent.parent.parent


def learned(factor: float = 1.0, scattering: float = 1.0) -> Calibration:
    return Calibration(dict.fromkeys(Kernel, Fit(factor, 0.0)), scattering)


def small(**changes: Any) -> Workload:
    """A table of one time column and one of a hundred values."""
    values = {
        "name": "small",
        "words": "",
        "partitioning": "day",
        "columns": [{"name": "ts", "kind": "time"}, {"name": "key", "kind": "uniform", "values": 100}],
        "writes": [{"every": "1 h", "files": 2, "file-size": "1 MB", "row-bytes": 100}],
        "queries": [{"name": "all", "per-day": 1, "read": 1.0}],
    }
    return Workload.model_validate(values | changes)


# Workloads


def test_there_are_five_workloads_and_each_can_be_read() -> None:
    assert names() == ["append-stream", "cdc", "dimension-table", "hourly-partitions", "late-data"]
    assert [workload(name).name for name in names()] == names()


def test_a_query_on_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValidationError, match="nowhere is no column of small"):
        small(queries=[{"name": "q", "per-day": 1, "read": 1.0, "equal": ["nowhere"]}])


def test_an_unknown_workload_is_answered_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"Cannot simulate 'nope': no such workload; there are append-stream, cdc, "):
        workload("nope")


# Writing


def test_late_rows_go_into_the_partitions_of_their_days() -> None:
    late = {"every": "1 h", "files": 1, "file-size": "10 MB", "row-bytes": 100, "late": [{"share": 0.5, "days": 3, "files": 3}]}
    table = Table(small(writes=[late]))
    write(table, table.workload.writes[0], now_ms=START_MS + 12 * 3_600_000, rng=np.random.default_rng(1))
    days = sorted((p.path, int((table.files["partition"] == i).sum())) for i, p in enumerate(table.partitions))
    assert days == [("ts_day=2026-01-02", 1), ("ts_day=2026-01-03", 1), ("ts_day=2026-01-04", 1), ("ts_day=2026-01-05", 1)]
    assert table.files["size_bytes"].tolist() == [5 * MIB, *[5 * MIB // 3] * 3]


def test_upserts_hide_older_rows_of_their_bucket_and_no_others() -> None:
    upserts = {"every": "1 h", "files": 2, "file-size": "1 MB", "row-bytes": 100}
    upserts["deletes"] = {"kind": "equality", "replaced": 0.5, "row-bytes": 10}
    table = Table(small(partitioning="bucket", **{"buckets": 2, "bucket-column": "key", "writes": [upserts]}))
    rng = np.random.default_rng(1)
    for hour in (1, 2):
        write(table, table.workload.writes[0], now_ms=START_MS + hour * 3_600_000, rng=rng)
    files = table.files
    assert files["content"].tolist() == [0, 0, EQUALITY_DELETES, EQUALITY_DELETES] * 2
    assert files["records"].tolist() == [10_485] * 8
    assert files["dead"].tolist() == [5242.5, 5242.5, 0, 0, 0, 0, 0, 0]


def test_a_new_vector_takes_the_place_of_the_older_one_of_its_file() -> None:
    merges = {"every": "1 h", "files": 1, "file-size": "1 MB", "row-bytes": 100}
    merges["deletes"] = {"kind": "vector", "replaced": 0.1, "row-bytes": 2}
    start = {"files": 1, "file-size": "10 MB", "row-bytes": 100, "age": "1 day"}
    table = Table(small(partitioning="none", start=[start], writes=[merges]))
    rng = np.random.default_rng(1)
    begin(table, table.workload.start[0], now_ms=START_MS, rng=rng)
    for hour in (1, 2):
        write(table, table.workload.writes[0], now_ms=START_MS + hour * 3_600_000, rng=rng)
    vectors = table.files["content"] == POSITION_DELETES
    assert sorted(table.files["referenced"][vectors].tolist()) == [0, 1]
    assert table.files["dead"].sum() == pytest.approx(2097)
    assert table.files["records"][vectors].sum() == 2096  # a vector counts whole rows


# Where rows lie


def test_a_sort_cuts_the_first_column_and_a_curve_both() -> None:
    square = boxes_of(np.zeros((4, 2)), np.full((4, 2), 99), np.full(4, 25))
    sliced = ordered(square, 4, LayoutKind.SORT, [0, 1])
    assert [(low.tolist(), high.tolist()) for low, high in sliced] == [
        ([0, 0], [24, 99]),
        ([25, 0], [49, 99]),
        ([50, 0], [74, 99]),
        ([75, 0], [99, 99]),
    ]
    tiled = ordered(square, 4, LayoutKind.HILBERT, [0, 1])
    assert [(low.tolist(), high.tolist()) for low, high in tiled] == [
        ([0, 0], [49, 49]),
        ([0, 50], [49, 99]),
        ([50, 0], [99, 49]),
        ([50, 50], [99, 99]),
    ]


def test_a_sort_goes_on_with_the_next_column_inside_a_single_value() -> None:
    one_value = boxes_of(np.zeros((1, 2)), np.array([[0, 99]]), np.array([100]))
    assert [low.tolist() for low, _ in ordered(one_value, 2, LayoutKind.SORT, [0, 1])] == [[0, 0], [0, 50]]


def test_cuts_follow_where_the_rows_are() -> None:
    crowded = boxes_of(np.array([[0], [0]]), np.array([[99], [9]]), np.array([10, 90]))
    (_, high), (low, _) = ordered(crowded, 2, LayoutKind.SORT, [0])
    # 10 rows over a hundred values and 90 over ten of them: half of all lie below 5.49.
    assert (high.tolist(), low.tolist()) == ([5], [5])


@st.composite
def boxes(draw: st.DrawFn) -> Boxes:
    """A few boxes of two columns."""
    count = draw(st.integers(1, 6))
    ends = [[sorted(draw(st.tuples(*[st.integers(0, 50)] * 2))) for _ in range(2)] for _ in range(count)]
    low, high = np.array(ends).transpose(2, 0, 1)
    return boxes_of(low, high, np.array([draw(st.integers(1, 1000)) for _ in range(count)]))


@given(boxes(), st.integers(1, 9), st.sampled_from(LayoutKind))
def test_outputs_cover_what_the_inputs_covered_and_nothing_else(found: Boxes, count: int, kind: LayoutKind) -> None:
    for outputs in (in_sequence(found, count), ordered(found, count, kind, [0, 1])):
        low, high = (np.array(side) for side in zip(*outputs, strict=True))
        assert len(outputs) == count
        assert (low <= high).all()
        assert (low.min(axis=0).tolist(), high.max(axis=0).tolist()) == tuple(side.tolist() for side in found.hull)


@given(boxes(), st.integers(2, 9))
def test_sorted_outputs_follow_one_another_and_only_touch(found: Boxes, count: int) -> None:
    outputs = ordered(found, count, LayoutKind.SORT, [0])
    for (_, high), (low, _) in pairwise(outputs):
        assert high[0] <= low[0]


# Rewriting


def group(count: int, size: int, *, dead: float = 0.0, row_groups: int = 1) -> Inputs:
    every = np.ones(count)
    return Inputs(every * size, every * 1000, every * dead, every, every * 0, every * row_groups)


def test_a_copy_keeps_row_groups_and_an_encoding_makes_few() -> None:
    copied = rewritten(group(10, MIB, row_groups=3), Kernel.COPY, planned=1, target_bytes=128 * MIB, learned=learned())
    assert (copied.sizes.tolist(), copied.records.tolist(), copied.row_groups.tolist()) == ([10 * MIB], [10_000], [30])
    encoded = rewritten(group(10, MIB, row_groups=3), Kernel.ARROW, planned=1, target_bytes=128 * MIB, learned=learned())
    assert (encoded.sizes.tolist(), encoded.row_groups.tolist()) == ([10 * MIB], [1])


def test_what_is_deleted_is_not_written() -> None:
    outputs = rewritten(group(10, MIB, dead=250), Kernel.ARROW, planned=1, target_bytes=128 * MIB, learned=learned())
    assert (outputs.sizes.tolist(), outputs.records.tolist()) == ([7.5 * MIB], [7_500])


def test_a_group_without_a_live_row_becomes_no_file() -> None:
    assert len(rewritten(group(3, MIB, dead=1000), Kernel.ARROW, planned=1, target_bytes=128 * MIB, learned=learned())) == 0


def test_bytes_that_were_encoded_before_do_not_shrink_again() -> None:
    once = group(4, MIB)
    again = replace(once, raw=np.zeros(4))
    half = learned(0.5)
    sizes = [rewritten(i, Kernel.ARROW, planned=1, target_bytes=128 * MIB, learned=half).sizes.tolist() for i in (once, again)]
    assert sizes == [[2 * MIB], [4 * MIB]]


def test_rows_grow_when_they_lose_the_order_they_came_in_and_not_again() -> None:
    once = group(4, MIB)
    again = replace(once, scattered=np.ones(4))
    sizes = [
        rewritten(
            i, Kernel.SPARK, planned=1, target_bytes=128 * MIB, learned=learned(scattering=1.5), is_ordered=True
        ).sizes.tolist()
        for i in (once, again)
    ]
    assert sizes == [[6 * MIB], [4 * MIB]]


def test_spark_cuts_ordered_rows_evenly_and_fills_files_otherwise() -> None:
    ways = [
        rewritten(group(4, 100 * MIB), Kernel.SPARK, planned=4, target_bytes=128 * MIB, learned=learned(), is_ordered=way)
        for way in (True, False)
    ]
    assert [(outputs.sizes // MIB).tolist() for outputs in ways] == [[100, 100, 100, 100], [80, 80, 80, 80, 78]]


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 6), st.floats(0.7, 1.1))
@settings(max_examples=50)
def test_no_output_is_far_above_its_share(count: int, mib: int, planned: int, factor: float) -> None:
    inputs = group(count, mib * MIB)
    outputs = rewritten(inputs, Kernel.ARROW, planned=planned, target_bytes=128 * MIB, learned=learned(factor))
    share = min(256 * MIB, inputs.sizes.sum() * 1.1 / planned if planned > 1 else 256 * MIB)
    assert outputs.sizes.max() <= 1.3 * share
    assert abs(int(outputs.records.sum()) - count * 1000) <= len(outputs)


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_the_simulator_comes_to_the_files_of_a_recorded_run(recording: Any) -> None:
    found = compare(recording, calibration())
    assert (found.files_simulated, found.deletes_simulated) == (found.files, found.deletes)
    assert abs(found.off) <= 0.10


def test_there_are_twenty_recordings_by_every_kernel_and_the_constants_hold_for_those_they_were_not_drawn_from() -> None:
    recorded = recordings()
    assert len(recorded) >= 20
    assert {recording.kernel for recording in recorded} == set(Kernel)
    assert [found.name for found in left_out(recorded) if not found.holds] == []


# Queries


def test_a_query_opens_files_by_the_chance_that_its_value_lies_in_their_bounds() -> None:
    files = files_of(3, 2, size_bytes=[100, 200, 400], lower=[[0, 0], [0, 10], [10, 50]], upper=[[9, 99], [9, 19], [19, 50]])
    lookup = Query.model_validate({"name": "q", "per-day": 1, "read": 0.5, "equal": ["key"]})
    assert chances(files, lookup, small(), now_ms=0).tolist() == [1.0, 0.1, 0.01]
    found = scan(files, lookup, small(), now_ms=0)
    assert [round(float(n), 9) for n in (found.files, found.row_groups, found.bytes)] == [1.11, 1.11, 62.0]
    stretch = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0, "range": {"key": 0.1}})
    assert chances(files, stretch, small(), now_ms=0).round(9).tolist() == [1.0, 0.19, 0.1]


def test_a_window_opens_files_that_reach_into_it() -> None:
    hour = 3_600_000_000
    files = files_of(3, 2, lower=[[0, 0], [hour, 0], [2 * hour, 0]], upper=[[hour - 1, 0], [2 * hour - 1, 0], [3 * hour, 0]])
    last = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0, "window": "90 min"})
    before = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0, "window": "1 h", "ago": "2 h"})
    assert chances(files, last, small(), now_ms=3 * hour // 1000).tolist() == [0, 1, 1]
    assert chances(files, before, small(), now_ms=3 * hour // 1000).tolist() == [1, 0, 0]


def test_an_equality_delete_is_opened_for_older_files_of_its_partition_and_slows_them() -> None:
    content = [0, 0, 0, EQUALITY_DELETES, EQUALITY_DELETES, EQUALITY_DELETES]
    partition, sequence = [0, 0, 1, 0, 0, 1], [1, 3, 1, 2, 4, 1]
    files = files_of(6, 2, content=content, partition=partition, sequence_number=sequence, size_bytes=10)
    every = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0})
    found = scan(files, every, small(), now_ms=0)
    # The first applies to one file, the second to two, the third to none.
    assert (found.deletes, found.bytes, found.slowed_bytes) == (3.0, 30 + 30, 20)


def test_a_delete_of_many_files_is_opened_once_by_each_of_four_executors() -> None:
    files = files_of(11, 2, content=[0] * 10 + [EQUALITY_DELETES], sequence_number=[1] * 10 + [2])
    every = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0})
    assert scan(files, every, small(), now_ms=0).deletes == 4.0


def test_a_vector_is_opened_with_its_file() -> None:
    files = files_of(
        3, 2, number=[0, 1, 2], content=[0, 0, POSITION_DELETES], referenced=[-1, -1, 1], upper=[[0, 0], [0, 9], [0, 0]]
    )
    lookup = Query.model_validate({"name": "q", "per-day": 1, "read": 1.0, "equal": ["key"]})
    assert (scan(files, lookup, small(), now_ms=0).deletes, has_deletes(files).tolist()) == (0.1, [False, True, False])


def test_fewer_files_of_the_same_bytes_cost_less_to_read() -> None:
    def price(count: int) -> float:
        table = Table(small())
        table.begin(files_of(count, 2, number=np.arange(count), size_bytes=1000 * MIB // count))
        return ask(table, table.workload.queries[0], Rates(), now_ms=0).money

    assert price(8) < price(1000) / 3


# Weeks


def test_a_seed_is_a_whole_history() -> None:
    def one(seed: int) -> Life:
        return live(workload("late-data"), Strategy.named("small-files"), seed=seed, days=2)

    assert one(5) == one(5)
    assert one(5).money != one(6).money


def test_compaction_pays_on_a_stream_that_is_read() -> None:
    nothing = live(workload("append-stream"), Strategy.named("nothing"), seed=1, days=2)
    kept = live(workload("append-stream"), Strategy.named("small-files"), seed=1, days=2)
    assert sum(cost.money for cost in nothing.maintenance) == 0
    assert nothing.runs == 0 < kept.runs
    assert kept.files[-1] < nothing.files[-1] / 5
    assert kept.money < nothing.money / 2


def lived(name: str, strategy: str, money: float) -> Life:
    return Life(name, strategy, 1, 1, maintenance=[Cost()], queries=[Cost(money=money)])


def test_the_bars_are_five_per_cent_on_each_workload_and_ahead_in_the_sum() -> None:
    fixed = [lived(name, strategy, 10.0) for name in ("a", "b") for strategy in simulate.FIXED]
    ahead = [lived("a", "adaptive", 10.4), lived("b", "adaptive", 9.0)]
    assert list(simulate._missed([*fixed, *ahead])) == []
    behind = [lived("a", "adaptive", 10.6), lived("b", "adaptive", 9.5)]
    assert list(simulate._missed([*fixed, *behind])) == [
        "a, seed 1: adaptive costs 1.060 times as much as small-files, the bar is 1.05",
        *(f"in the sum adaptive costs 20.100, {strategy} 20.000" for strategy in simulate.FIXED),
    ]
    assert list(simulate._missed(behind)) == []


def test_one_look_prints_a_table_and_leaves_figures_and_a_chart(tmp_path: Path) -> None:
    target = tmp_path / "simulate.json"
    command = [sys.executable, "-m", "bench.simulate", "--workload", "late-data", "--strategy", "nothing,small-files"]
    done = subprocess.run(
        [*command, "--quick", "--json", str(target)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lives = json.loads(target.read_text(encoding="utf-8"))["lives"]
    assert [(life["strategy"], life["seed"], life["days"]) for life in lives] == [("nothing", 1, 2), ("small-files", 1, 2)]
    assert done.stdout.startswith("workload   strategy")
    assert (tmp_path / "simulate.svg").read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.slow
def test_adaptive_keeps_its_bars_over_a_week_of_a_seed_that_is_drawn_now(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**31)
    words = ["--weeks", "1", "--seed", str(seed), "--jobs", "2", "--json", str(tmp_path / "simulate.json")]
    command = [sys.executable, "-m", "bench.simulate", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}"
