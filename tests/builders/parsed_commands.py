"""Parses a command as the command line does, without running it: which command it is, and what each argument is for."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import typer.main

from neve import job
from neve.cli import iceberg_compact
from neve.cli.app import app
from neve.cli.options import KNOBS

CLI: Any = typer.main.get_command(app)
PROGRAMS: dict[str, Any] = {
    "neve": CLI,
    "iceberg-compact": typer.main.get_command(iceberg_compact.app),
    "neve.job": typer.main.get_command(job.app),
}

_SHELL_SIGNS = frozenset({"|", ">", ">>", "<", "&&", ";", "2>"})
_FILLED_IN = re.compile(r"\{[^{}]*\}")
_STANDS_FOR = re.compile(r"[A-Z]+|\.\.\.")
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


@dataclass(frozen=True)
class Parsed:
    """A command that can be typed. `path` is its name, such as `quarantine settle`; `given` are the values by parameter."""

    program: str
    path: str
    given: dict[str, Any]
    parameters: dict[str, Any]

    @property
    def shape(self) -> tuple[str, ...]:
        """The program, the name and the parameters, whatever their values."""
        return (self.program, self.path, *sorted(self.given))

    @property
    def missing(self) -> list[str]:
        """Parameters that the command needs and that were not given, neither here nor by a variable."""
        return [name for name, one in self.parameters.items() if one.required and not one.envvar and name not in self.given]

    def spelled(self, name: str, value: Any) -> list[str]:
        """A parameter as it is typed."""
        parameter = self.parameters[name]
        if parameter.param_type_name == "argument":
            return [str(value)]
        if getattr(parameter, "is_flag", False):
            return [(parameter.opts if value else parameter.secondary_opts)[0]]
        values = value if isinstance(value, list | tuple) else [value]
        return [word for each in values for word in (parameter.opts[0], str(getattr(each, "value", each)))]


def words(text: str) -> list[str]:
    """The arguments of the first program of a line; whatever is filled in later is a 1."""
    split = shlex.split(_FILLED_IN.sub("1", text), comments=True)
    typed = ["1" if _STANDS_FOR.fullmatch(word) else word for word in split]
    end = next((i for i, word in enumerate(typed) if word in _SHELL_SIGNS), len(typed))
    return typed[1:end]


def parse(text: str, *, complete: bool = True) -> Parsed:
    """Raises the command line's own usage error. Unless it must be complete, arguments may be missing."""
    program = text.split(" ")[0]
    command = PROGRAMS[program]
    path, context = list[str](), _context(command, command.name, words(text), None, complete=complete)
    given = _given(command, context)
    while getattr(command, "commands", None) and (rest := [*context._protected_args, *context.args]):
        name, command, rest = command.resolve_command(context, rest)
        path.append(str(name))
        context = _context(command, name, rest, context, complete=complete)
        given |= _given(command, context)
    return Parsed(program, " ".join(path), given, {one.name: one for one in command.get_params(context)})


def _given(command: Any, context: Any) -> dict[str, Any]:
    names = [one.name for one in command.get_params(context)]
    values = {f"knob_{key.replace('-', '_')}": value for key, value in context.meta.get(KNOBS, {}).items()} | context.params
    return {name: values.get(name) for name in names if _is_typed(context, name)}


def _is_typed(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _context(command: Any, name: Any, args: list[str], parent: Any, *, complete: bool) -> Any:
    is_group = bool(getattr(command, "commands", None))
    if is_group and args in ([], ["--install-completion"]):  # the one prints its help, the other changes the user's shell
        return command.make_context(name, list(args), parent=parent, resilient_parsing=True)
    try:
        return command.make_context(name, list(args), parent=parent)
    except typer.Exit:  # --help and --version end there
        return command.make_context(name, [], parent=parent, resilient_parsing=True)
    except USAGE_ERROR as error:
        missing = error.format_message().startswith("Missing ")
        if not missing or (complete and not getattr(error.param, "envvar", None)):
            raise
        return command.make_context(name, list(args), parent=parent, resilient_parsing=True)
