"""A preview or an enforcement of a limit on rows' age, as rich text: one line, then the facts. Called by the CLI's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.record import Operation
from neve.maintenance.ttl import TtlRecord
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, headed, moment, printable, took
from neve.render.record_text import RecordText
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted, exact_seconds, format_bytes

_SHOWN = 5
"""How many files are listed that are not dropped as a whole."""


def ttl_text(record: TtlRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(headed(record.table, record.branch), style="bold"), Text(ttl_line(record), style=STYLES[record.outcome])]
    return Tidy(Stack(*lines, Text(), Padding(_facts(record), INDENT), *not_due_section(record.not_due)))


def ttl_line(record: TtlRecord) -> str:
    """How it ended, in one line."""
    reason = printable(record.reason or "")
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {reason}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {took(record)}: {reason}"
    counts = record.counts
    gone = f"{counted(counts.rows_dropped, 'row')} with {counted(counts.files_dropped, 'whole file')}"
    single = f"{counted(counts.rows_deleted, 'row')} out of {counted(counts.files_touched, 'other file')}"
    told = f"{gone} and {single}"
    if record.dry_run:
        return f"Would remove {told}"
    part = f"; then it failed: {reason}" if record.outcome is RunOutcome.PARTLY_DONE else ""
    return f"Removed {told} in {took(record)}{part}"


def _facts(record: TtlRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    rule, counts = record.rule, record.counts
    form = f" as {rule.format}" if rule.format else ""
    since = " before the last write" if rule.since == "last-write" else ""
    grid.add_row("column", Text(f"{printable(rule.column)} ({rule.type}){form}"))
    cutoff = f"from {moment(record.cutoff_ms)} on" if record.cutoff_ms is not None else "every row"
    grid.add_row("kept", f"{exact_seconds(rule.keep_seconds)}{since}: {cutoff}")
    if counts.bytes_dropped:
        grid.add_row("whole files", f"{count(counts.files_dropped)} with {format_bytes(counts.bytes_dropped)}")
    if counts.files_left:
        grid.add_row("left", f"{counted(counts.files_left, 'file')}: {printable(record.reason or '')}")
    for file in record.unproved[:_SHOWN]:
        grid.add_row(
            "left alone" if file.left else "read row by row", Text(f"{printable(file.path)}: {printable(file.reason)}")
        )
    if (more := len(record.unproved) - _SHOWN) > 0:
        grid.add_row("", f"{counted(more, 'more file')} that metadata alone does not prove expired")
    if record.previewed_by:
        grid.add_row("previewed", record.previewed_by)
    if record.recorded:
        grid.add_row("id", record.run_id)
    grid.add_row("snapshot", " → ".join(str(snapshot) for snapshot in (record.snapshot_before, *record.snapshots)))
    return grid


def _cell(stored: Mapping[str, Any]) -> str:
    rows = stored["counts"]["rows_dropped"] + stored["counts"]["rows_deleted"]
    return f"{'would lose' if stored['dry_run'] else 'lost'} {counted(rows, 'row')}"


RECORD = RecordText(TtlRecord, (Operation.TTL.value,), ttl_text, ttl_line, _cell)
