"""The mark that a run leaves on a table while it works, so that hosts which keep separate state see each other. Pure.

It is a table property, since the catalog is the one thing that all hosts share. `flow.lease` puts it there and takes it away;
the commit stage refuses to commit while the table carries another run's.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from neve.core.model import Frozen

PROPERTY = "neve.lease"


class Marker(Frozen):
    """Who is at work on a table, and until when that is believed without another word."""

    run_id: str
    owner: str
    until_ms: int

    @property
    def text(self) -> str:
        """The property's value."""
        return self.model_dump_json()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Marker | None:
        """The mark on a table; None where there is none, or none that can be read."""
        try:
            return cls.model_validate_json(properties.get(PROPERTY, ""))
        except ValidationError:
            return None

    def bars(self, run_id: str, now_ms: int) -> bool:
        """Whether this run must keep its hands off."""
        return self.run_id != run_id and now_ms < self.until_ms
