"""The commands of the command line, as they are registered, without hidden ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from neve.cli.app import app


def leaf_commands() -> dict[tuple[str, ...], Any]:
    """Every command that does something, by its words."""
    return dict(_leaves(get_command(app), ()))


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield words, command
        return
    for name, child in children.items():
        if getattr(child, "hidden", False):
            continue
        yield from _leaves(child, (*words, name))
