"""The small pure parts of the arrow kernel: sizes to aim for, counting in odd arrays, runs of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.kernels.arrow import WriteOptions
from neve.kernels.arrow.counting import tally
from neve.kernels.arrow.goals import Goals
from neve.table.positions import PositionMap, Runs


@pytest.mark.parametrize(
    ("to_come", "expected"), [(50, 50), (100, 100), (125, 125), (126, 63), (220, 110), (230, 230 / 3), (1000, 100)]
)
def test_files_come_out_alike_and_a_small_rest_is_spread(to_come: float, expected: float) -> None:
    assert Goals(WriteOptions(target_bytes=100, row_group_bytes=1000), to_come).file_bytes(0) == pytest.approx(expected)


def test_what_was_written_corrects_the_estimate() -> None:
    goals = Goals(WriteOptions(target_bytes=100, row_group_bytes=50), 400)
    goals.wrote(100, 50)
    assert goals.ratio == 0.5
    assert goals.file_bytes(50) == pytest.approx(100)
    assert goals.row_group_bytes(50) == pytest.approx(50)
    assert not goals.is_full(50)
    assert goals.is_full(96)


def test_the_last_file_takes_the_rest_unless_it_grows_beyond_the_target() -> None:
    goals = Goals(WriteOptions(target_bytes=100), 100)
    goals.wrote(98, 98)
    assert not goals.is_full(98)
    goals.wrote(98, 98)
    assert goals.is_full(196)


def test_row_groups_of_a_file_come_out_alike() -> None:
    goals = Goals(WriteOptions(target_bytes=150, row_group_bytes=100), 150)
    assert goals.row_group_bytes(0) == pytest.approx(75)


def test_what_a_missing_list_or_map_hides_is_not_counted() -> None:
    missing = pa.array([False, True, False])
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), pa.array([1.0, None, 2.0]), mask=missing)
    keys, items = pa.array(["a", "b", "c"]), pa.array([1, None, 2])
    entries = pa.MapArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), keys, items, mask=missing)
    assert tally([hidden]).tolist() == [[3, 2, 0]]
    assert tally([entries]).tolist() == [[3, 2, 0], [3, 2, 0]]
    assert tally([hidden.slice(1), entries.slice(1)]).tolist() == [[2, 2, 0]] * 3


@given(st.sets(st.integers(0, 29)), st.integers(0, 30))
def test_runs_cover_what_is_kept_and_split_at_any_row(deleted: set[int], at: int) -> None:
    kept = [i for i in range(30) if i not in deleted]
    runs = Runs.without(np.array(sorted(deleted), np.int64), 0, 30)

    def positions(of: Runs) -> list[int]:
        return [int(s) + i for s, n in zip(of.starts, of.lengths, strict=True) for i in range(n)]

    assert positions(runs) == kept
    at = min(at, len(kept))
    if at > 0:
        first, rest = runs.split(at)
        assert (positions(first), positions(rest)) == (kept[:at], kept[at:])


def test_a_position_map_survives_as_text() -> None:
    runs = Runs.without(np.array([3], np.int64), 0, 6)
    built = PositionMap.build([(1, runs, 0, 10), (0, runs, 0, 0)])
    again = PositionMap.from_text(built.to_text())
    assert [column.tolist() for column in vars(again).values()] == [column.tolist() for column in vars(built).values()]
    assert built.inputs.tolist() == [0, 0, 1, 1]
    assert built.output_starts.tolist() == [0, 3, 10, 13]
