"""`neve ttl`: rows past their time, counted first and removed when that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.compact import EXIT_CODES
from neve.cli.requests import Branch, TableName, again, on_branch

if TYPE_CHECKING:
    from neve.maintenance.ttl import TtlRecord

Keep = Annotated[
    str | None, typer.Option("--keep", metavar="TIME", show_default=False, help="How long rows are kept, the same as --ttl.")
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="NAME", show_default=False, help="The column that tells a row's age, the same as --ttl-column."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", show_default=False, help="How a number or a text tells a time, the same as --ttl-format."
    ),
]
Enforce = Annotated[bool, typer.Option("--enforce", help="Remove the rows; the first time only after a preview.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count, and do not remember it: no preview.")]


@command
def ttl(
    call: Call,
    table: TableName,
    keep: Keep = None,
    column: Column = None,
    format: Format = None,  # noqa: A002 - the option's name
    branch: Branch = "main",
    enforce: Enforce = False,
    dry_run: DryRun = False,
) -> None:
    """Count the rows of a table that are past their time, and with --enforce remove them.

    Files whose rows are all past go by metadata alone, other rows one by one. Nulls stay. Other branches and tags keep
    everything, and no file is deleted. The first enforcement of a limit removes what its preview showed.
    """
    said = {"ttl": keep, "ttl-column": column, "ttl-format": format}
    call = call.with_knobs({key: value for key, value in said.items() if value is not None})
    with call.neve() as neve, call.progress() as progress:
        # Something moves on a terminal while Spark starts.
        progress("ttl", 0, None)
        record = neve.ttl(table, enforce=enforce, dry_run=dry_run, branch=branch, progress=progress)
    call.output.ended(record, next_steps=_next_steps(call, record, enforce=enforce, dry_run=dry_run))
    if code := EXIT_CODES.get(record.outcome.value, 0):
        raise typer.Exit(code)


def _next_steps(call: Call, record: TtlRecord, *, enforce: bool, dry_run: bool) -> list[str]:
    if record.outcome.value == "nothing-to-do":
        return []
    if enforce or record.counts.nothing:
        return [again(call.shared, "inspect", record.table, *on_branch(record.branch))]
    # Only a preview that was remembered can be enforced.
    return [call.retyped() if dry_run else call.retyped("--enforce")]
