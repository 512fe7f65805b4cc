"""Sides that do the same work in one warm Spark session, taking turns. Used by `bench/maintenance.py`.

The first turn of each only warms up. An answer that is not the expected one ends the benchmark, since its time means nothing.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.rewrite import TreeByRole, WrongContentError

_TOLD = 3


@dataclass(frozen=True)
class Turn:
    """What one turn took."""

    wall_seconds: float
    cpu_seconds: float
    driver_peak_bytes: int


@dataclass
class Side:
    """A contender: `run` is measured, `answer` is asked afterwards, `prepare` comes before each turn."""

    case: str
    name: str
    run: Callable[[], Any]
    answer: Callable[[Any], Any] = lambda done: done
    prepare: Callable[[], None] = lambda: None
    turns: list[Turn] = field(default_factory=list)

    def median(self, name: str) -> float:
        """Over the turns."""
        return statistics.median(getattr(turn, name) for turn in self.turns)

    def told(self) -> dict[str, Any]:
        """For the file of figures."""
        return {"case": self.case, "contender": self.name, "turns": [vars(turn) for turn in self.turns]}


def take_turns(spark: Any, sides: Sequence[Side], *, expected: Any, repeats: int) -> Sequence[Side]:
    """Lets everybody run once to warm up, then so many times; gives the sides with their turns."""
    for number in range(repeats + 1):
        for side in sides:
            side.prepare()
            spark._jvm.System.gc()  # what the last contender left is not the next one's to clear away
            with TreeByRole() as tree:
                done = side.run()
            _compare(side, side.answer(done), expected)
            turn = Turn(tree.used.wall_seconds, tree.used.cpu_seconds, tree.peaks["driver"])
            words = f"{turn.wall_seconds:.2f} s wall, {turn.cpu_seconds:.2f} s CPU"
            print(f"  {side.case}, {side.name}: {words}{'' if number else ' (warms up)'}", file=sys.stderr, flush=True)
            if number:
                side.turns.append(turn)
    return sides


def _compare(side: Side, found: Any, expected: Any) -> None:
    if found == expected:
        return
    if isinstance(found, set):
        few = (sorted(found - expected)[:_TOLD], sorted(expected - found)[:_TOLD])
        raise WrongContentError(
            f"{side.name} ({side.case}): {len(found):,} for {len(expected):,}; too many {few[0]}, missing {few[1]}"
        )
    raise WrongContentError(f"{side.name} ({side.case}): {found} for {expected}")
