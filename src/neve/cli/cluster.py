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
    request_of,
)

if TYPE_CHECKING:
    from neve.core.layout import Layout

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
    neve.cluster-by: later runs go on with it, and it needs not be named again. No row changes, and writers go on writing.
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
    steps = [again(call.shared, "inspect", record.table), again(call.shared, "runs", "show", record.run_id[:8])]
    call.output.ended(record, next_steps=steps)
    if code := exit_code(record):
        raise typer.Exit(code)


def layout_of(by: str | None, kind: KindWord | None) -> Layout | None:
    """The layout that was asked for, None for the table's own. Raises BadRequestError for what is none."""
    from neve.compose.rewriting import asked_layout

    return asked_layout(by, kind)
