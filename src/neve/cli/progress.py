"""How far long work has come: a live line on a terminal, single plain lines elsewhere, nothing beside JSON.

`follow` gives the commands a `Progress`; quick work stays silent in both forms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from neve.ports import Progress

PLAIN_INTERVAL_SECONDS = 5.0


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
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    # The result must not mix with the bar, so the bar goes away when the work is done.
    return RichProgress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False)


def _silent(stage: str, done: int, total: int | None) -> None:
    """Nobody watches."""


class LiveLine:
    """One line that is redrawn; a new stage takes the place of the last."""

    def __init__(self, rich: RichProgress) -> None:
        self._rich = rich
        self._stage: str | None = None
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Redraws."""
        if stage != self._stage or self._task is None:
            if self._task is not None:
                self._rich.remove_task(self._task)
            self._stage, self._task = stage, self._rich.add_task(stage, total=total)
        self._rich.update(self._task, completed=done, total=total)


class PlainLines:
    """A line now and then, the first not before the work has taken a while: a log is read by people too."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._last = now()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Writes a line if the last one is long enough ago."""
        if self._now() - self._last < PLAIN_INTERVAL_SECONDS:
            return
        self._last = self._now()
        told = f"{stage}: {done:,}" if total is None else f"{stage}: {done:,} of {total:,}"
        self._console.print(told, markup=False, soft_wrap=True)
