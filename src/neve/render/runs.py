"""Runs from the state store as a list, newest first. Called by the CLI's text output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.core.units import format_bytes, format_seconds
from neve.render.bars import Tidy
from neve.render.phrases import count, moment, printable
from neve.render.run import SHORT_ID

UNDER_WAY = "not ended"
STYLES = {"done": "green", "partly-done": "yellow", "failed": "red", UNDER_WAY: "yellow"}


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
        """When it ended; None while it is under way, and for one that was killed."""
        ...

    @property
    def outcome(self) -> str | None:
        """How it ended."""
        ...

    @property
    def record(self) -> Mapping[str, Any]:
        """The record as JSON; empty until the end."""
        ...


def runs_text(rows: Sequence[RunRow]) -> RenderableType:
    """One line per run."""
    if not rows:
        return Text("No runs yet.")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("table", overflow="fold")
    table.add_column("started (UTC)", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for name in ("files", "read", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        outcome = row.outcome or UNDER_WAY
        cells = (row.run_id[:SHORT_ID], Text(printable(row.table_name)), _minute(row.started_ms))
        table.add_row(*cells, Text(outcome, style=STYLES.get(outcome, "")), *_numbers(row))
    return Tidy(table)


def _minute(ms: int) -> str:
    """`2025-01-17 12:30`: a list has no room for more."""
    return moment(ms)[:16]


def run_row_text(row: RunRow) -> RenderableType:
    """A run without a record: it goes on, or it was killed."""
    lines = Text(printable(row.table_name), style="bold")
    lines.append(f"\nBegan {moment(row.started_ms)} and has not ended\nRun {row.run_id}", style="not bold")
    return Tidy(lines)


def _numbers(row: RunRow) -> tuple[str, str, str]:
    took = "" if row.finished_ms is None else format_seconds((row.finished_ms - row.started_ms) / 1000)
    record = row.record
    if row.kind == "deletes" and record:
        from neve.core.upkeep import UpkeepRecord

        kept = UpkeepRecord.model_validate(record)
        return f"{count(kept.deletes_before)} → {count(kept.deletes_after)} deletes", "", took
    if not {"files_compacted", "files_written", "bytes_read"} <= record.keys():
        return "", "", took
    files = f"{count(record['files_compacted'])} → {count(record['files_written'])}"
    return files, format_bytes(record["bytes_read"]), took
