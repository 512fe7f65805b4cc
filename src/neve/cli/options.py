"""Options declared once: those that every command takes, before or after its name, and one flag per knob of the policy.

`cli.command` adds them to the signature that Typer reads, so that a command names only what is its own. Commands and groups are
Typer's, with the hooks that it has for its users: what a group calls them by, and what parses their arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from neve.cli.failures import error_json
from neve.errors import BadRequestError

CONTEXT = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)

EVERYWHERE = "Options of every command"
POLICY = "Policy, as in neve.yaml"


class LogLevel(StrEnum):
    """How much is told on stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Shared:
    """What was said in the options that every command takes. None and empty mean that nothing was said."""

    config: Path | None = None
    profile: str | None = None
    warehouse: str | None = None
    catalog: str | None = None
    set: list[str] = field(default_factory=list)
    json: bool = False
    log_level: LogLevel | None = None
    log_format: LogFormat | None = None
    debug: bool = False

    @classmethod
    def take(cls, values: dict[str, Any]) -> Self:
        """Takes its own options out of a command's values."""
        taken = {f.name: values.pop(f.name) for f in fields(cls)}
        return cls(**(taken | {"set": list(taken["set"] or ())}))

    def after(self, before: Shared) -> Shared:
        """These options, said after the command's name, on top of those said before it."""
        merged = {f.name: getattr(self, f.name) or getattr(before, f.name) for f in fields(self)}
        return Shared(**(merged | {"set": [*before.set, *self.set]}))

    @property
    def connection(self) -> list[str]:
        """The options by which the user reached the tables, to be repeated in every command that is shown.

        Settings that may hold a secret are left out: they are refused unless they are references, but a hint of that very
        refusal must not repeat them.
        """
        named = {
            "--config": self.config,
            "--profile": self.profile,
            "--warehouse": self.warehouse,
            "--catalog": self.catalog,
        }
        options = [part for flag, value in named.items() if value is not None for part in (flag, str(value))]
        return options + [part for text in self.set if not _may_be_secret(text) for part in ("--set", text)]

    def assignments(self) -> dict[str, str]:
        """`--set` by key, the last one of a key winning."""
        return dict(_assignment(text) for text in self.set)


def _may_be_secret(text: str) -> bool:
    from neve.settings.secrets import REFERENCE, holds_password, is_secret_key

    key, _, value = text.partition("=")
    return holds_password(value) or (is_secret_key(key.strip()) and REFERENCE.fullmatch(value.strip()) is None)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BadRequestError(
            f"Cannot read --set {text!r}: no KEY=VALUE",
            hint="Write a settings key and a value, such as --set policy.target-file-size=256MB.",
        )
    return key.strip(), value.strip()


def _everywhere(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=EVERYWHERE, show_default=False, **more)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "config": (Path | None, _everywhere("--config", metavar="FILE", help="The settings file; neve.yaml unless given.")),
    "profile": (str | None, _everywhere("--profile", metavar="NAME", help="A profile of the settings, such as prod.")),
    "warehouse": (str | None, _everywhere("--warehouse", metavar="PATH", help="A warehouse directory, no settings needed.")),
    "catalog": (str | None, _everywhere("--catalog", metavar="NAME", help="The catalog of names that carry none.")),
    "set": (
        list[str] | None,
        _everywhere("--set", metavar="KEY=VALUE", help="Any settings key, such as policy.target-file-size=256MB; repeatable."),
    ),
    "json": (bool, _everywhere("--json", help="JSON on stdout; a failure is there too, as {'error': {...}}.")),
    "log_level": (
        LogLevel | None,
        _everywhere("--log-level", case_sensitive=False, help="Logs on stderr: how much."),
    ),
    "log_format": (
        LogFormat | None,
        _everywhere("--log-format", case_sensitive=False, help="Logs on stderr: how they look."),
    ),
    "debug": (bool, _everywhere("--debug", envvar="NEVE_DEBUG", help="Tracebacks of failures, and every log line.")),
}


def shared_parameters() -> list[Parameter]:
    """The options of every command, as parameters for a signature."""
    defaults = Shared()
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(defaults, name) or None, annotation=Annotated[kind, option])
        if kind is not bool
        else Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
        for name, (kind, option) in _OPTIONS.items()
    ]


KNOBS = "neve.knobs"
"""Where a context keeps the knobs that were set, by their keys."""

WANTS_JSON = "neve.wants-json"
"""Where a context keeps whether --json was typed."""

TYPED = "neve.typed"
"""Where a context keeps the arguments as they were typed."""

_SPELLINGS = {"small-file-threshold": ("--min-file-size",)}
"""Knobs that go by another name elsewhere, by their keys."""
_METAVARS = {
    "size": "SIZE",
    "duration": "TIME",
    "ratio": "0..1",
    "yes/no": "YES|NO",
    "name": "NAME",
    "predicates": "SQL",
    "names": "NAMES",
    "counts": "COUNTS",
}


def with_parameters(function: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """The function as Typer reads it: `inspect.signature` tells these parameters, in this order."""
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


class PlainCommand(TyperCommand):
    """A command whose usage errors are given as JSON on stdout too, where --json is typed."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parses its arguments."""
        with usage_errors_as_json("--json" in args if parent is None else parent.meta.get(WANTS_JSON, False)):
            return super().make_context(info_name, args, parent=parent, **extra)


class KnobCommand(PlainCommand):
    """A command with one flag per knob of the policy.

    The flags are made when this command is parsed or explained, not when the application is put together: the policy's
    models take longer to load than all the rest of the command line.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters and the knobs."""
        return [*super().get_params(ctx), *_knob_options()]


class CommandGroup(TyperGroup):
    """A group whose usage errors are given as JSON on stdout too, where --json is typed."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parses what stands before the command's name."""
        wants_json, typed = "--json" in args, tuple(args)
        with usage_errors_as_json(wants_json if parent is None else parent.meta[WANTS_JSON]):
            context = super().make_context(info_name, args, parent=parent, **extra)
        if parent is None:
            context.meta[WANTS_JSON], context.meta[TYPED] = wants_json, typed
        return context

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that is named."""
        with usage_errors_as_json(ctx.meta[WANTS_JSON]):
            return super().resolve_command(ctx, args)


Function = TypeVar("Function", bound=Callable[..., Any])


class Commands(typer.Typer):
    """Commands of ours: typer.Typer with our classes for a group and its commands."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"cls": CommandGroup, "rich_markup_mode": "rich", **how})

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **how: Any
    ) -> Callable[[Function], Function]:
        """As typer.Typer has it."""
        return super().command(name, cls=cls or PlainCommand, **how)


@contextmanager
def usage_errors_as_json(wanted: bool) -> Iterator[None]:
    """Around the parsing of arguments. Typer prints what is raised on stderr, and leaves with its exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        # Help for a bare `neve` travels as a usage error too, with an empty or help-like message: no JSON for that.
        if wanted and getattr(error, "exit_code", None) == 2:
            message = f"Cannot read the command line: {error.format_message()}"  # type: ignore[attr-defined]
            sys.stdout.write(error_json(code="bad-request", message=message, hint=None, retryable=False) + "\n")
        raise


@cache
def _knob_options() -> list[Any]:
    from neve.policy.model import knobs

    # Typer makes the options from a signature, here as everywhere; the function itself is never called.
    def signature_only() -> None: ...

    app = typer.Typer(add_completion=False)
    parameters = [_knob_parameter(key, knob.unit, knob.why) for key, knob in knobs().items()]
    app.command()(with_parameters(signature_only, parameters))
    return list(typer.main.get_command(app).params)


def _knob_parameter(key: str, unit: str, why: str) -> Parameter:
    def keep(ctx: typer.Context, value: str | None) -> None:
        if value is not None:
            ctx.meta.setdefault(KNOBS, {})[key] = value

    how: dict[str, Any] = {"metavar": _METAVARS.get(unit, "N"), "help": why, "rich_help_panel": POLICY, "show_default": False}
    option = typer.Option(f"--{key}", *_SPELLINGS.get(key, ()), **how, expose_value=False, callback=keep)
    name = f"knob_{key.replace('-', '_')}"
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])
