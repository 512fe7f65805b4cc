"""`neve resume`: takes over runs that were interrupted: commits what was written, redoes only what was not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from neve.cli.call import Call
from neve.cli.compact import exit_code
from neve.cli.operation_command import request_command
from neve.commit.failure import Failure
from neve.errors import CommitIncidentError, LeaseHeldError, NeveError, TableGoneError, TableNotFoundError
from neve.operations.requests import ResumeRequest

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.rewrite.journal import JournaledRun

_LEFT_ALONE = (LeaseHeldError, TableNotFoundError, TableGoneError)
"""Reasons to leave a run as it is, unless it was named."""


def _resume(call: Call, options: Mapping[str, Any]) -> None:
    from neve.operations.resume import require_sensible

    request = ResumeRequest(**options)
    require_sensible(request)
    codes, carry_out = [0], _end if request.abandon else _preview if request.dry_run else _finish
    with call.neve() as neve:
        chosen = neve.unfinished(request.run)
        if not chosen:
            call.tell("No run was interrupted.")
        for journalled in chosen:
            try:
                codes.append(carry_out(call, neve, journalled))
            except CommitIncidentError:
                raise  # a person must roll back first: another commit on top would make that impossible
            except Exception as error:  # the other runs do not depend on this one
                if request.run is not None or (len(chosen) == 1 and not isinstance(error, _LEFT_ALONE)):
                    raise
                call.tell(_refusal(journalled, error))
                codes.append(_code(error))
    if worst := max(codes):
        raise typer.Exit(worst)


resume = request_command("resume", _resume)


def _finish(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    neve.require_resumable(journalled)
    call.tell(_headline(journalled))
    with call.progress() as progress:
        record = neve.resume(journalled.run_id, progress=progress)
    call.output.run(neve.run(record.recorded_id))
    return exit_code(record)


def _preview(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    neve.require_resumable(journalled)
    left: Any = neve.resume(journalled.run_id, dry_run=True)
    call.output.remaining(left, next_steps=[call.again("resume", left.run_id[:8])])
    return 0


def _end(call: Call, neve: Neve, journalled: JournaledRun) -> int:
    call.output.run(neve.run(neve.resume(journalled.run_id, abandon=True).recorded_id))
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
