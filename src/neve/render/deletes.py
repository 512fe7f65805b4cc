"""An upkeep of deletes as rich text: what was done, or would be, in one line, then the facts. Called by the CLI's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, headed, moment, printable, took
from neve.render.record_text import RecordText, arrow
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted

_DID = {Upkeep.CONVERT: "converted", Upkeep.REWRITE: "rewrote", Upkeep.PRUNE: "pruned"}


def upkeep_text(record: UpkeepRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(headed(record.table, record.branch), style="bold"), Text(upkeep_line(record), style=STYLES[record.outcome])]
    if record.outcome is not RunOutcome.DONE:
        return Tidy(Stack(*lines, *not_due_section(record.not_due)))
    return Tidy(Stack(*lines, Text(), Padding(_facts(record), INDENT)))


def upkeep_line(record: UpkeepRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {took(record)}: {printable(record.reason or '')}"
    converts = record.operation is Upkeep.CONVERT
    number = record.equality_removed if converts else record.deletes_removed
    what = counted(number, "equality delete" if converts else "delete")
    at_most = "at most " if record.dry_run else ""
    into = f" into {at_most}{counted(record.data_files, 'delete')} by position" if record.operation is not Upkeep.PRUNE else ""
    if record.dry_run:
        return f"Would {record.operation} {what}{into}"
    return f"{_DID[record.operation].capitalize()} {what}{into} in {took(record)}"


def _facts(record: UpkeepRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    at_most = "at most " if record.dry_run else ""
    grid.add_row("deletes", f"{count(record.deletes_before)} → {at_most}{count(record.deletes_after)}")
    left = record.equality_before - record.equality_removed
    grid.add_row("by equality", f"{count(record.equality_before)} → {count(left)}")
    if record.left_alone:
        grid.add_row("left alone", printable(record.left_alone))
    if record.dry_run:
        return grid
    if record.rows:
        grid.add_row("rows", f"{count(record.rows)} deleted by the new ones")
    grid.add_row("id", record.run_id)
    grid.add_row("started", moment(record.started_ms))
    grid.add_row("snapshot", " → ".join(str(snapshot) for snapshot in (record.snapshot_before, *record.snapshots)))
    return grid


def _cell(stored: Mapping[str, Any]) -> str:
    before = stored["deletes_before"]
    return arrow(before, before + stored["data_files"] - stored["deletes_removed"], "delete")


RECORD = RecordText(UpkeepRecord, ("deletes",), upkeep_text, upkeep_line, _cell)
