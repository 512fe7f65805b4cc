"""`neve expire`: takes snapshots out of a table that nobody needs, and writes down which files only they needed."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import TableName, again, steps_after


@command
def expire(
    call: Call,
    table: TableName,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            show_default=False,
            help="A duration such as '7 days', or a moment such as 2025-01-31; the table's own property, else the policy's.",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, metavar="N", show_default=False, help="At least so many snapshots of each branch stay."),
    ] = None,
    snapshot_id: Annotated[
        list[int] | None,
        typer.Option(
            "--snapshot-id", metavar="ID", show_default=False, help="Only this snapshot, whatever its age; repeatable."
        ),
    ] = None,
    metadata_only: Annotated[
        bool, typer.Option("--metadata-only", help="Leave files alone: orphan removal finds them later.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why the rest stays.")] = False,
) -> None:
    """Expire snapshots by age and count. No file is deleted: what only they needed goes to the quarantine.

    Never a head of a branch, a tag, a snapshot that a run was planned from which has not ended, nor one that a streaming
    writer still looks for. Branches keep to their own retention; with gc.enabled=false files are left alone.
    """
    with call.neve() as neve, call.progress() as progress:
        # Something moves on a terminal while Spark starts.
        progress("expire", 0, None)
        record = neve.expire(
            table,
            older_than=older_than,
            keep=keep,
            snapshot_ids=tuple(snapshot_id or ()),
            metadata_only=metadata_only,
            dry_run=dry_run,
            progress=progress,
        )
    call.output.ended(record, next_steps=steps_after(call, record, again(call.shared, "inspect", record.table)))
    if record.outcome.value in ("failed", "partly-done"):
        raise typer.Exit(1 if record.outcome.value == "failed" else 3)
