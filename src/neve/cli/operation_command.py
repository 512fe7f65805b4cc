"""Commands of registered operations: options, defaults and help are those of the operation's request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import TableName, names
from neve.operations.registry import OPERATIONS

Ending = Callable[[Call, Any, Mapping[str, Any]], None]
"""Shows the record of an operation that was given these options, with what to type next, and sets the exit code."""
Extra = Mapping[str, tuple[Any, Any]]
"""Options of the command alone: annotation and default, by name."""


def operation_command(
    name: str,
    ended: Ending,
    *,
    fixed: Mapping[str, Any] | None = None,
    is_slow: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    extra: Extra | None = None,
    adjusted: Callable[[Call, dict[str, Any]], Call] = lambda call, _: call,
) -> Callable[..., None]:
    """The command of an operation.

    `fixed` are options that the command does not offer, since its name says them. `is_slow` tells whether Spark is started.
    `extra` are options besides those of the request, which `adjusted` takes out.
    """
    request = OPERATIONS[name].request
    offered = [one for one in fields(request) if one.name not in (fixed or {})]

    def run(call: Call, table: str, **typed: Any) -> None:
        call = adjusted(call, typed)
        options = {**(fixed or {}), **{one.name: _value(one, typed[one.name]) for one in offered}}
        with call.neve() as neve, call.progress() as progress:
            if is_slow(options):  # something moves on a terminal while Spark starts
                progress(str((fixed or {}).get("operation", name)), 0, None)
            record = getattr(neve, name)(table, **options, progress=progress)
        ended(call, record, options)

    run.__name__, run.__doc__ = str((fixed or {}).get("operation", name)), request.__doc__
    own = [_parameter(key, annotation, default) for key, (annotation, default) in (extra or {}).items()]
    hints = get_type_hints(request)
    own += [_parameter(one.name, _annotation(one, hints[one.name]), _default(one)) for one in offered]
    first = [inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD), _parameter("table", TableName)]
    run.__signature__ = inspect.Signature([*first, *own])  # type: ignore[attr-defined]
    return command(run)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_list(one: Field[Any]) -> bool:
    return isinstance(one.default, tuple)


def _default(one: Field[Any]) -> Any:
    """That of the request, unless the command line has its own; Typer knows an empty list as None."""
    typed = one.metadata["option"].typed_default
    return None if _is_list(one) else one.default if typed is None else typed


def _annotation(one: Field[Any], hint: Any) -> Any:
    option, default = one.metadata["option"], _default(one)
    kind: Any = str | None if hint == (str | float | None) else hint
    if _is_list(one):
        kind = list[get_args(hint)[0]] | None  # type: ignore[misc]
    elif default is not None and hint == (int | None):
        kind = int
    flag = option.flag or f"--{one.name.replace('_', '-')}"
    how = {"metavar": option.metavar, "min": option.minimum, "help": option.help, "show_default": default is not None}
    return Annotated[kind, typer.Option(flag, **{key: value for key, value in how.items() if value is not None})]


def _value(one: Field[Any], typed: Any) -> Any:
    if not _is_list(one):
        return typed
    return tuple(names(typed) if one.metadata["option"].commas else typed or ())
