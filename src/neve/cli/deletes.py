"""`neve deletes`: keeps a table's deletes few and cheap without rewriting data: converts, rewrites and prunes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from neve.cli.call import Call
from neve.cli.command import examples
from neve.cli.next_steps import again, on_branch, steps_after
from neve.cli.operation_command import operation_command
from neve.cli.options import Commands

if TYPE_CHECKING:
    from neve.maintenance.delete_files import UpkeepRecord

STREAMS = (
    "Readers that stream the table see a snapshot whose operation is `delete`, though no row changed: Spark stops there unless "
    "it reads with streaming-skip-delete-snapshots. (`overwrite` and streaming-skip-overwrite-snapshots where deletes only go.)"
)

app = Commands(
    no_args_is_help=True,
    help="Keep a table's delete files few and cheap, without rewriting data files. Rows do not change. Appends are never "
    "blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.",
    epilog=examples(
        "neve deletes convert db.events", "neve deletes rewrite db.events --dry-run", "neve deletes prune db.events"
    ),
)


def _show(call: Call, record: UpkeepRecord, _: Mapping[str, Any]) -> None:
    inspect = again(call.shared, "inspect", record.table, *on_branch(record.branch))
    call.output.ended(record, next_steps=steps_after(call, record, inspect))
    if record.outcome.value == "failed":
        raise typer.Exit(1)


app.command(
    epilog=examples("neve deletes convert db.events", "neve deletes convert db.events --dry-run --json"),
    help="Turn equality deletes into deletes by position, which cost readers far less: vectors in format version 3.\n\n"
    "An equality delete goes only when every live file that it applies to has been done. For tables that CDC or upserts "
    f"write; cheaper than a compaction. {STREAMS}",
)(operation_command("deletes", _show, title="convert", fixed={"operation": "convert"}))


app.command(
    epilog=examples("neve deletes rewrite db.events", "neve deletes rewrite db.events --branch audit"),
    help="Merge deletes by position into one for each data file, and into vectors after an upgrade to format version 3.\n\n"
    f"Equality deletes are left alone; those by position that concern no live file go as well. {STREAMS}",
)(operation_command("deletes", _show, title="rewrite", fixed={"operation": "rewrite"}))


app.command(
    epilog=examples("neve deletes prune db.events", "neve deletes prune db.events --dry-run"),
    help="Remove deletes that concern no live file.\n\n"
    "Compactions leave them behind; readers open them for nothing. Nothing is written, and the snapshot says `replace`.",
)(operation_command("deletes", _show, title="prune", fixed={"operation": "prune"}))
