"""`neve resume`: takes up runs that were interrupted: commits what was written, redoes only what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.compact import exit_code
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.core.journal import JournaledRun


@command
def resume(
    call: Call,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The id of a run, or how it begins; all unless given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also a run whose process seems to be alive on this machine.")] = False,
) -> None:
    """Finish runs that were interrupted. What was written before is committed if it still holds, never done again.

    Leaves with exit code 0 if there was nothing to resume or all is done, 3 if some groups could not be committed, 1 if
    none could.
    """
    from neve.flow.lease import is_alive

    codes = [0]
    with call.neve() as neve:
        chosen = [found for found in neve.unfinished() if found.run_id.startswith(run or "")]
        if run is not None and not chosen:
            raise BadRequestError(f"Cannot resume {run}: no interrupted run begins so", hint="`neve runs` lists all runs.")
        if not chosen:
            call.tell("No run was interrupted.")
        for journalled in chosen:
            if not force and is_alive(journalled.owner):
                call.tell(f"Run {journalled.run_id[:8]} over {journalled.plan.table} is still under way ({journalled.owner}).")
                continue
            call.tell(_headline(journalled))
            with call.progress() as progress:
                record = neve.resume(journalled, progress=progress)
            call.output.run(neve.run(record.run_id))
            codes.append(exit_code(record))
    if worst := max(codes):
        raise typer.Exit(worst)


def _headline(journalled: JournaledRun) -> str:
    written = sum(1 for group in journalled.groups if group.result is not None)
    done = f"{written} of {len(journalled.groups)} groups were written"
    return f"Resuming run {journalled.run_id[:8]} over {journalled.plan.table}: {done}."
