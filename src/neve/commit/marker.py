"""The marker that a run sets on a table while it works, so that hosts which keep separate state see each other. Pure.

It is a table property, since the catalog is the one thing that all hosts share. `commit.lease` sets and removes it, and refuses
to commit unless the table has the run's own marker.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, ValidationError

from neve.table.frozen import Frozen
from neve.table.properties import LEASE

PROPERTY = LEASE


class Marker(Frozen):
    """Which process is at work on a table for which run, and until when the marker is valid without being renewed.

    `owner` is the text of a `commit.owner.Owner`: its random number tells the process from any other that resumes the same run.
    """

    model_config = ConfigDict(extra="ignore")
    """A newer release may say more. Its marker must not count as none, or both would work on the table."""

    run_id: str
    owner: str
    until_ms: int

    @property
    def text(self) -> str:
        """The property's value."""
        return self.model_dump_json()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Marker | None:
        """The marker of a table; None if there is none, or if it cannot be read."""
        try:
            return cls.model_validate_json(properties.get(PROPERTY, ""))
        except ValidationError:
            return None

    def is_valid(self, now_ms: int) -> bool:
        """Whether it has not ended."""
        return now_ms < self.until_ms
