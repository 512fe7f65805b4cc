"""`neve prevent`: table properties that keep files from becoming bad, proposed, set and taken back."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import TableName

Apply = Annotated[bool, typer.Option("--apply", help="Set what is proposed, in one commit.")]
Undo = Annotated[bool, typer.Option("--undo", help="Take back what was set, save what others have changed since.")]


@command
def prevent(call: Call, table: TableName, apply: Apply = False, undo: Undo = False) -> None:
    """Propose table properties by which the next writes make good files, and say what the writer should change.

    Proposed from the table's files and from what its last writes brought. The values from before are kept in the table.
    """
    with call.neve() as neve, call.progress() as progress:
        if apply or undo:
            # Something moves on a terminal while Spark starts.
            progress("prevent", 0, None)
        record = neve.prevent(table, apply=apply, undo=undo, progress=progress)
    step = call.retyped("--undo", without="--apply") if apply else call.retyped("--apply")
    steps = [step] if record.outcome.value == "done" and not undo else []
    call.output.ended(record, next_steps=steps)
