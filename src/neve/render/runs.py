"""Runs from the state store as a list, newest first. Called by the CLI's text output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.core.units import counted, format_seconds
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
    for name in ("run", "started (UTC)", "what"):
        table.add_column(name, no_wrap=True)
    table.add_column("table", overflow="fold", min_width=15)
    table.add_column("result", overflow="fold", min_width=13)
    table.add_column("took", justify="right", no_wrap=True)
    for row in rows:
        cells = (row.run_id[:SHORT_ID], _minute(row.started_ms), row.kind, Text(printable(row.table_name)))
        took = "" if row.finished_ms is None else format_seconds((row.finished_ms - row.started_ms) / 1000)
        table.add_row(*cells, _result(row), took)
    return Tidy(table)


def _minute(ms: int) -> str:
    """`2025-01-17 12:30`: a list has no room for more."""
    return moment(ms)[:16]


def run_row_text(row: RunRow) -> RenderableType:
    """A run without a record: it goes on, or it was killed."""
    lines = Text(printable(row.table_name), style="bold")
    lines.append(f"\nBegan {moment(row.started_ms)} and has not ended\nRun {row.run_id}", style="not bold")
    return Tidy(lines)


def _result(row: RunRow) -> Text:
    """Numbers where it is done, and in any other case how it ended."""
    outcome = row.outcome or UNDER_WAY
    numbers = _numbers(row.kind, row.record) if row.finished_ms is not None and outcome != "nothing-to-do" else ""
    told = [] if outcome == "done" and numbers else [outcome.replace("-", " ")]
    return Text(", ".join([*told, numbers] if numbers else told), style=STYLES.get(outcome, ""))


def _numbers(kind: str, record: Mapping[str, Any]) -> str:
    """What a run did, as short as can be."""
    with suppress(KeyError, TypeError):  # of a run that was interrupted, or of another version
        return _NUMBERS[kind](record) if kind in _NUMBERS else ""
    return ""


def _arrow(before: int, after: int, what: str) -> str:
    return f"{count(before)} → {count(after)} {what}"


def _ttl(record: Mapping[str, Any]) -> str:
    rows = record["counts"]["rows_dropped"] + record["counts"]["rows_deleted"]
    return f"{'would lose' if record['dry_run'] else 'lost'} {counted(rows, 'row')}"


_NUMBERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "compact": lambda r: _arrow(r["files_compacted"], r["files_written"], "files"),
    "deletes": lambda r: _arrow(r["deletes_before"], r["deletes_before"] + r["data_files"] - r["deletes_removed"], "deletes"),
    "expire": lambda r: _arrow(r["snapshots_before"], r["snapshots_before"] - len(r["expired"]), "snapshots"),
    "manifests": lambda r: _arrow(r["manifests_replaced"], r["manifests_written"], "manifests"),
    "orphans": lambda r: counted(r["taken"], "orphan"),
    "quarantine": lambda r: f"{r['operation']} {counted(r['files'], 'file')}",
    "stats": lambda r: counted(len(r["columns"]), "column"),
    "tags": lambda r: f"{count(len(r['created']))} made, {count(len(r['dropped']))} dropped",
    "ttl": _ttl,
    "maintain": lambda r: counted(sum(s["outcome"] in ("done", "partly done") for s in r["steps"]), "step"),
}
