"""Values of the store: rows that go into it and come out of it, and what is told about the store itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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
class Claim:
    """The right to write to a run's journal: the text of its owner, and the token that the owner was given."""

    owner: str
    token: int


@dataclass(frozen=True)
class StoredOutput:
    """A file that a run wrote."""

    path: str
    row_groups: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Upgraded:
    """Schema versions before and after; `before` is None for a store that was made. `copy` is the old one, set aside."""

    before: str | None
    after: str
    copy: Path | None


@dataclass(frozen=True)
class Backup:
    """A copy of a store."""

    file: Path
    size_bytes: int


@dataclass(frozen=True)
class Pruned:
    """Rows that were removed, and about how many bytes they held: documents and paths, without the database's own."""

    runs: int
    groups: int
    partitions: int
    outputs: int
    quarantined: int
    bytes: int


@dataclass(frozen=True)
class Description:
    """A store from outside. `version` is None where there is none yet; `counts` are runs, groups and so on by name."""

    url: str
    version: str | None
    newest_version: str
    size_bytes: int
    counts: dict[str, int]
    oldest_run_ms: int | None
