"""`neve runs`: what was done, from the state store: a list, and one run in full."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import CommandGroup, Commands

LIST = "list"


class RunsGroup(CommandGroup):
    """Lets `neve runs [TABLE]` stand for `neve runs list [TABLE]`, and options stand before the command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the command first, the list unless another is named."""
        if not {"-h", "--help"} & set(args[:1]):
            named = next((arg for arg in args if arg in self.commands), LIST)
            rest = list(args)
            if named in rest:
                rest.remove(named)
            args = [named, *rest]
        return super().parse_args(ctx, args)


app = Commands(
    cls=RunsGroup,
    help="Show what was done, to which table, and how it ended: a list (list may be left out), or one run in full.",
    epilog=examples("neve runs", "neve runs list db.events", "neve runs show 3f9c"),
)


@app.command(name=LIST, epilog=examples("neve runs list", "neve runs list db.events --limit 20 --json"))
@command
def list_runs(
    call: Call,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only runs over this table.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The newest so many.")] = 20,
) -> None:
    """List runs, newest first. `neve runs` alone does the same."""
    with call.neve() as neve:
        rows = neve.runs(table, limit=limit)
    call.output.runs(rows)


@app.command(epilog=examples("neve runs show 3f9c", "neve runs show 3f9c --json | jq .run.groups"))
@command
def show(
    call: Call,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or how it begins.")],
) -> None:
    """Show one run: how it ended, what did the work, what did not land and why."""
    with call.neve() as neve:
        row = neve.run(run)
    call.output.run(row)
