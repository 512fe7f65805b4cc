"""`neve jobs` and `neve hint`: what the service wants to do, does and did; cancelling, pausing, and asking for work.

Goes to the state store alone: no catalog or Spark is needed.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands
from neve.cli.runs import RunsGroup

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neve.service.jobs import Jobs

_OPERATION = Annotated[str | None, typer.Argument(metavar="[OPERATION]", help="Only this operation; all unless given.")]

app = Commands(
    cls=RunsGroup,
    help="Show what `neve serve` wants to do, does and did: a list (list may be left out), or one job in full.",
    epilog=examples("neve jobs", "neve jobs list 'lake.sales.*' --state failed", "neve jobs show 3f9c"),
)


@app.command(name="list", epilog=examples("neve jobs list", "neve jobs list 'lake.*' --state waiting --json"))
@command
def list_jobs(
    call: Call,
    pattern: Annotated[str | None, typer.Argument(metavar="[PATTERN]", help="Only tables whose full name matches.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="waiting, running, done, failed or cancelled; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The newest so many.")] = 20,
) -> None:
    """List jobs, newest first. `neve jobs` alone does the same."""
    from neve.render.jobs import jobs_text

    found = _jobs(call).list(pattern, states=state or (), limit=limit)
    _tell(call, {"jobs": [job.model_dump(mode="json") for job in found]}, jobs_text(found))


@app.command(epilog=examples("neve jobs show 3f9c", "neve jobs show 3f9c --json | jq .job.reason"))
@command
def show(call: Call, job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, or how it begins.")]) -> None:
    """Show one job: why it was wanted, who worked on it, and how it ended."""
    from neve.render.jobs import job_text

    found = _jobs(call).show(job)
    _tell(call, {"job": found.model_dump(mode="json")}, job_text(found))


@app.command(epilog=examples("neve jobs cancel 3f9c"))
@command
def cancel(call: Call, job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, or how it begins.")]) -> None:
    """Cancel a job that waits, or interrupt one that runs. What it has committed stays.

    The service leaves the operation on this table alone for an hour; `neve jobs unpause` ends that.
    """
    from neve.render.jobs import job_text

    found = _jobs(call).cancel(job)
    _tell(call, {"job": found.model_dump(mode="json")}, job_text(found))


@app.command(epilog=examples("neve jobs pause lake.sales.orders compact --for 2d"))
@command
def pause(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table that the service knows.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Such as compact.")],
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, such as 12h.")] = "1d",
) -> None:
    """Keep the service from an operation on a table for a time. Commands typed by hand still work."""
    from neve.render.phrases import moment

    paused = _jobs(call).pause(table, operation, lasting)
    _tell(call, paused._asdict(), f"{operation} on {paused.table} is paused until {moment(paused.until_ms)}.")


@app.command(epilog=examples("neve jobs unpause lake.sales.orders", "neve jobs unpause lake.sales.orders compact"))
@command
def unpause(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table that the service knows.")],
    operation: _OPERATION = None,
) -> None:
    """End pauses on a table, also those after failures, and forget the failures."""
    from neve.table.units import counted

    name, ended = _jobs(call).unpause(table, operation)
    _tell(call, {"table": name, "ended": ended}, f"{counted(ended, 'pause')} of {name} ended.")


@command
def hint(call: Call, table: Annotated[str, typer.Argument(metavar="TABLE", help="A table that the service knows.")]) -> None:
    """Tell the service that a table was just written and wants to be looked at soon.

    Operations whose policy has the trigger `hint` become due.
    """
    name = _jobs(call).hint(table)
    _tell(call, {"table": name}, f"The service will look at {name} in its next round.")


def _jobs(call: Call) -> Jobs:
    import os

    from neve.context.connection import SystemClock
    from neve.service.jobs import Jobs

    settings = call.loaded.settings
    return Jobs(settings.state.database.reveal(os.environ), SystemClock(), call.shared.catalog or settings.default_catalog)


def _tell(call: Call, document: dict[str, Any], text: RenderableType) -> None:
    if call.wants_json:
        sys.stdout.write(json.dumps({"schema_version": 1, **document}) + "\n")
    else:
        call.stdout.print(text)
