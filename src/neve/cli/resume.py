"""`neve resume`: takes over runs that were interrupted: commits what was written, redoes only what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.compact import exit_code
from neve.commit.failure import Failure
from neve.errors import BadRequestError, CommitIncidentError, LeaseHeldError, NeveError, TableGoneError, TableNotFoundError

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.rewrite.journal import JournaledRun

_LEFT_ALONE = (LeaseHeldError, TableNotFoundError, TableGoneError)
"""Reasons to leave a run as it is, unless it was named."""


@command
def resume(
    call: Call,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The id of a run, or how it begins; all unless given.")
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="End the run without committing anything of it. Its files are not removed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be committed and what would be rewritten.")
    ] = False,
) -> None:
    """Finish runs that were interrupted. What was written before is committed if it still holds, never done again.

    Groups whose files others have rewritten or removed meanwhile are left out.

    A run is taken over only if its process has certainly ended, or if its heartbeat has: 5 minutes after the last sign of life.
    A run that is at work elsewhere is left alone; naming it is an error. A run whose table is gone is ended with --abandon.

    Leaves with exit code 0 if there was nothing to resume or all is done, 3 if some groups could not be committed, 1 if
    none could.
    """
    if abandon and dry_run:
        raise BadRequestError("Cannot abandon a run in a dry run", hint="Leave --abandon or --dry-run out.")
    if abandon and run is None:
        raise BadRequestError("Cannot abandon every run", hint="Name one: `neve resume RUN --abandon`. `neve runs` lists them.")
    codes, carry_out = [0], _end if abandon else _preview if dry_run else _finish
    with call.neve() as neve:
        chosen = [found for found in neve.unfinished() if found.run_id.startswith(run or "")]
        if run is not None and not chosen:
            raise BadRequestError(f"Cannot resume {run}: no interrupted run begins so", hint="`neve runs` lists all runs.")
        if not chosen:
            call.tell("No run was interrupted.")
        for journalled in chosen:
            try:
                codes.append(carry_out(call, neve, journalled))
            except CommitIncidentError:
                raise  # a person must roll back first: another commit on top would make that impossible
            except Exception as error:  # the other runs do not depend on this one
                if run is not None or (len(chosen) == 1 and not isinstance(error, _LEFT_ALONE)):
                    raise
                call.tell(_refusal(journalled, error))
                codes.append(_code(error))
    if worst := max(codes):
        raise typer.Exit(worst)


def _finish(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    neve.require_resumable(journalled)
    call.tell(_headline(journalled))
    with call.progress() as progress:
        record = neve.resume(journalled, progress=progress)
    call.output.run(neve.run(record.run_id))
    return exit_code(record)


def _preview(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    neve.require_resumable(journalled)
    left = neve.preview_resume(journalled)
    call.output.remaining(left, next_steps=[call.again("resume", left.run_id[:8])])
    return 0


def _end(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    call.output.run(neve.run(neve.abandon(journalled).run_id))
    return 0


def _refusal(journalled: JournaledRun, error: Exception) -> str:
    if isinstance(error, _LEFT_ALONE):
        return f"{error}." if isinstance(error, LeaseHeldError) else f"{error}. {error.hint}"
    return f"Run {journalled.run_id[:8]} over {journalled.plan.table} could not be resumed: {Failure.of(error).reason}"


def _code(error: Exception) -> int:
    if isinstance(error, LeaseHeldError):
        return 0
    return error.exit_code if isinstance(error, NeveError) and not isinstance(error, _LEFT_ALONE) else 1


def _headline(journalled: JournaledRun) -> str:
    written = sum(1 for group in journalled.groups if group.result is not None)
    done = f"{written} of {len(journalled.groups)} groups were written"
    return f"Resuming run {journalled.run_id[:8]} over {journalled.plan.table}: {done}."
