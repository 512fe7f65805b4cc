"""References to variables and files that lead nowhere. `neve doctor` reports them all before it checks anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neve.errors import SettingsError
from neve.settings.explain import values_of
from neve.settings.model import Settings
from neve.settings.secrets import Text


@dataclass(frozen=True)
class Unresolved:
    """A key whose value cannot be resolved: why, and what to do."""

    key: str
    reason: str
    hint: str


def unresolved(settings: Settings, environ: Mapping[str, str]) -> tuple[Unresolved, ...]:
    """Every key of the settings whose reference leads nowhere, secrets included. Shows no value."""
    found = []
    for path, value, _ in values_of(settings, ()):
        try:
            if isinstance(value, Text):
                value.reveal(environ)
        except SettingsError as error:
            found.append(Unresolved(".".join(path), str(error), error.hint or ""))
    return tuple(found)
