"""How many boundaries are not above a value, for whole columns of values of any length. Called by `ranks`.

Binary search, one 64-bit word at a time: rows go on to the next word only while they agree with a boundary in all words so far.
Boundaries are cut to the words that tell them from the value below, so numbers take one step and text seldom more than two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from neve.kernels.curves.words import U64, Rows, SortWords

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Level:
    """Boundaries by one of their words. A group is those that share all words before it.

    `words` are the different ones. `places` ascend, each a group and a word of it, and an end after each group's last; `below`
    counts the boundaries before each place; `following` is the group at the next level, -1 where no more words matter.
    """

    words: U64
    places: Rows
    below: Numbers
    following: Numbers

    @classmethod
    def of(cls, words: U64, groups: Rows, numbers: Rows, alike: Flags) -> tuple[Self, Rows]:
        """From boundaries by group, number among all, and whether the next word matters; also tells their next group."""
        different, at = np.unique(words, return_inverse=True)
        width = 2 * len(different) + 2
        places, first, mine = np.unique(groups * width + 2 * at + 1, return_index=True, return_inverse=True)
        going_on = np.logical_or.reduceat(alike, first)
        following = np.where(going_on, np.cumsum(going_on) - 1, -1)
        after = np.flatnonzero(np.append(np.diff(places // width) > 0, True)) + 1
        ends = np.append(first, len(numbers))[after] - 1
        level = cls(
            different,
            np.insert(places, after, (places[after - 1] // width + 1) * width - 1),
            np.insert(numbers[first], after, numbers[ends] + 1).astype(np.int32),
            np.insert(following, after, -1).astype(np.int32),
        )
        return level, following[mine]

    def find(self, words: U64, groups: Rows | None) -> tuple[Rows, Flags]:
        """The first place that is not before each row's, and whether it is just that; `groups` is None where there is one."""
        at = np.searchsorted(self.words, words)
        known = self.words[np.minimum(at, len(self.words) - 1)] == words
        if groups is None:
            return at, known
        place = groups * (2 * len(self.words) + 2) + 2 * at + known
        at = np.searchsorted(self.places, place)
        return at, self.places[at] == place


@dataclass(frozen=True, eq=False)
class Search:
    """Ascending boundaries, ready to be searched."""

    levels: tuple[Level, ...]

    @classmethod
    def between(cls, values: SortWords, firsts: Rows) -> Self:
        """Boundaries among ascending values: each parts the value of that number from those before it."""
        levels: list[Level] = []
        numbers, groups = np.arange(len(firsts)), np.zeros(len(firsts), np.int64)
        alike = firsts > 0
        while len(numbers) and len(levels) < values.depth:
            mine, previous = (values.at(len(levels), np.maximum(firsts[numbers] - back, 0)) for back in (0, 1))
            words = np.where(alike, mine, np.uint64(0))
            alike &= mine == previous
            level, groups = Level.of(words, groups, numbers, alike)
            levels.append(level)
            going_on = groups >= 0
            numbers, groups, alike = numbers[going_on], groups[going_on], alike[going_on]
        return cls(tuple(levels))

    def count(self, values: SortWords, rows: int) -> Numbers:
        """For each of the rows, how many boundaries are not above its value."""
        found = np.zeros(rows, np.int32)
        active: Rows | slice = slice(None)
        groups: Rows | None = None
        for number, level in enumerate(self.levels):
            at, known = level.find(values.at(number, active), groups)
            found[active] = level.below[at + known]
            if number + 1 == len(self.levels):
                break
            following = level.following[at]
            going_on = np.flatnonzero(known & (following >= 0))
            active = going_on if isinstance(active, slice) else active[going_on]
            groups = following[going_on].astype(np.int64)
        return found
