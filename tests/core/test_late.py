"""Deletes that come while a file is rewritten: which rows came late, and where they are now."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.commit.late_rows import come_late, moved
from neve.table.positions import PositionMap, Runs


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("planned", "now", "dropped", "lost_equality", "expected"),
    [
        ([], [3], [], False, [3]),
        ([1], [1, 3], [1], False, [3]),
        ([1], [1], [1], False, []),
        ([1], [3], [1], False, None),  # row 1 is back, and we left it out
        ([1], [1, 3], [1, 2], False, [3]),  # row 2 went by an equality delete that is still there
        ([], [2, 3], [2], True, [2, 3]),  # converted: what we left out is deleted by position now
        ([], [3], [2], True, None),  # taken back, and not converted
        ([1], [1, 2], [1, 2], True, [2]),
        ([], [], [], True, []),
        ([], [3], None, False, [3]),
        ([], [3], None, True, None),  # nobody knows what was left out
    ],
)
def test_what_came_late_are_rows_and_not_files(
    planned: list[int], now: list[int], dropped: list[int] | None, lost_equality: bool, expected: list[int] | None
) -> None:
    left_out = None if dropped is None else rows(*dropped)
    found = come_late(rows(*planned), rows(*now), dropped=left_out, lost_equality=lost_equality)
    assert (None if found is None else found.tolist()) == expected


@settings(deadline=None)
@given(st.data())
def test_every_late_row_is_found_where_the_rewrite_put_it(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    gone = [sorted(data.draw(st.sets(st.integers(0, max(size - 1, 0)), max_size=size))) if size else [] for size in sizes]
    cuts = data.draw(st.integers(1, 7))
    written: list[tuple[int, int]] = [
        (i, row) for i, size in enumerate(sizes) for row in range(size) if row not in gone[i]
    ]  # in writing order; a new file after every so many rows
    pieces = [(i, Runs(rows(row), rows(1)), at // cuts, at % cuts) for at, (i, row) in enumerate(written)]
    positions = PositionMap.build(pieces)
    outputs = [f"/o/{number}" for number in range(len(written) // cuts + 1)]
    late = {i: rows(*sorted(data.draw(st.sets(st.integers(0, size - 1))))) for i, size in enumerate(sizes) if size}
    found = {(path, int(at)) for path, there in moved(positions, late, outputs).items() for at in there}
    expected = {(outputs[at // cuts], at % cuts) for at, (i, row) in enumerate(written) if row in late.get(i, rows()).tolist()}
    assert found == expected
    for i, size in enumerate(sizes):
        assert positions.left_out(i, size).tolist() == gone[i]
    again = PositionMap.from_text(positions.to_text())
    assert [column.tolist() for column in vars(again).values()] == [column.tolist() for column in vars(positions).values()]
