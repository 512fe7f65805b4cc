"""`neve config`: the settings in effect with the origin of each, and whether a file is right."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands, KnobCommand

app = Commands(no_args_is_help=True, help="Show and check the settings.")


@app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve config show",
        "neve config show --profile prod --set policy.target-file-size=256MB",
        "neve config show --table db.events",
    ),
)
@command
def show(
    call: Call,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="Include the policies and the properties of this table.")
    ] = None,
) -> None:
    """Print every setting in effect and where it came from. Secrets are never printed.

    A flag beats a variable, that a policy, that a profile, that the file, that a table property, that the default.
    """
    if table is None:
        call.output.settings(tuple(call.loaded.explain({})))
        return
    with call.neve() as neve:
        context = neve.table(table)
        call.output.settings(tuple(context.loaded().explain(context.state.properties)))


@app.command(epilog=examples("neve config validate --config neve.yaml --profile prod"))
@command
def validate(call: Call) -> None:
    """Check settings without using them: exit code 0 if they are right, 2 and a line that says what is wrong if not."""
    where = f"Settings in {call.loaded.file}" if call.loaded.file else "Settings (no file found)"
    call.loaded.policy({})
    call.output.valid(f"{where} are valid.")
