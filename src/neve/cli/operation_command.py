"""Commands of registered operations: options, defaults and help are those of the operation's request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from neve.cli.call import Call
from neve.cli.command import command_of
from neve.cli.next_steps import names
from neve.operations.registry import OPERATIONS

TableName = Annotated[str, typer.Argument(metavar="TABLE", help=r"\[catalog.]namespace.table, such as db.events.")]
Ending = Callable[[Call, Any, Mapping[str, Any]], None]
"""Shows the record of an operation that was given these options, with what to type next, and sets the exit code."""
Extra = Mapping[str, tuple[Any, Any]]
"""Options of the command alone: annotation and default, by name."""


def operation_command(
    name: str,
    ended: Ending,
    *,
    title: str | None = None,
    help: str | None = None,  # noqa: A002 - what Typer calls it
    offered: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    extra: Extra | None = None,
    is_slow: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    adjusted: Callable[[Call, dict[str, Any]], Call] = lambda call, _: call,
) -> Callable[..., None]:
    """The command of an operation, called as the operation is unless it has a `title`.

    `fixed` are options that the command does not offer, since its name says them. `is_slow` tells whether Spark is started.
    `offered` and `extra` are as for `request_command`; `adjusted` takes extra options out that mean something to the call.
    """
    operation = OPERATIONS[name]
    title, taken = title or name, {one.name for one in fields(operation.request)}
    table = {} if operation.of_run else {"table": (TableName, MISSING)}
    first = "run" if operation.of_run else "table"

    def body(call: Call, options: dict[str, Any]) -> None:
        call, options = adjusted(call, options), {**(fixed or {}), **options}
        wanted = {key: value for key, value in options.items() if key in taken and key != first}
        with call.neve() as neve, call.progress() as progress:
            if is_slow(options):  # something moves on a terminal from the beginning
                progress(title, 0, None)
            record = getattr(neve, name)(options[first], **wanted, progress=progress)
        ended(call, record, options)

    left_out = (fixed or {}).keys()
    offered = offered or [*table, *(key for key in extra or {} if key not in taken), *_typed(operation.request, left_out)]
    return request_command(name, body, title=title, help=help, offered=offered, extra={**table, **(extra or {})})


def request_command(
    name: str,
    body: Callable[[Call, dict[str, Any]], None],
    *,
    title: str | None = None,
    help: str | None = None,  # noqa: A002 - what Typer calls it
    offered: Sequence[str] | None = None,
    extra: Extra | None = None,
) -> Callable[..., None]:
    """A command with options of an operation's request, whose body gets them by their names.

    `offered` are its options in their order, all of the request unless given. Those in `extra` are the command's own.
    """
    request, extra = OPERATIONS[name].request, extra or {}
    known, hints = {one.name: one for one in fields(request)}, get_type_hints(request)
    offered = offered or _typed(request)

    own = [extra[key] if key in extra else (_annotation(known[key], hints[key]), _default(known[key])) for key in offered]
    options = [_parameter(key, *how) for key, how in zip(offered, own, strict=True)]

    def read(typed: dict[str, Any]) -> dict[str, Any]:
        return {key: value if key in extra else _value(known[key], value) for key, value in typed.items()}

    return command_of(title or name, help or request.__doc__, options, body, read)


def _typed(request: type[Any], without: Any = ()) -> list[str]:
    """The options of a request that the command line offers."""
    return [one.name for one in fields(request) if one.name not in without and one.metadata["option"].is_typed]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    empty = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=empty, annotation=annotation)


def _is_list(one: Field[Any]) -> bool:
    return isinstance(one.default, tuple)


def _default(one: Field[Any]) -> Any:
    """That of the request, unless the command line has its own; Typer knows an empty list as None."""
    typed = one.metadata["option"].typed_default
    return None if _is_list(one) else one.default if typed is None else typed


def _annotation(one: Field[Any], hint: Any) -> Any:
    option, default = one.metadata["option"], _default(one)
    kind: Any = option.typed_as or hint
    if _is_list(one):
        kind = list[get_args(hint)[0]] | None  # type: ignore[misc]
    elif option.choices:
        kind = Literal[option.choices] if default is not None else Literal[option.choices] | None
    how = {"metavar": option.metavar, "help": option.help}
    if option.is_argument:
        return Annotated[kind, typer.Argument(**how)]
    how |= {"min": option.minimum, "show_default": default is not None}
    flag = option.flag or f"--{one.name.replace('_', '-')}"
    return Annotated[kind, typer.Option(flag, **{key: value for key, value in how.items() if value is not None})]


def _value(one: Field[Any], typed: Any) -> Any:
    if not _is_list(one):
        return typed
    return tuple(names(typed) if one.metadata["option"].commas else typed or ())
