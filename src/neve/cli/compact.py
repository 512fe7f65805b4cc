"""`neve compact`: rewrites what is worth rewriting in one table, proves it, commits it, and tells what it was good for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.failures import PARTLY_DONE
from neve.cli.requests import (
    Branch,
    ExpireSnapshots,
    Force,
    GroupsShown,
    Kernel,
    Partitions,
    ProbeQuery,
    SnapshotRetentionHours,
    TableName,
    Tier,
    Verify,
    Where,
    again,
    on_branch,
    refuse_expiry_in_dry_run,
    request_of,
)

if TYPE_CHECKING:
    from neve.rewrite.record import RunRecord

EXIT_CODES = {"partly-done": PARTLY_DONE, "failed": 1}
"""By outcome; whatever is not here is a success."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as `neve plan` does.")]


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
    expire_snapshots: ExpireSnapshots = False,
    snapshot_retention_hours: SnapshotRetentionHours = None,
    dry_run: DryRun = False,
    groups: GroupsShown = 10,
) -> None:
    """Compact small files into files of the target size, on Spark. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    Every group of files is proved before it is committed. Exits 0 when everything succeeded or nothing needed compaction, 3
    when some groups could not be committed, 1 when none could.
    """
    request = request_of(tier, kernel, partition, where=where, branch=branch, force=force)
    if dry_run:
        refuse_expiry_in_dry_run(table, expire_snapshots=expire_snapshots, hours=snapshot_retention_hours)
    with call.neve() as neve, call.progress() as progress:
        if dry_run:
            planned = neve.plan(table, request=request, progress=progress)
        else:
            # Something moves on a terminal while Spark starts.
            progress("compact", 0, None)
            record = neve.compact(
                table,
                request=request,
                verify=verify,
                probe_query=probe_query,
                expire_snapshots=expire_snapshots,
                snapshot_retention_hours=snapshot_retention_hours,
                progress=progress,
            )
    if dry_run:
        call.output.plan(planned, groups=groups)
        return
    call.output.ended(record, next_steps=_next_steps(call, record, force=force))
    if code := exit_code(record):
        raise typer.Exit(code)


def exit_code(record: RunRecord) -> int:
    """By outcome. An answer that changed is a failure however well the rest went; a failed expiry makes it partly done."""
    if record.probe is not None and record.probe.equal is False:
        return 1
    partly = PARTLY_DONE if record.expiry is not None and record.expiry.outcome.value in EXIT_CODES else 0
    return EXIT_CODES.get(record.outcome.value, partly)


def _next_steps(call: Call, run: RunRecord, *, force: bool) -> list[str]:
    branch = on_branch(run.branch)
    inspect = again(call.shared, "inspect", run.table, *branch)
    if run.outcome.value == "nothing-to-do":
        # Who has forced it was told what a forced plan says.
        return [inspect] if force else [inspect, again(call.shared, "plan", run.table, "--force", *branch)]
    shown = [inspect, again(call.shared, "runs", "show", run.run_id[:8])]
    return shown if run.outcome.value == "done" else [call.retyped(), *shown]
