"""`neve cluster`: brings rows with the same values into the same files; the layout is kept in the table for later runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.compact import DryRun, exit_code
from neve.cli.requests import (
    Branch,
    GroupsShown,
    KindWord,
    Partitions,
    ProbeQuery,
    TableName,
    Verify,
    Where,
    again,
    on_branch,
    request_of,
)

if TYPE_CHECKING:
    from neve.rewrite.record import RunRecord
    from neve.table.layout import Layout

By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="COLUMNS",
        show_default=False,
        help='The columns that queries look for, such as "city, amount", the most important first; as before unless given.',
    ),
]
Kind = Annotated[
    KindWord | None,
    typer.Option(
        "--kind", show_default=False, help="How rows are ordered; sort for one column, hilbert for several, unless given."
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Every file, not only those that overlap most.")]


@command
def cluster(
    call: Call,
    table: TableName,
    by: By = None,
    kind: Kind = None,
    full: Full = False,
    partition: Partitions = None,
    where: Where = None,
    branch: Branch = "main",
    verify: Verify = "metadata",
    probe_query: ProbeQuery = None,
    dry_run: DryRun = False,
    groups: GroupsShown = 10,
) -> None:
    """Bring rows with the same values of some columns into the same files, so that selective queries read few of them.

    Rewrites only files that overlap most, and nothing once the table is in order. The layout is kept in the table property
    neve.cluster-by: later runs go on with it, and it needs not be named again. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.
    """
    request = request_of("full" if full else None, None, partition, where=where, branch=branch, force=False)
    with call.neve() as neve, call.progress() as progress:
        if dry_run:
            planned = neve.cluster_plan(table, by, kind=kind, request=request, progress=progress)
        else:
            # Something moves on a terminal while Spark starts.
            progress("cluster", 0, None)
            record = neve.cluster(
                table, by, kind=kind, request=request, verify=verify, probe_query=probe_query, progress=progress
            )
    if dry_run:
        call.output.plan(planned, groups=groups)
        return
    call.output.ended(record, next_steps=_next_steps(call, record))
    if code := exit_code(record):
        raise typer.Exit(code)


def _next_steps(call: Call, record: RunRecord) -> list[str]:
    """A run without work is not stored, so that it cannot be shown."""
    branch = on_branch(record.branch)
    inspect = again(call.shared, "inspect", record.table, *branch)
    if record.outcome.value == "nothing-to-do":
        return [inspect, again(call.shared, "cluster", record.table, "--full", "--dry-run", *branch)]
    return [inspect, again(call.shared, "runs", "show", record.run_id[:8])]


def layout_of(by: str | None, kind: KindWord | None) -> Layout | None:
    """The layout that was asked for, None for the table's own. Raises BadRequestError for what is none."""
    from neve.operations.cluster import asked_layout

    return asked_layout(by, kind)
