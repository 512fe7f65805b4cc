"""`neve orphans`: finds files that no snapshot of a table needs, and puts them into the quarantine."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import TableName, again

LIMIT = 100_000
"""As `compose.orphans` has it; spelled out, since loading that would slow every help. A test compares them."""

OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="TIME", show_default=False, help="Only files of this age; orphan-age unless given."),
]
Place = Annotated[
    str | None,
    typer.Option(
        "--location", metavar="PATH", show_default=False, help="A place of the table to look at; its own unless given."
    ),
]
Inventory = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        metavar="FILE",
        show_default=False,
        help="A list of files to read in place of listing: Parquet or CSV with the columns path, size and modified.",
    ),
]
EqualScheme = Annotated[
    list[str] | None,
    typer.Option("--equal-scheme", metavar="A=B", show_default=False, help="Schemes that mean the same; repeatable."),
]
EqualAuthority = Annotated[
    list[str] | None,
    typer.Option(
        "--equal-authority", metavar="A=B", show_default=False, help="Hosts or buckets that are the same; repeatable."
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The most files that one run records.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which files there are; --json lists them all.")]
WritersMayRun = Annotated[
    bool,
    typer.Option(
        "--i-know-that-writers-may-be-running",
        help="Allows less than 3 days: files of a writer that has not committed yet would be taken for orphans.",
    ),
]
NoOtherTable = Annotated[
    bool,
    typer.Option(
        "--i-know-that-no-other-table-is-here",
        help="Goes on although some table of a configured catalog cannot be read, so that its files are not known, and takes "
        "what is held for versions that are not in the table's history.",
    ),
]
IgnoreTable = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-table",
        metavar="NAME",
        show_default=False,
        help="A table, namespace or catalog that cannot be read and has no files here; repeatable. As orphans.ignore-tables.",
    ),
]
DroppedTable = Annotated[
    list[str] | None,
    typer.Option(
        "--dropped-table",
        metavar="UUID",
        show_default=False,
        help="A table that was dropped and left files here, which nobody needs; repeatable. As orphans.dropped-tables.",
    ),
]


@command
def orphans(
    call: Call,
    table: TableName,
    older_than: OlderThan = None,
    location: Place = None,
    inventory: Inventory = None,
    equal_scheme: EqualScheme = None,
    equal_authority: EqualAuthority = None,
    limit: Limit = LIMIT,
    dry_run: DryRun = False,
    writers_may_be_running: WritersMayRun = False,
    no_other_table_is_here: NoOtherTable = False,
    ignore_table: IgnoreTable = None,
    dropped_table: DroppedTable = None,
) -> None:
    """Find files that no snapshot needs, and put them into the quarantine.

    Nothing is moved or deleted by this: the quarantine looks again after its grace time. Whatever makes it doubtful whose files
    are there ends the search, with nothing recorded.
    """
    from neve.compose.orphans import OrphansAsked

    asked = OrphansAsked(
        older_than=older_than,
        location=location,
        inventory=inventory,
        equal_schemes=equal_scheme or (),
        equal_authorities=equal_authority or (),
        limit=limit,
        dry_run=dry_run,
        writers_may_be_running=writers_may_be_running,
        no_other_table_is_here=no_other_table_is_here,
        ignore_tables=ignore_table or (),
        dropped_tables=dropped_table or (),
    )
    with call.neve() as neve, call.progress() as progress:
        # Something moves on a terminal while Spark starts.
        progress("orphans", 0, None)
        record = neve.orphans(table, asked, progress=progress)
    step = call.retyped() if dry_run else again(call.shared, "quarantine", "list", record.table)
    call.output.ended(record, next_steps=[] if record.outcome.value == "nothing-to-do" else [step])
