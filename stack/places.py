"""Where the stack keeps things: state, logs and data in `.stack/` of the repository, downloads in the user's cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_cache_path

REPOSITORY = Path(__file__).resolve().parents[1]


def _cache() -> Path:
    return user_cache_path("neve") / "stack"


@dataclass(frozen=True)
class Places:
    """One stack's directories. Two stacks with different homes do not see each other."""

    home: Path = REPOSITORY / ".stack"
    cache: Path = field(default_factory=_cache)

    @property
    def state_file(self) -> Path:
        """Pids, births and endpoints of what runs."""
        return self.home / "state.json"

    @property
    def logs(self) -> Path:
        """One file per process; survives `down`."""
        return self.home / "logs"

    def data(self, server: str) -> Path:
        """The server's own directory; `down` removes it."""
        return self.home / "data" / server
