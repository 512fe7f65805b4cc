"""How far long work has come: a live line on a terminal, single plain lines elsewhere, nothing beside JSON.

`follow` gives the commands a `Progress`; quick work stays silent in both forms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from neve.ports import Progress
from neve.table.units import format_bytes, format_seconds

PLAIN_INTERVAL_SECONDS = 5.0

Unit = Literal["", "bytes"]


@contextmanager
def follow(console: Console, *, quiet: bool) -> Iterator[Progress]:
    """A progress for the length of a command. `quiet` silences everything but a terminal's live line."""
    if console.is_terminal and not console.is_dumb_terminal:
        with _live(console) as rich:
            yield LiveLine(rich)
    elif quiet:
        yield _silent
    else:
        yield PlainLines(console)


def _live(console: Console) -> RichProgress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[told]}"))
    # The result must not mix with the bar, so the bar goes away when the work is done.
    return RichProgress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False)


def _silent(stage: str, done: int, total: int | None, unit: Unit = "") -> None:
    """Nobody watches."""


class Pace:
    """Puts into words how far a stage has come; of bytes also how fast, and how long the rest should take at that rate."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._stage: str | None = None
        self._began = (0.0, 0)

    def told(self, stage: str, done: int, total: int | None, unit: Unit) -> str:
        """Such as `120 MB of 300 MB, 60 MB/s, 3 s left`."""
        if stage != self._stage:
            self._stage, self._began = stage, (self._now(), done)
        shown = format_bytes if unit == "bytes" else lambda count: f"{count:,.0f}"
        told = shown(done) if total is None else f"{shown(done)} of {shown(total)}"
        seconds, gone = self._now() - self._began[0], done - self._began[1]
        if unit != "bytes" or total is None or gone <= 0 or seconds <= 0:
            return told
        rate = gone / seconds
        left = f", {format_seconds((total - done) / rate)} left" if done < total else ""
        return f"{told}, {format_bytes(rate)}/s{left}"


class LiveLine:
    """One line that is redrawn; a new stage takes the place of the last."""

    def __init__(self, rich: RichProgress) -> None:
        self._rich = rich
        self._pace = Pace()
        self._stage: str | None = None
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int | None, unit: Unit = "") -> None:
        """Redraws."""
        if stage != self._stage or self._task is None:
            if self._task is not None:
                self._rich.remove_task(self._task)
            self._stage, self._task = stage, self._rich.add_task(stage, total=total, told="")
        told = "" if total is None and not done else self._pace.told(stage, done, total, unit)
        self._rich.update(self._task, completed=done, total=total, told=told)


class PlainLines:
    """A line now and then, the first not before the work has taken a while: a log is read by people too."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._pace = Pace(now)
        self._last = now()

    def __call__(self, stage: str, done: int, total: int | None, unit: Unit = "") -> None:
        """Writes a line if the last one is long enough ago."""
        told = self._pace.told(stage, done, total, unit)
        if self._now() - self._last < PLAIN_INTERVAL_SECONDS:
            return
        self._last = self._now()
        line = stage if total is None and not done else f"{stage}: {told}"
        self._console.print(line, markup=False, soft_wrap=True)
