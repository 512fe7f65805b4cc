"""Which files a clustering run rewrites (docs/clustering.md). Pure; called by the planner and by inspection.

Freshly written files are as wide as everything; files of an earlier run are tight in proportion to how much that run held. So
stretch tells layers apart, as levels do in a log-structured store: the widest are merged first, and large tight layers are left
alone. A rewrite is chosen only where it brings the depth well below the limit, so that choosing again after it finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.errors import BadRequestError
from neve.health.not_due import NotDue, Unit
from neve.health.overlap import Boxes, Layers, Numbers, Overlap, each_partition, layers, stretch
from neve.table.bounds import Mask, Ranges, Ranks
from neve.table.files import FileColumns
from neve.table.layout import WRITTEN_IN, Layout, LayoutKind
from neve.table.state import RUN_ID, Column, Snapshot

NO_RUN = -1
"""Stands for the run of a file that no clustering run wrote."""

KEPT_AT_MOST = 0.75
"""Of what queries meet before a rewrite, it must leave no more than this share."""

_DEPTH = {LayoutKind.SORT: (1.0, 1.0), LayoutKind.HILBERT: (1.5, 1.8), LayoutKind.ZORDER: (2.8, 4.2)}
_WIDTH = {LayoutKind.HILBERT: 1.25, LayoutKind.ZORDER: 1.6}


@dataclass(frozen=True)
class Outcome:
    """What the files of one run over a partition look like. Boxes around pieces of a curve are larger than the pieces: by how
    much was measured over uniform rows, 20 to 1000 files and 2 to 4 columns."""

    kind: LayoutKind
    columns: int
    files: int

    @property
    def depth(self) -> float:
        """How many of them lie over a point."""
        return min(self.files, 1.0 if self.columns < 2 else _DEPTH[self.kind][self.columns > 2])

    @property
    def shares(self) -> Numbers:
        """For each column, the share of them that a query for one value meets."""
        if self.kind is LayoutKind.SORT or self.columns < 2:
            return np.array([1 / self.files] + [1.0] * (self.columns - 1))
        return np.full(self.columns, min(1.0, _WIDTH[self.kind] * self.files ** (-1 / self.columns)))


@dataclass(frozen=True)
class ClusteringLimits:
    """When a partition is too deep, and how deep it may be after a rewrite into files of `target_bytes`."""

    kind: LayoutKind
    columns: int
    max_depth: float
    target_bytes: int

    @property
    def limit(self) -> float:
        """Three runs may always lie on one another: with fewer allowed, every run would rewrite everything."""
        return max(self.max_depth, 3 * Outcome(self.kind, self.columns, 1 << 30).depth)

    @property
    def goal(self) -> float:
        """Well below the limit, so that a rewrite is not due again at once; room for two runs."""
        return self.limit * 2 / 3

    @property
    def curve(self) -> bool:
        """Whether every column counts alike."""
        return self.kind is not LayoutKind.SORT

    def outcome(self, size_bytes: int) -> Outcome:
        """Of a rewrite of so many bytes."""
        return Outcome(self.kind, self.columns, max(1, round(size_bytes / self.target_bytes)))

    def score(self, found: Overlap, files: int) -> float:
        """The depth; along a curve at least the depth at which cubes would be met as often by queries on one column."""
        if not self.curve:
            return found.mean
        return max(found.mean, files * (sum(found.columns) / self.columns / files) ** self.columns)


@dataclass(frozen=True, eq=False)
class ClusteringChoice:
    """The files of one partition to rewrite together, maybe none, and why; depth as it is, and as predicted after.

    `not_due` is the rule that leaves the partition alone, if there are no files to rewrite.
    """

    partition: int
    files: Ranks
    reason: str
    before: Overlap
    predicted: Overlap
    not_due: NotDue | None = None


def layout_columns(layout: Layout, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns whose bounds tell how well files follow the layout: those up to a transform that does not keep the order."""
    named = {column.name: column for column in columns}
    found = []
    for field in layout.fields:
        if field.name not in named:
            raise BadRequestError(
                f"Cannot cluster by {field.name}: the table has no such column, or it is inside a list or a map",
                hint=f"Columns are {', '.join(named)}.",
            )
        if field.transform.startswith(("bucket", "void")):
            break
        found.append(named[field.name])
    return tuple(found)


def layout_ranges(files: FileColumns, layout: Layout, columns: Sequence[Column]) -> Ranges:
    """The ranges that `choose` looks at, for all files; `columns` are the table's."""
    return Ranges.of(files, layout_columns(layout, columns)).coarsened([field.transform for field in layout.fields])


def runs_of(layout: Layout, snapshots: Sequence[Snapshot], written_by: npt.NDArray[Any]) -> Ranks:
    """The run that wrote each file in this layout, by number, NO_RUN for the others; `written_by` are the files' snapshots."""
    told, numbers = str(layout), dict[str, int]()
    of_snapshot = {
        one.snapshot_id: numbers.setdefault(one.summary.get(RUN_ID, str(one.snapshot_id)), len(numbers))
        for one in snapshots
        if one.summary.get(WRITTEN_IN) == told
    }
    known, places = np.unique(written_by, return_inverse=True)
    return np.array([of_snapshot.get(int(one), NO_RUN) for one in known], dtype=np.int64)[places]


def choose(
    ranges: Ranges,
    sizes: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    partition: npt.NDArray[Any],
    *,
    max_depth: float,
    target_bytes: int,
    kind: LayoutKind = LayoutKind.HILBERT,
    runs: npt.NDArray[Any] | None = None,
    chosen: Mask | None = None,
) -> list[ClusteringChoice]:
    """A choice for each partition that has files; none where bounds do not tell the layout.

    With `chosen` that choice is made already, and only the depth after it is predicted.

    `runs` numbers the run with this layout that wrote each file, NO_RUN where there was none. With it, a run is taken up again
    only whole and with as many bytes of others, so that even rewrites that do not help come to an end.
    """
    if not ranges.columns:
        return []
    limits = ClusteringLimits(kind, len(ranges.columns), max_depth, target_bytes)
    apart = ranges.as_told_apart()
    found = []
    for home, files in each_partition(partition):
        written = np.full(len(files), NO_RUN) if runs is None else runs[files]
        part = _Part(Boxes.of(apart, files), sizes[files], rows[files], written, limits)
        taken, reason, predicted, not_due = part.choice() if chosen is None else part.taken(chosen[files], rows[files])
        found.append(ClusteringChoice(home, files[taken], reason, part.before, predicted, not_due))
    return found


def _by_run(stretched: Numbers, sizes: npt.NDArray[Any], runs: npt.NDArray[Any]) -> Numbers:
    """Each file of a run as stretched as its run is on average: a run is taken up whole, not its few wide files alone."""
    again = runs != NO_RUN
    _, numbers = np.unique(runs[again], return_inverse=True)
    weights = np.maximum(sizes[again], 1)
    stretched[again] = (np.bincount(numbers, weights * stretched[again]) / np.bincount(numbers, weights))[numbers]
    return stretched


def _levels(stretched: Numbers, movable: Mask) -> Ranks:
    """Classes of stretch, each half of the next; counted from the widest file, so that fresh files of one size are in one."""
    wide = np.where(movable, np.maximum(stretched, 1), 1)
    below = np.log2(wide.max() / wide).astype(np.int64)
    return np.asarray(below.max() - below)


def _within(score: float, limit: float) -> NotDue:
    return NotDue(
        rule="depth",
        what="files over the same values",
        measured=round(score, 2),
        threshold=limit,
        comparison="above",
        knob="cluster-depth",
        more=floor(limit - score) + 1,
        more_of="overlapping file",
    )


_ONE_RUN = NotDue(
    rule="one-run",
    what="most files are of one earlier clustering run",
    until="as many bytes are added as that run wrote",
)


def _little(left: float) -> NotDue:
    return NotDue(
        rule="depth-gain",
        what="share of the depth that a rewrite would leave",
        measured=round(left, 3),
        threshold=KEPT_AT_MOST,
        comparison="up to",
        unit=Unit.RATIO,
        until="more files overlap",
    )


class _Part:
    """One partition while its files are chosen."""

    def __init__(
        self, boxes: Boxes, sizes: npt.NDArray[Any], rows: npt.NDArray[Any], runs: npt.NDArray[Any], limits: ClusteringLimits
    ) -> None:
        self.boxes, self.sizes, self.runs, self.limits = boxes, sizes, runs, limits
        self.times = np.maximum(sizes // limits.target_bytes, 1)
        self.movable: Mask = np.logical_not(boxes.single.all(axis=1))
        self.levels = _levels(_by_run(stretch(boxes, rows, curve=limits.curve), sizes, runs), self.movable)
        self.layers: Layers = layers(boxes, rows, weights=self.times, classes=self.levels)
        self.before = self.layers.overlap()

    def choice(self) -> tuple[Mask, str, Overlap, NotDue | None]:
        limit, score = self.limits.limit, self.limits.score(self.before, int(self.times.sum()))
        nothing, depth = np.zeros(len(self.boxes), dtype=np.bool_), f"depth {self.before.mean:.1f}"
        if score <= limit:
            return nothing, f"{depth} is within {limit:g}", self.before, _within(score, limit)
        tried = list(self._tried())
        if not tried:
            return nothing, f"{depth} is above {limit:g}, but most files are of one earlier run", self.before, _ONE_RUN
        goal = max(self.limits.goal, min(after for after, _, _ in tried))
        after, chosen, predicted = next(found for found in tried if found[0] <= goal)
        if after > score * KEPT_AT_MOST:
            reason = f"{depth} is above {limit:g}, but a rewrite would change little"
            return nothing, reason, self.before, _little(after / score)
        if self.before.mean > limit:
            return chosen, f"{depth} is above {limit:g}", predicted, None
        return chosen, f"long thin files: queries on one column read as at depth {score:.1f}, above {limit:g}", predicted, None

    def taken(self, chosen: Mask, rows: npt.NDArray[Any]) -> tuple[Mask, str, Overlap, NotDue | None]:
        """What these files would be after a rewrite."""
        if not chosen.any():
            return chosen, "", self.before, None
        self.layers = layers(self.boxes, rows, weights=self.times, classes=chosen)
        return chosen, "", self._predicted(chosen, 1, self.limits.outcome(int(self.sizes[chosen].sum()))), None

    def _tried(self) -> Iterator[tuple[float, Mask, Overlap]]:
        """Sets of files to gather, the smallest first, each all above a level of stretch; with what would come of it."""
        for level in np.unique(self.levels[self.movable])[::-1].tolist():
            chosen = self.movable & (self.levels >= level)
            if not self._mostly_one_run(chosen):
                outcome = self.limits.outcome(int(self.sizes[chosen].sum()))
                predicted = self._predicted(chosen, level, outcome)
                yield self.limits.score(predicted, int(self.times[~chosen].sum()) + outcome.files), chosen, predicted

    def _mostly_one_run(self, chosen: Mask) -> bool:
        again = chosen & (self.runs != NO_RUN)
        _, numbers = np.unique(self.runs[again], return_inverse=True)
        return bool(2 * np.bincount(numbers, self.sizes[again]).max(initial=0) > self.sizes[chosen].sum())

    def _predicted(self, chosen: Mask, level: int, outcome: Outcome) -> Overlap:
        points, boxes = self.layers.points, self.boxes
        within = (2 * boxes.lower[chosen].min(axis=0) <= points) & (points <= 2 * boxes.upper[chosen].max(axis=0))
        each = within * np.maximum(outcome.shares * outcome.files, 1)
        return self.layers.overlap(level, extra=within.all(axis=1) * outcome.depth, by_column=each)
