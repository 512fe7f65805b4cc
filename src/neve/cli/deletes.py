"""`neve deletes`: keeps a table's deletes few and cheap without rewriting data: converts, rewrites and prunes them."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.requests import Branch, TableName, again, on_branch, steps_after

STREAMS = (
    "Readers that stream the table see a snapshot whose operation is `delete`, though no row changed: Spark stops there unless "
    "it reads with streaming-skip-delete-snapshots. (`overwrite` and streaming-skip-overwrite-snapshots where deletes only go.)"
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Keep a table's delete files few and cheap, without rewriting data files. Rows do not change. Appends are never "
    "blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.",
    epilog=examples(
        "neve deletes convert db.events", "neve deletes rewrite db.events --dry-run", "neve deletes prune db.events"
    ),
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


@app.command(
    epilog=examples("neve deletes convert db.events", "neve deletes convert db.events --dry-run --json"),
    help="Turn equality deletes into deletes by position, which cost readers far less: vectors in format version 3.\n\n"
    "An equality delete goes only when every live file that it applies to has been done. For tables that CDC or upserts "
    f"write; cheaper than a compaction. {STREAMS}",
)
@command
def convert(call: Call, table: TableName, branch: Branch = "main", dry_run: DryRun = False) -> None:
    """Turn equality deletes into deletes by position."""
    _run(call, "convert", table, branch=branch, dry_run=dry_run)


@app.command(
    epilog=examples("neve deletes rewrite db.events", "neve deletes rewrite db.events --branch audit"),
    help="Merge deletes by position into one for each data file, and into vectors after an upgrade to format version 3.\n\n"
    f"Equality deletes are left alone; those by position that concern no live file go as well. {STREAMS}",
)
@command
def rewrite(call: Call, table: TableName, branch: Branch = "main", dry_run: DryRun = False) -> None:
    """Merge deletes by position into one for each data file."""
    _run(call, "rewrite", table, branch=branch, dry_run=dry_run)


@app.command(
    epilog=examples("neve deletes prune db.events", "neve deletes prune db.events --dry-run"),
    help="Remove deletes that concern no live file.\n\n"
    "Compactions leave them behind; readers open them for nothing. Nothing is written, and the snapshot says `replace`.",
)
@command
def prune(call: Call, table: TableName, branch: Branch = "main", dry_run: DryRun = False) -> None:
    """Remove deletes that concern no live file."""
    _run(call, "prune", table, branch=branch, dry_run=dry_run)


def _run(call: Call, operation: str, table: str, *, branch: str, dry_run: bool) -> None:
    with call.neve() as neve, call.progress() as progress:
        # Something moves on a terminal while Spark starts.
        progress(operation, 0, None)
        record = neve.deletes(table, operation, branch=branch, dry_run=dry_run, progress=progress)
    inspect = again(call.shared, "inspect", record.table, *on_branch(record.branch))
    call.output.ended(record, next_steps=steps_after(call, record, inspect))
    if record.outcome.value == "failed":
        raise typer.Exit(1)
