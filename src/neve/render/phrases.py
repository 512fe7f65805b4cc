"""Numbers, ages and verdicts as people read them. Shared by text and pages, so that both say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from neve.health.inspection import SizeBucket
from neve.render.commands import completed
from neve.table.calendar import iso_moment
from neve.table.state import MAIN
from neve.table.units import counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Band:
    """A verdict on a score: a word for it, a colour for the terminal and a class for the page."""

    floor: int
    word: str
    style: str
    css: str


BANDS = (
    Band(floor=90, word="healthy", style="green", css="good"),
    Band(floor=70, word="fair", style="yellow", css="fair"),
    Band(floor=40, word="poor", style="dark_orange", css="poor"),
    Band(floor=0, word="bad", style="red", css="bad"),
)

FROM_CACHE = "metadata from cache, storage was not read"
"""Of an answer for which nothing was read from storage."""


def band(score: float) -> Band:
    """The verdict on a score of 0 to 100."""
    return next(b for b in BANDS if score >= b.floor)


def count(value: int) -> str:
    """`1,204,000`."""
    return f"{value:,}"


def share(ratio: float) -> str:
    """`3.1%`, `98%`; never 0% for something nor 100% for not quite everything."""
    percent = ratio * 100
    if 0 < percent < 0.1:
        return "<0.1%"
    if 0 < percent < 9.95 or 99 < percent < 100:
        return f"{min(percent, 99.9):.1f}%"
    return f"{percent:.0f}%"


def ago(then_ms: int, now_ms: int) -> str:
    """`3.2 days ago`. A clock that runs ahead of ours by a little is not worth a remark."""
    seconds = (now_ms - then_ms) / 1000
    return "just now" if seconds < 1 else f"{format_seconds(seconds)} ago"


def moment(ms: int) -> str:
    """`2025-01-17 12:30:05 UTC`."""
    return f"{iso_moment(ms // 1000).replace('T', ' ')} UTC"


def size_range(bucket: SizeBucket) -> str:
    """`1 MB to 4 MB` with a dash, `< 1 MB`, `≥ 1 GB`."""
    if bucket.high_bytes is None:
        return f"≥ {format_bytes(bucket.low_bytes)}"
    if bucket.low_bytes == 0:
        return f"< {format_bytes(bucket.high_bytes)}"
    return f"{format_bytes(bucket.low_bytes)} \N{EN DASH} {format_bytes(bucket.high_bytes)}"


def size_of_files(files: int, size_bytes: int, without_size: int) -> str:
    """`3 MB`; `≥ 3 MB` where the size of some files is not known, `unknown` where that of none is."""
    if files and without_size == files:
        return "unknown"
    return f"{'≥ ' if without_size else ''}{format_bytes(size_bytes)}"


def sized_files(files: int, size_bytes: int, without_size: int) -> str:
    """`22 files (3 MB)`."""
    size = size_of_files(files, size_bytes, without_size)
    return f"{counted(files, 'file')} ({'size unknown' if size == 'unknown' else size})"


def headed(table: str, branch: str) -> str:
    """The name that heads a report: the table, and its branch if that is another than main."""
    return printable(table if branch == MAIN else f"{table}, branch {branch}")


def printable(text: str) -> str:
    """Text from a table's metadata, made harmless: control and direction characters are shown, not obeyed.

    Commands in it are completed, so that they can be copied.
    """
    return completed("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


class _Timely(Protocol):
    """A record, as far as its time goes."""

    @property
    def seconds(self) -> float:
        """The work alone."""
        ...

    @property
    def elapsed_seconds(self) -> float | None:
        """The whole command."""
        ...

    @property
    def session_start_seconds(self) -> float | None:
        """Spark's start."""
        ...

    @property
    def planning_seconds(self) -> float | None:
        """Reading and planning."""
        ...


def took(record: _Timely) -> str:
    """How long the command took, with Spark's start and planning where they are a good part of that: `27.1 s (Spark start 14.2
    s, planning 3.1 s)`. The work alone for records that do not have more."""
    whole = record.seconds if record.elapsed_seconds is None else record.elapsed_seconds
    parts = {"Spark start": record.session_start_seconds, "planning": record.planning_seconds}
    large = {name: part for name, part in parts.items() if part is not None and part >= max(1.0, whole * _LARGE_SHARE)}
    named = ", ".join(f"{name} {format_seconds(part)}" for name, part in large.items())
    return f"{format_seconds(whole)} ({named})" if named else format_seconds(whole)


_LARGE_SHARE = 0.05
