"""A search for orphans as rich text: what was found in one line, then the numbers. Called by the CLI's output."""

from __future__ import annotations

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.orphans import OrphanRecord, Verdict
from neve.maintenance.record import Operation
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, moment, printable, took
from neve.render.record_text import RecordText
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted, exact_seconds, format_bytes

FILES_SHOWN = 20
_NUMBERS = (
    ("in use", Verdict.IN_USE),
    ("orphans", Verdict.ORPHAN),
    ("metadata of dropped tables", Verdict.DROPPED),
    ("held", Verdict.HELD),
    ("of other tables", Verdict.SHARED),
    ("too young", Verdict.FRESH),
    ("of unfinished runs", Verdict.RUNNING),
    ("never taken", Verdict.PROTECTED),
)


def orphans_text(record: OrphanRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(printable(record.table), style="bold"), Text(orphans_line(record), style=STYLES[record.outcome])]
    lines += [Text(printable(warning), style="yellow", overflow="fold") for warning in record.warnings]
    files = [Text(), *_files(record)] if record.files else []
    return Tidy(Stack(*lines, Text(), Padding(_facts(record), INDENT), *files, *not_due_section(record.not_due)))


def orphans_line(record: OrphanRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    more = ", as many as one run may take" if record.limited else ""
    waiting = f"; {_waiting(record)}" if record.already_recorded else ""
    if record.dry_run:
        return f"Would record {counted(record.taken, 'orphan')}{more}{waiting}"
    return f"Recorded {counted(record.taken, 'orphan')} in {took(record)}{more}; no file was moved{waiting}"


def _waiting(record: OrphanRecord) -> str:
    """How many orphans an earlier run recorded. A run that stopped at its limit has not seen all of them."""
    least = "at least " if record.limited else ""
    are = "is" if record.already_recorded == 1 else "are"
    return f"{least}{count(record.already_recorded)} {are} in the quarantine already"


def _facts(record: OrphanRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("location", Text(printable(record.location)))
    grid.add_row("older than", exact_seconds(record.older_than_seconds))
    grid.add_row("listed", counted(record.listed, "file"))
    for words, verdict in _NUMBERS:
        if number := record.orphans if verdict is Verdict.ORPHAN else record.verdicts.get(verdict, 0):
            size = f" ({format_bytes(record.orphan_bytes)})" if verdict is Verdict.ORPHAN else ""
            grid.add_row(words, f"{count(number)}{size}")
            if verdict is Verdict.ORPHAN and record.already_recorded:
                grid.add_row("  in the quarantine", f"{'at least ' if record.limited else ''}{count(record.already_recorded)}")
    if not record.dry_run:
        grid.add_row("id", record.run_id)
        grid.add_row("started", moment(record.started_ms))
    return grid


def _files(record: OrphanRecord) -> list[Text]:
    shown = [Text(f"  {printable(file.path)}", overflow="fold") for file in record.files[:FILES_SHOWN]]
    rest = len(record.files) - len(shown)
    return [*shown, Text(f"  and {rest:,} more; --json lists them all", style="dim")] if rest else shown


RECORD = RecordText(
    OrphanRecord, (Operation.ORPHANS.value,), orphans_text, orphans_line, lambda stored: counted(stored["taken"], "orphan")
)
