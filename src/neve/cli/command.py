"""Turns a plain function into a command: adds the shared options, sets up logging, reports failures with exit codes.

Used by every command module. The function gets a `Call` and its own arguments, raises NeveError, and knows nothing else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer
from rich.markup import escape

from neve.cli.call import Call
from neve.cli.failures import reported
from neve.cli.logs import configure
from neve.cli.options import KNOBS, TYPED, Shared, shared_parameters
from neve.render.commands import repeating

CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates a function whose first parameter is the call."""

    @functools.wraps(function)
    def run(*, ctx: typer.Context, **values: Any) -> None:
        shared = Shared.take(values).after(ctx.obj or Shared())
        call = Call(shared, ctx.meta.get(KNOBS, {}), ctx.meta.get(TYPED, ()))
        configure(shared.log_level, shared.log_format, debug=shared.debug)
        with repeating(lambda: call.connection), reported(call):
            function(call, **values)

    return _with_signature(run, [CONTEXT, *_own(function), *shared_parameters()])


def _own(function: Callable[..., None]) -> list[inspect.Parameter]:
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]


def _with_signature(run: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def examples(*lines: str) -> str:
    """An epilog that shows how the command is typed, one example per line."""
    return "\n".join(["[bold]Examples[/bold]", *(f"[cyan]$ {escape(line)}[/cyan]" for line in lines)])
