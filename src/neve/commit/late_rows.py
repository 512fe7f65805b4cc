"""Deletes that land on a group's inputs while it is rewritten: which rows of its outputs they mean. Pure.

Called by `commit.rewrite_files`. Rows that were read before such a delete came are in the outputs: they are not read again, the
delete is moved to where they are now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from neve.table.positions import Longs, PositionMap


def come_late(planned: Longs, now: Longs, *, dropped: Longs | None, lost_equality: bool) -> Longs | None:
    """Positions in one input that were deleted since the plan; None if a row that the rewrite left out may be back.

    `planned` and `now` are its rows deleted by position, `dropped` those that the rewrite left out, None if nobody kept count.
    Deletes are merged, cut and converted by others: what counts is the rows that they name. Where an equality delete is gone,
    all that was left out must be deleted by position instead, as a conversion does.
    """
    if lost_equality and dropped is None:
        return None
    must_stay = dropped if lost_equality and dropped is not None else planned
    if not np.isin(must_stay, now, assume_unique=True).all():
        return None
    return np.setdiff1d(now, planned, assume_unique=True)


def moved(positions: PositionMap, late: Mapping[int, Longs], outputs: Sequence[str]) -> dict[str, Longs]:
    """By output the positions there of `late` rows, which are given by input; rows that were left out need no delete."""
    found: dict[str, list[Longs]] = {}
    for index, rows in late.items():
        output, at = positions.locate(index, rows)
        for number in np.unique(output[output >= 0]):
            found.setdefault(outputs[int(number)], []).append(at[output == number])
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}
