"""Rows as values: what goes into the store and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """One run over one table; `finished_ms` and `outcome` are None while it is under way."""

    run_id: str
    table_uuid: str
    table_name: str
    kind: str
    started_ms: int
    finished_ms: int | None = None
    outcome: str | None = None
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Output:
    """A file that a run wrote."""

    path: str
    row_groups: int
    bytes: int
    rows: int
