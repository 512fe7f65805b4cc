"""`neve tables`: the names of the tables that there are, one per line."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command


@command
def tables(
    call: Call,
    namespace: Annotated[str | None, typer.Argument(metavar="[NAMESPACE]", help="Only this namespace.")] = None,
) -> None:
    """List tables, one full name per line."""
    with call.neve() as neve:
        call.output.tables(neve.tables(namespace))
