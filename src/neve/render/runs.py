"""Runs from the state store as a list, newest first. Called by the CLI's text output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from neve.render.bars import Tidy
from neve.render.phrases import moment, printable
from neve.render.records import cell_of, is_unknown
from neve.render.run import SHORT_ID
from neve.rewrite.group import RunKind
from neve.rewrite.record import RunOutcome
from neve.rewrite.versions import NEWER
from neve.table.units import format_seconds

UNDER_WAY, INTERRUPTED = "running", "interrupted"
_FIXED = {"run": "run", "started": "started (UTC)", "what": "what", "took": "took"}
"""Columns that are never folded, with their headers."""
_GAP, _FOLDED = 2, 13
_OUTCOMES = {*RunOutcome, UNDER_WAY, INTERRUPTED}
STYLES = {"done": "green", "partly-done": "yellow", "failed": "red", INTERRUPTED: "yellow"}


class RunRow(Protocol):
    """One run as the store keeps it."""

    @property
    def run_id(self) -> str:
        """Its id."""
        ...

    @property
    def table_name(self) -> str:
        """The table's full name."""
        ...

    @property
    def kind(self) -> str:
        """What was done, such as compact."""
        ...

    @property
    def started_ms(self) -> int:
        """When it began."""
        ...

    @property
    def finished_ms(self) -> int | None:
        """When it ended; None while it runs, and for one that was interrupted."""
        ...

    @property
    def outcome(self) -> str | None:
        """How it ended; `interrupted` if it has not and no process works on it, None while it runs."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """The record as JSON; empty until the end."""
        ...


def runs_text(rows: Sequence[RunRow]) -> RenderableType:
    """One line per run."""
    if not rows:
        return Text("No runs yet.")
    return Tidy(RunTable(tuple(rows)))


@dataclass(frozen=True)
class RunTable:
    """Runs in lines. A narrow terminal folds names and results, and does without the moment before it cuts a duration."""

    rows: tuple[RunRow, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [self._cells(row) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(_FIXED.values(), *(fixed for fixed, _ in cells), strict=True)]
        room = options.max_width - sum(widths) - _GAP * (len(widths) + 1)
        is_narrow = room < 2 * _FOLDED
        room += widths[1] + _GAP if is_narrow else 0
        least = max(1, min(_FOLDED, room // 2))
        fixed = [name for name in _FIXED if not (is_narrow and name == "started")]
        table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
        for name in fixed[:-1]:
            table.add_column(_FIXED[name], no_wrap=True)
        table.add_column("table", overflow="fold", min_width=least)
        table.add_column("result", overflow="fold", min_width=least)
        table.add_column(_FIXED["took"], justify="right", no_wrap=True, min_width=widths[-1])
        for row, (told, result) in zip(self.rows, cells, strict=True):
            *first, took = (text for name, text in zip(_FIXED, told, strict=True) if name in fixed)
            table.add_row(*first, Text(printable(row.table_name)), result, took)
        yield table

    def _cells(self, row: RunRow) -> tuple[tuple[str, ...], Text]:
        return (row.run_id[:SHORT_ID], _minute(row.started_ms), row.kind, run_took(row)), run_result(row)


def _minute(ms: int) -> str:
    """`2025-01-17 12:30`: a list has no room for more."""
    return moment(ms)[:16]


def run_row_text(row: RunRow, *, is_newer: bool = False) -> RenderableType:
    """A run without a whole record: it runs, was interrupted, could not be recorded, or is of a newer release."""
    lines = Text(printable(row.table_name), style="bold")
    ended = {None: "is running", INTERRUPTED: "was interrupted"}.get(row.outcome, f"ended as {row.outcome}")
    reason = f": {printable(row.record['reason'])}" if row.record.get("reason") else ""
    lines.append(f"\nStarted {moment(row.started_ms)} and {ended}{reason}\nRun {row.run_id}", style="not bold")
    if is_newer or is_unknown(row.kind):
        lines.append(f"\nOperation {printable(row.kind)}, {NEWER}: --json shows its record", style="not bold")
    if row.outcome == INTERRUPTED and row.kind in tuple(RunKind):
        lines.append(f"\n{printable(f'Finish it with: `neve resume {row.run_id[:SHORT_ID]}`')}", style="not bold")
    return Tidy(lines)


def run_took(row: RunRow) -> str:
    """How long the run worked; empty where nobody knows."""
    if row.finished_ms is None or row.record.get("interrupted"):
        return ""
    if (elapsed := row.record.get("elapsed_seconds")) is not None:
        return format_seconds(elapsed)
    return format_seconds((row.finished_ms - (row.record.get("resumed_ms") or row.started_ms)) / 1000)


def run_result(row: RunRow) -> Text:
    """Numbers where it is done, and in any other case how it ended."""
    outcome = INTERRUPTED if row.record.get("interrupted") else row.outcome or UNDER_WAY
    numbers = cell_of(row.kind, row.record) if row.finished_ms is not None and outcome != "nothing-to-do" else ""
    told = [] if outcome == "done" and numbers and numbers != NEWER else [outcome.replace("-", " ")]
    if outcome not in _OUTCOMES and numbers != NEWER:
        told.append(NEWER)
    return Text(", ".join([*told, numbers] if numbers else told), style=STYLES.get(outcome, ""))
