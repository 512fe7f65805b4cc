"""What is wrong with settings, one line each, and all of it in one error. No line ever repeats the value of a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from neve.errors import SettingsError
from neve.settings.keys import KeyGroup, Path, leaves, settings_tree
from neve.settings.section import nearest

HINT = "The settings reference (docs/reference/settings.md) lists every key; `neve config validate` checks again."


@dataclass(frozen=True)
class Problem:
    """One mistake: in which place, at which key as written there, and why it cannot stand."""

    where: str
    key: str
    reason: str
    path: Path = ()

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.reason}" if self.key else f"{self.where}: {self.reason}"


def refuse(problems: Iterable[Problem], *, what: str = "load settings", hint: str = HINT) -> None:
    """Raises one SettingsError for all of them; does nothing when there are none."""
    lines = list(dict.fromkeys(str(problem) for problem in problems))
    if len(lines) == 1:
        raise SettingsError(f"Cannot {what}: {lines[0]}", hint=hint)
    if lines:
        raise SettingsError("\n  ".join([f"Cannot {what}: {len(lines)} problems", *lines]), hint=hint)


def unknown_key(key: str, group: KeyGroup, path: Path = ()) -> str:
    """Why an unknown key is refused, with the nearest valid one: a sibling, or the same word in another section."""
    close = nearest(key, group.children)
    if not close:
        elsewhere = {leaf[-1]: ".".join(leaf) for leaf, _ in leaves(settings_tree()) if leaf[:-1] != path}
        found = nearest(key, elsewhere).removeprefix(", did you mean ").removesuffix("?")
        close = f", did you mean {elsewhere[found]}?" if found else f"; valid here: {', '.join(group.children)}"
    return f"unknown key{close}"


def reason_of(error: ValidationError, value: object) -> str:
    """Pydantic's first complaint in our words; `value` is shown where it is short and plain."""
    return reason_in(error.errors(include_url=False, include_input=False)[0], value)


def reason_in(first: ErrorDetails, value: object) -> str:
    """One complaint of pydantic in our words."""
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    if first["type"] == "value_error":
        return message
    if first["type"].startswith("tuple"):
        message = "should be a list"
    known = [word.strip("' ") for word in str(first.get("ctx", {}).get("expected", "")).replace(" or ", ",").split(",")]
    return f"{message}, not {_short(value)}{nearest(str(value), known) if first['type'] == 'literal_error' else ''}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
