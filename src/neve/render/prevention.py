"""A prevention as rich text: the properties with the reason for each, then what the writer should change. Called by the CLI."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.prevention import PreventionRecord, PropertyChange
from neve.maintenance.record import Operation
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import printable
from neve.render.record_text import RecordText
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted

_UNSET = "not set"


def prevention_text(record: PreventionRecord) -> RenderableType:
    """The whole page."""
    parts: list[RenderableType] = [Text(printable(record.table), style="bold")]
    parts.append(Text(prevention_line(record), style=STYLES[record.outcome]))
    if shown := record.undone or record.proposal.changes:
        parts += [Text(), Padding(_changes(shown), INDENT)]
    left = [f"{key} was changed by others since, and is left" for key in record.left]
    for title, lines in (("Left", left), ("The writer", record.proposal.advice), ("Warning", record.proposal.warnings)):
        if lines:
            parts += [Text(), Text(title, style="bold"), *(Padding(Text(printable(line)), INDENT) for line in lines)]
    return Tidy(Stack(*parts, *not_due_section(record.not_due)))


def prevention_line(record: PreventionRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    if record.proposal.changes:
        what = counted(len(record.proposal.changes), "property", "properties")
        return f"Would set {what}" if record.dry_run else f"Set {what}"
    return f"Took back {counted(len(record.undone), 'property', 'properties')}"


def _changes(changes: Sequence[PropertyChange]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold", style="dim")
    for change in changes:
        values = f"{printable(change.before or _UNSET)} → {printable(change.value or _UNSET)}"
        grid.add_row(Text(change.key), Text(values), Text(printable(change.reason)))
    return grid


RECORD = RecordText(PreventionRecord, (Operation.PREVENT.value,), prevention_text, prevention_line)
