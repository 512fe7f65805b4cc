"""`neve compact`: rewrites what is worth rewriting in one table, proves it, commits it, and tells what it was good for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.failures import PARTLY_DONE
from neve.cli.requests import (
    Branch,
    Force,
    GroupsShown,
    Kernel,
    Partitions,
    ProbeQuery,
    TableName,
    Tier,
    Verify,
    Where,
    again,
    request_of,
)

if TYPE_CHECKING:
    from neve.core.record import RunRecord

EXIT_CODES = {"partly-done": PARTLY_DONE, "failed": 1}
"""By outcome; whatever is not here is a success."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as neve plan does.")]


@command
def compact(
    call: Call,
    table: TableName,
    tier: Tier = None,
    kernel: Kernel = None,
    partition: Partitions = None,
    where: Where = None,
    branch: Branch = "main",
    verify: Verify = "metadata",
    probe_query: ProbeQuery = None,
    force: Force = False,
    dry_run: DryRun = False,
    groups: GroupsShown = 10,
) -> None:
    """Rewrite small files of a table into good ones, on Spark. No row changes, and writers go on writing.

    Every group of files is proved before it is committed. Leaves with exit code 0 if all is done or nothing was worth
    doing, 3 if some groups could not be committed, 1 if none could.
    """
    request = request_of(tier, kernel, partition, where=where, branch=branch, force=force)
    with call.neve() as neve, call.progress() as progress:
        if dry_run:
            planned = neve.plan(table, request=request, progress=progress)
        else:
            # Something moves on a terminal while Spark starts.
            progress("compact", 0, None)
            record = neve.compact(table, request=request, verify=verify, probe_query=probe_query, progress=progress)
    if dry_run:
        call.output.plan(planned, groups=groups)
        return
    call.output.ended(record, next_steps=_next_steps(call, record))
    if code := exit_code(record):
        raise typer.Exit(code)


def exit_code(record: RunRecord) -> int:
    """By outcome; an answer that changed is a failure however well the rest went."""
    if record.probe is not None and record.probe.equal is False:
        return 1
    return EXIT_CODES.get(record.outcome.value, 0)


def _next_steps(call: Call, run: RunRecord) -> list[str]:
    if run.outcome.value == "nothing-to-do":
        return [again(call.shared, "inspect", run.table), again(call.shared, "plan", run.table, "--force")]
    shown = [again(call.shared, "inspect", run.table), again(call.shared, "runs", "show", run.run_id[:8])]
    return shown if run.outcome.value == "done" else [again(call.shared, "compact", run.table), *shown]
