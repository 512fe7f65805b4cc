"""The upkeep of a table as rich text: what it came to in one line, then every step with its reason. Called by the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.record import Operation
from neve.maintenance.steps import BAD, RAN, MaintainRecord, StepOutcome, StepRecord
from neve.render.bars import Tidy
from neve.render.phrases import moment, printable, took
from neve.render.record_text import RecordText
from neve.render.run import SHORT_ID, STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted

_STYLES = {
    StepOutcome.DONE: "green",
    StepOutcome.DUE: "green",
    StepOutcome.PARTLY: "yellow",
    StepOutcome.NOT_TRIED: "yellow",
    StepOutcome.FAILED: "red",
}


def maintain_text(record: MaintainRecord) -> RenderableType:
    """The whole page."""
    ended = Text(maintain_line(record), style=STYLES[record.outcome])
    page: list[RenderableType] = [Text(printable(record.table), style="bold"), ended, Text(), Padding(_steps(record), INDENT)]
    if record.run_id is not None and any(step.outcome in RAN for step in record.steps):
        page += [Text(), Padding(_ending(record), INDENT)]
    return Tidy(Stack(*page))


def maintain_line(record: MaintainRecord) -> str:
    """What it came to, in one line."""
    due = sum(step.outcome is StepOutcome.DUE for step in record.steps)
    if record.dry_run and due:
        return f"{counted(due, 'step')} due"
    bad = sum(step.outcome in BAD for step in record.steps)
    in_time = f"in {took(record)}"
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        found = "" if record.dry_run else ", or found anything"
        return f"Nothing to do: no step is due{found}{_next(record)}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed {in_time}: nothing was done, {counted(bad, 'step')} could not be"
    rest = f"; {counted(bad, 'step')} not or not wholly" if bad else ""
    return f"Did {counted(len(record.done), 'step')} {in_time}{rest}{_health(record)}"


def _next(record: MaintainRecord) -> str:
    """The first step that is due by time alone."""
    first = next((rule for rule in record.not_due if rule.due_ms is not None and rule.more is None), None)
    return f"; next is {first.rule}, {first.when_text}" if first is not None else ""


def _health(record: MaintainRecord) -> str:
    if record.health_before is None or record.health_after is None:
        return ""
    return f"; health {record.health_before} → {record.health_after} of 100"


def _steps(record: MaintainRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for step in record.steps:
        style = _STYLES.get(step.outcome, "dim")
        grid.add_row(step.step, Text(step.outcome, style=style), Text(_said(step), style="" if step.told else "dim"))
    return grid


def _said(step: StepRecord) -> str:
    run = f" (run {step.run_id[:SHORT_ID]})" if step.run_id and step.outcome is not StepOutcome.NOTHING else ""
    return printable(f"{(step.told or step.why).removeprefix('Nothing to do: ')}{run}")


def _ending(record: MaintainRecord) -> RenderableType:
    return Text(f"run {record.run_id}, started {moment(record.started_ms)}", style="dim")


def _cell(stored: Mapping[str, Any]) -> str:
    return counted(sum(step["outcome"] in ("done", "partly done") for step in stored["steps"]), "step")


RECORD = RecordText(MaintainRecord, (Operation.MAINTAIN.value,), maintain_text, maintain_line, _cell)
