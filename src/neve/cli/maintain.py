"""`neve maintain`: the whole upkeep of a table in the safe order, as far as it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.compact import EXIT_CODES
from neve.cli.requests import TableName, again, names

if TYPE_CHECKING:
    from neve.maintenance.steps import MaintainRecord

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="STEPS", show_default=False, help="Only these steps, with commas between them; repeatable."),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="STEPS", show_default=False, help="Every step but these, such as orphans; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which steps are due, and why; Spark is not started.")]


@command
def maintain(call: Call, table: TableName, only: Only = None, skip: Skip = None, dry_run: DryRun = False) -> None:
    """Do all that a table needs, in the safe order: expire, compact, deletes, manifests, statistics, orphans, trash.

    A step is done only if the policy wants it and the table's condition is a reason for it. No file is deleted that has
    not been in the quarantine and in the trash. Leaves with exit code 0 if all is well, 3 if a step failed, 1 if nothing
    could be done.
    """
    with call.neve() as neve, call.progress() as progress:
        progress("maintain", 0, None)
        record = neve.maintain(table, only=names(only), skip=names(skip), dry_run=dry_run, progress=progress)
    call.output.ended(record, next_steps=_next_steps(call, record))
    if code := EXIT_CODES.get(record.outcome.value, 0):
        raise typer.Exit(code)


def _next_steps(call: Call, record: MaintainRecord) -> list[str]:
    table = record.table
    if record.outcome.value == "nothing-to-do":
        return []
    if record.dry_run and record.outcome.value == "done":
        return [call.retyped()]
    steps = [again(call.shared, "inspect", table)]
    return [*steps, again(call.shared, "quarantine", "list", table)] if record.done else steps
