"""The state file: which processes the stack started, and how to reach their servers.

Written whole and renamed, after every process, so that a stack interrupted at any moment can be stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stack.places import Places
from stack.processes import Child


@dataclass
class Record:
    """One server: its processes, and its endpoint once it has been ready."""

    children: list[Child] = field(default_factory=list)
    endpoint: dict[str, Any] | None = None
    scratch: list[str] = field(default_factory=list)

    def is_alive(self) -> bool:
        """True if it has been ready and every process of it still runs."""
        return self.endpoint is not None and all(child.is_alive() for child in self.children)


class State:
    """What the file says; `save` after every change."""

    def __init__(self, places: Places) -> None:
        self._file = places.state_file
        self.servers: dict[str, Record] = _read(self._file)

    def save(self) -> None:
        """Replaces the file in one step, or removes it when nothing is left to remember."""
        if not self.servers:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps({name: asdict(record) for name, record in self.servers.items()}, indent=1))
        beside.replace(self._file)


@contextmanager
def exclusive(places: Places) -> Iterator[None]:
    """One `up` or `down` at a time per home; a second one waits."""
    places.home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(places.home / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(file: Path) -> dict[str, Record]:
    try:
        raw = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return {
        name: Record([Child(**child) for child in one["children"]], one["endpoint"], list(one["scratch"]))
        for name, one in raw.items()
    }
