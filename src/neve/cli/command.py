"""Turns a plain function into a command: adds the shared options, sets up logging, reports failures with exit codes.

Used by every command module. The function gets a `Call` and its own arguments, raises NeveError, and knows nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.markup import escape

from neve.cli.call import Call
from neve.cli.failures import reported
from neve.cli.logs import configure
from neve.cli.options import CONTEXT, KNOBS, TYPED, Shared, shared_parameters, with_parameters
from neve.render.commands import repeating

Values = dict[str, Any]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates a function whose first parameter is the call."""
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    return command_of(function.__name__, function.__doc__, own, lambda call, values: function(call, **values))


def command_of(
    name: str,
    text: str | None,
    own: Sequence[inspect.Parameter],
    body: Callable[[Call, Values], None],
    read: Callable[[Values], Values] = lambda values: values,
) -> Callable[..., None]:
    """A command with these parameters and those of every command; its body gets its own as they are `read`, by their names."""

    def run(*, ctx: typer.Context, **values: Any) -> None:
        shared = Shared.take(values).after(ctx.obj or Shared())
        call = Call(shared, ctx.meta.get(KNOBS, {}), ctx.meta.get(TYPED, ()))
        configure(shared.log_level, shared.log_format, debug=shared.debug)
        with repeating(lambda: call.connection), reported(call):
            body(call, read(values))

    run.__name__, run.__doc__ = name, text
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    return with_parameters(run, [CONTEXT, *keywords, *shared_parameters()])


def examples(*lines: str) -> str:
    """An epilog that shows how the command is typed, one example per line."""
    return "\n".join(["[bold]Examples[/bold]", *(f"[cyan]$ {escape(line)}[/cyan]" for line in lines)])
