"""`neve rollback`: takes back what a run committed, as long as nobody has committed since."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command


@command
def rollback(
    call: Call,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or how it begins; `neve runs` lists them.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which snapshot the branch would move to, or why it cannot.")
    ] = False,
) -> None:
    """Move the table back to the snapshot before a run. Refused where commits of others would be lost.

    A compaction changes no row, so this is for its files: their sizes, their order, their encoding. Nothing is deleted.
    """
    with call.neve() as neve, call.progress() as progress:
        progress("rollback", 0, None)
        done = neve.roll_back(run, dry_run=dry_run)
    call.output.rolled_back(done)
