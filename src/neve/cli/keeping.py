"""`neve manifests`, `neve stats` and `neve tags`: keep in order what lies around a table's rows. No row is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import TableName, again, names, steps_after

if TYPE_CHECKING:
    from neve.maintenance.record import MaintenanceRecord

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done; Spark is not started.")]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="FIELDS",
        show_default=False,
        help="Partition fields to sort by, those that queries ask for first; all in the order of the spec unless given.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=2, metavar="N", help="The most manifests that this run rewrites.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", metavar="NAMES", show_default=False, help="Only these columns, with commas between them; repeatable."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Also where what is known has not aged yet.")]


@command
def manifests(call: Call, table: TableName, by: By = None, limit: Limit = 10_000, dry_run: DryRun = False) -> None:
    """Rewrite manifests where queries gain by it: fewer of them, sorted by partition. Files, numbers and row ids stay."""
    with call.neve() as neve, call.progress() as progress:
        progress("manifests", 0, None)
        record = neve.manifests(table, by=names(by), limit=limit, dry_run=dry_run, progress=progress)
    _show(call, record)


@command
def stats(call: Call, table: TableName, columns: Columns = None, force: Force = False, dry_run: DryRun = False) -> None:
    """Keep statistics fresh that engines plan joins by: different values of each column, rows and files of each partition."""
    with call.neve() as neve, call.progress() as progress:
        progress("stats", 0, None)
        record = neve.stats(table, columns=names(columns), force=force, dry_run=dry_run, progress=progress)
    _show(call, record)


@command
def tags(call: Call, table: TableName, dry_run: DryRun = False) -> None:
    """Keep tags of ends of days, weeks and months, as auto-tags says. Tags with other names are never touched."""
    with call.neve() as neve, call.progress() as progress:
        progress("tags", 0, None)
        record = neve.tags(table, dry_run=dry_run, progress=progress)
    _show(call, record)


def _show(call: Call, record: MaintenanceRecord) -> None:
    call.output.ended(record, next_steps=steps_after(call, record, again(call.shared, "inspect", record.table)))
    if record.outcome.value == "failed":
        raise typer.Exit(1)
