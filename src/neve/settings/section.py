"""What all parts of the settings share: kebab-case keys, unknown ones refused, and errors that name the keys involved."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from neve.settings.secrets import Text


def kebab(name: str) -> str:
    """The key that users write for an attribute."""
    return name.replace("_", "-")


class Section(BaseModel):
    """A part of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=kebab, populate_by_name=True)


class ContradictionError(ValueError):
    """Keys of one section that cannot stand together, or one that is missing; the first is the one to change."""

    def __init__(self, reason: str, *keys: str) -> None:
        super().__init__(reason)
        self.keys = keys


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean target-file-size?`, or nothing where no known word comes close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]}?" if close else ""


def _scalar_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


FreeText = Annotated[Text, BeforeValidator(_scalar_text)]
"""A value of a free dictionary: YAML's numbers and booleans become the texts that clients expect."""
