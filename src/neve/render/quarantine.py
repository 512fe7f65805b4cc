"""The quarantine as rich text: what is in it, and what a second look, a purge or a restore came to. Called by the CLI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.quarantine import Quarantined, QuarantinedRun, QuarantineRecord
from neve.maintenance.record import Operation
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, moment, printable, size_of_files, sized_files, took
from neve.render.record_text import RecordText
from neve.render.run import SHORT_ID, STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted

SHOWN = 20
"""Files that the text of a dry run lists; JSON has them all."""
_DID = {
    Operation.SETTLE: ("Moved", "Would move", "to the trash"),
    Operation.PURGE: ("Purged", "Would purge", "for good"),
}


def quarantine_text(rows: Sequence[QuarantinedRun]) -> RenderableType:
    """One line for each run, reason and fate."""
    if not rows:
        return Text("Nothing is in the quarantine.")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("run", "recorded (UTC)", "fate"):
        table.add_column(name, no_wrap=True)
    for name in ("files", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in rows:
        numbers = (count(row.files), size_of_files(row.files, row.size_bytes, row.files_without_size))
        table.add_row(row.run_id[:SHORT_ID], moment(row.recorded_ms)[:16], row.fate, *numbers, Text(printable(row.reason)))
    return Tidy(table)


def quarantined_lines(files: Iterable[Quarantined]) -> Iterable[str]:
    """One line for each file, for pipes."""
    return (f"{file.fate:<8}  {file.run_id[:SHORT_ID]}  {printable(file.path)}" for file in files)


def record_text(record: QuarantineRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(printable(record.table), style="bold"), Text(record_line(record), style=STYLES[record.outcome])]
    lines += [
        Text(f"{counted(files, 'file')} recorded for {printable(other)}, which has the same uuid: left for that table")
        for other, files in record.elsewhere.items()
    ]
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return Tidy(Stack(*lines, *not_due_section(record.not_due)))
    lines += [Text(), Padding(_facts(record), INDENT)]  # type: ignore[list-item]
    return Tidy(Stack(*lines, *_changes(record)))


def record_line(record: QuarantineRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {took(record)}: {printable(record.reason or '')}"
    if record.operation is Operation.RESTORE:
        return _restored(record)
    did, would, where = _DID[record.operation]
    what = f"{sized_files(record.files, record.size_bytes, record.files_without_size)} {where}"
    return f"{would} {what}" if record.dry_run else f"{did} {what} in {took(record)}"


def _restored(record: QuarantineRecord) -> str:
    """What a restore put back, apart from files that were only recorded and had not left their place."""
    files, moved = sized_files(record.files, record.size_bytes, record.files_without_size), record.files - record.not_moved
    time = "" if record.dry_run else f" in {took(record)}"
    did = "Would restore" if record.dry_run else "Restored"
    if not record.not_moved:
        return f"{did} {files} to where {'it was' if record.files == 1 else 'they were'}{time}"
    if moved:
        return f"{did} {files}{time}: {count(moved)} from the trash, {count(record.not_moved)} still in place"
    taken, were = "Would take" if record.dry_run else "Took", "it was" if record.files == 1 else "they were"
    return f"{taken} {files} out of the quarantine{time}: {were} still in place"


def _facts(record: QuarantineRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    told = {
        "needed": (record.needed, "the table needs them: in their place"),
        "rewritten": (record.rewritten, "written again since they were recorded: in their place"),
        "missing": (record.missing, "neither in their place nor in the trash"),
        "purged": (record.purged, "gone for good before"),
        "failed": (record.failed, "as they were"),
    }
    for name, (number, words) in told.items():
        if number:
            grid.add_row(name, f"{count(number)}, {words}")
    if record.note:
        grid.add_row("note", printable(record.note))
    for failure in record.failures:
        grid.add_row("", Text(printable(failure), style="red"))
    if record.more:
        grid.add_row("more", "is due; the limit of files was reached")
    if record.runs:
        grid.add_row("of runs", ", ".join(run[:SHORT_ID] for run in record.runs))
    if record.run_id is not None and not record.dry_run:
        grid.add_row("id", record.run_id)
    grid.add_row("started", moment(record.started_ms))
    return grid


def _changes(record: QuarantineRecord) -> list[RenderableType]:
    if not record.changes:
        return []
    lines = [Text(f"{change.step}: {printable(change.path)}", overflow="fold") for change in record.changes[:SHOWN]]
    hidden = len(record.changes) - SHOWN
    rest = [Text(f"and {counted(hidden, 'file')} more; --json lists all", style="dim")] if hidden > 0 else []
    return [Text(), *(Padding(line, INDENT) for line in (*lines, *rest))]


def _cell(stored: Mapping[str, Any]) -> str:
    return f"{stored['operation']} {counted(stored['files'], 'file')}"


RECORD = RecordText(QuarantineRecord, ("quarantine",), record_text, record_line, _cell)
