"""The base of every value that passes between stages. Imports nothing heavy, so that settings can use it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: immutable, and strict about what it holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
