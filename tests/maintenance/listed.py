"""A quarantine that is a list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from neve.maintenance.quarantine import Candidate, Fate, Quarantined


@dataclass
class Listed:
    """A quarantine in memory (implements `ports.Quarantine`, as far as a search needs it)."""

    files: dict[str, Quarantined] = field(default_factory=dict)

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:  # noqa: ARG002
        new = {file.path: file for file in files if file.path not in self.files}
        moments = {"recorded_ms": now_ms, "changed_ms": now_ms}
        for path, file in new.items():
            self.files[path] = Quarantined(**file.model_dump(), run_id=run_id, fate=Fate.RECORDED, **moments)
        return len(new)

    def quarantined(self, table_uuid: str, *, fates: Collection[Fate] | None = None, **_: Any) -> Iterator[Quarantined]:  # noqa: ARG002
        yield from (file for file in self.files.values() if fates is None or file.fate in fates)
