"""`neve jobs` and `neve hint`: what the service wants to do, does and did; cancelling, pausing, and asking for work.

Goes to the state store alone: no catalog or Spark is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands
from neve.cli.runs import RunsGroup
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neve.scheduling.job import Job
    from neve.state import StateStore

_SEARCHED = 10_000
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
    from neve.state.job_reading import JobFilter

    wanted = JobFilter(states=frozenset(map(_state, state or ())), tables=pattern)
    with _existing(call) as store:
        found = store.jobs.jobs(wanted, limit=limit) if store is not None else ()
    _tell(call, {"jobs": [job.model_dump(mode="json") for job in found]}, jobs_text(found))


@app.command(epilog=examples("neve jobs show 3f9c", "neve jobs show 3f9c --json | jq .job.reason"))
@command
def show(call: Call, job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, or how it begins.")]) -> None:
    """Show one job: why it was wanted, who worked on it, and how it ended."""
    from neve.render.jobs import job_text

    with _store(call) as store:
        found = _found(store, job)
    _tell(call, {"job": found.model_dump(mode="json")}, job_text(found))


@app.command(epilog=examples("neve jobs cancel 3f9c"))
@command
def cancel(call: Call, job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, or how it begins.")]) -> None:
    """Cancel a job that waits, or interrupt one that runs. What it has committed stays."""
    from neve.render.jobs import job_text

    with _store(call) as store:
        wanted = _found(store, job)
        found = store.jobs.cancel(wanted.job_id, now_ms=_now_ms()) or wanted
    _tell(call, {"job": found.model_dump(mode="json")}, job_text(found))


@app.command(epilog=examples("neve jobs pause lake.sales.orders compact --for 2d"))
@command
def pause(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Full name of a table that the service knows.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Such as compact.")],
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, such as 12h.")] = "1d",
) -> None:
    """Keep the service from an operation on a table for a time. Commands typed by hand still work."""
    from neve.operations.registry import OPERATIONS
    from neve.render.phrases import moment
    from neve.service.policies import person
    from neve.table.units import parse_seconds

    if operation not in OPERATIONS:
        raise BadRequestError(f"Cannot pause {operation!r}: there are {', '.join(OPERATIONS)}")
    try:
        until_ms = _now_ms() + round(parse_seconds(lasting) * 1000)
    except ValueError as error:
        raise BadRequestError(f"Cannot read --for: {error}", hint="Write it like 12h or '2 days'.") from error
    with _store(call) as store:
        name, uuid = _table(store, table)
        store.pauses.pause(uuid, operation, until_ms=until_ms, table=name, by=person())
    document = {"table": name, "operation": operation, "until_ms": until_ms}
    _tell(call, document, f"{operation} on {name} is paused until {moment(until_ms)}.")


@app.command(epilog=examples("neve jobs unpause lake.sales.orders", "neve jobs unpause lake.sales.orders compact"))
@command
def unpause(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Full name of a table that the service knows.")],
    operation: _OPERATION = None,
) -> None:
    """End pauses on a table, also those after failures, and forget the failures."""
    from neve.table.units import counted

    with _store(call) as store:
        name, uuid = _table(store, table)
        ended = store.pauses.end(uuid, operation)
    _tell(call, {"table": name, "ended": ended}, f"{counted(ended, 'pause')} of {name} ended.")


@command
def hint(
    call: Call, table: Annotated[str, typer.Argument(metavar="TABLE", help="Full name of a table that the service knows.")]
) -> None:
    """Tell the service that a table was just written and wants to be looked at soon.

    Operations whose policy has the trigger `hint` become due.
    """
    with _store(call) as store:
        name, _ = _table(store, table)
        store.fleet.hint(name, _now_ms())
    _tell(call, {"table": name}, f"The service will look at {name} in its next round.")


@contextmanager
def _existing(call: Call) -> Iterator[StateStore | None]:
    import os

    from neve.state import StateStore

    store = StateStore.open_existing(call.loaded.settings.state.database.reveal(os.environ))
    with store or nullcontext() as opened:
        yield opened


@contextmanager
def _store(call: Call) -> Iterator[StateStore]:
    with _existing(call) as store:
        if store is None:
            raise BadRequestError(
                "Cannot find the service's state store: there is none yet", hint="Start it with `neve serve`."
            )
        yield store


def _found(store: StateStore, job_id: str) -> Job:
    from neve.state.job_reading import JobFilter

    exact = store.jobs.job(job_id)
    known = [exact] if exact else store.jobs.jobs(JobFilter(), limit=_SEARCHED)
    found = [job for job in known if job.job_id.startswith(job_id)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadRequestError(f"Cannot find job {job_id!r}: no job's id begins so", hint="`neve jobs` lists them.")
    raise BadRequestError(f"Cannot choose job {job_id!r}: {len(found)} jobs begin so", hint="Write more of the id.")


def _table(store: StateStore, table: str) -> tuple[str, str]:
    """The full name and the uuid of a table of the fleet."""
    entry = store.fleet.entry(table)
    if entry is None or entry.table_uuid is None:
        hint = "Write the full name, with its catalog. `neve serve --once` lets the service see all tables."
        raise BadRequestError(f"Cannot find table {table}: the service has not seen it", hint=hint)
    return entry.table, entry.table_uuid


def _state(word: str) -> Any:
    from neve.scheduling.job import JobState

    named = {"running": JobState.CLAIMED} | {state.value: state for state in JobState if state is not JobState.CLAIMED}
    if word not in named:
        raise BadRequestError(f"Cannot list jobs in state {word!r}: there are {', '.join(sorted(named))}")
    return named[word]


def _tell(call: Call, document: dict[str, Any], text: RenderableType) -> None:
    if call.wants_json:
        sys.stdout.write(json.dumps({"schema_version": 1, **document}) + "\n")
    else:
        call.stdout.print(text)


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
