"""An expiry of snapshots as rich text: what went, or would, in one line, then why the rest stays, and by which settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.record import Operation
from neve.maintenance.retention import kept_text
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, moment, printable, sized_files, took
from neve.render.record_text import RecordText, arrow
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted

_FILES_SHOWN = 10


def expiry_text(record: ExpiryRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(printable(record.table), style="bold"), Text(expiry_line(record), style=STYLES[record.outcome])]
    if record.outcome is RunOutcome.FAILED:
        return Tidy(Stack(*lines))
    return Tidy(Stack(*lines, Text(), Padding(_facts(record), INDENT), *not_due_section(record.not_due)))


def expiry_line(record: ExpiryRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {took(record)}: {printable(record.reason or '')}"
    what = counted(len(record.expired), "snapshot") + _and_refs(record)
    if record.dry_run:
        return f"Would expire {what}{_and_files(record, 'would no longer be needed')}"
    reason = f", but {printable(record.reason)}" if record.reason else ""
    return f"Expired {what} in {took(record)}{reason}{_and_files(record, 'are no longer needed')}"


def _and_files(record: ExpiryRecord, what: str) -> str:
    return f"; {_files(record)} {what}" if record.files else ""


def _files(record: ExpiryRecord) -> str:
    return sized_files(sum(record.files.values()), record.size_bytes, record.files_without_size)


def _and_refs(record: ExpiryRecord) -> str:
    names = ", ".join(printable(name) for name in record.refs_removed)
    return f" and {names}" if names else ""


def _facts(record: ExpiryRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("snapshots", f"{count(record.snapshots_before)} → {count(record.snapshots_after)}")
    if record.kept:
        grid.add_row("kept", kept_text(record.kept))
    for setting in record.settings:
        if setting.origin != "default" or setting.key in ("snapshot-keep", "snapshot-min-count"):
            grid.add_row(setting.key, f"{printable(setting.value)} ({printable(setting.origin)})")
    _add_files(grid, record)
    if record.outcome is not RunOutcome.NOTHING_TO_DO and not record.dry_run:
        grid.add_row("id", record.run_id)
        grid.add_row("started", moment(record.started_ms))
    return grid


def _add_files(grid: Table, record: ExpiryRecord) -> None:
    if record.metadata_only:
        grid.add_row("files", f"left alone: {printable(record.metadata_only)}")
        return
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return
    total = sum(record.files.values())
    if record.dry_run:
        grid.add_row("files", f"{_files(record)} would go to the quarantine")
    else:
        grid.add_row("files", f"{_files(record)} recorded, {count(record.recorded)} of them new; none deleted yet")
    for reason, number in sorted(record.files.items(), key=lambda item: -item[1]):
        grid.add_row("", f"{printable(reason)}: {count(number)}")
    for path in record.listed[:_FILES_SHOWN]:
        grid.add_row("", printable(path))
    if len(record.listed) > _FILES_SHOWN:
        grid.add_row("", f"and {count(total - _FILES_SHOWN)} more (--json lists them)")


def _cell(stored: Mapping[str, Any]) -> str:
    return arrow(stored["snapshots_before"], stored["snapshots_before"] - len(stored["expired"]), "snapshot")


RECORD = RecordText(ExpiryRecord, (Operation.EXPIRE.value,), expiry_text, expiry_line, _cell)
