"""`neve quarantine` and `neve restore`: files on their way out of a table: what there is, the second look, the purge, the way
back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.failures import PARTLY_DONE
from neve.cli.next_steps import again
from neve.cli.operation_command import TableName, operation_command
from neve.cli.options import Commands

if TYPE_CHECKING:
    from neve.maintenance.quarantine import QuarantineRecord

app = Commands(
    no_args_is_help=True,
    help="Files that nothing seems to need: recorded first, looked at again after quarantine-grace, then moved to a trash that "
    "gives them back for trash-keep, then purged. Nothing is deleted at once.",
    epilog=examples(
        "neve quarantine list db.events", "neve quarantine settle db.events --dry-run", "neve quarantine purge db.events"
    ),
)


@app.command(name="list", epilog=examples("neve quarantine list db.events", "neve quarantine list db.events --files --json"))
@command
def list_files(
    call: Call,
    table: TableName,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", show_default=False, help="Only files of this run, one by one.")
    ] = None,
    files: Annotated[bool, typer.Option("--files", help="Every file, one by one.")] = False,
) -> None:
    """List what is in the quarantine of a table: which run put how many files there, why, and how far they have come."""
    with call.neve() as neve:
        if files or run is not None:
            call.output.quarantined(neve.quarantined(table, run=run))
        else:
            call.output.quarantine(neve.quarantine(table))


def _show(call: Call, record: QuarantineRecord, options: Mapping[str, Any]) -> None:
    step = call.retyped() if options["dry_run"] else again(call.shared, "quarantine", "list", record.table)
    call.output.ended(record, next_steps=[] if record.outcome.value == "nothing-to-do" else [step])
    if code := {"failed": 1, "partly-done": PARTLY_DONE}.get(record.outcome.value):
        raise typer.Exit(code)


app.command(
    epilog=examples(
        "neve quarantine settle db.events --dry-run",
        "neve quarantine settle db.events",
        "neve quarantine settle db.events --run 3f9c --now",
    )
)(operation_command("settle", _show))
app.command(epilog=examples("neve quarantine purge db.events --dry-run", "neve quarantine purge db.events --limit 5000"))(
    operation_command("purge", _show)
)
restore = operation_command("restore", _show)
