"""Which process owns a run, and when it is certain that the process has ended. Pure: `commit.process` asks the machine.

The text of an owner is stored in the journal, in the lease row and in the table's marker. A host name and a process id are not
enough: other hosts and containers may have the same ones. So the text also has a random number of the process, and what tells
whether a process id means the same process here: the boot, the namespaces, and the moment at which the process started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neve.table.units import whole_number

ABSENT = "absent"
"""The start of a process that does not exist."""

Started = Callable[[int], str | None]
"""When the process with this id started, in the machine's own unit; ABSENT if there is none, None if that is unknown."""

_KEYS = {"boot": "boot", "ns": "namespaces", "start": "started", "id": "nonce"}


@dataclass(frozen=True)
class Owner:
    """One process. Fields other than the host and the process id are None where they are unknown."""

    host: str
    pid: int | None
    boot: str | None = None
    namespaces: str | None = None
    started: str | None = None
    nonce: str | None = None

    @property
    def shown(self) -> str:
        """For messages: `host:pid`."""
        return self.host if self.pid is None else f"{self.host}:{self.pid}"

    @property
    def text(self) -> str:
        """As it is stored; `Owner.parse` reads it."""
        known = [f"{key}={getattr(self, name)}" for key, name in _KEYS.items() if getattr(self, name) is not None]
        return ";".join([self.shown, *known])

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Reads any text: an older release stored `host:pid` alone, and what cannot be read is unknown."""
        first, *pairs = text.split(";")
        host, _, pid = first.rpartition(":")
        known = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        fields = {name: known.get(key) for key, name in _KEYS.items()}
        number = whole_number(pid)
        return cls(host, number, **fields) if host and number is not None else cls(first, None, **fields)

    def is_same_process(self, other: Owner) -> bool:
        """Whether both are certainly one process."""
        return self.nonce is not None and self.nonce == other.nonce

    def is_certainly_gone(self, here: Owner, started: Started) -> bool:
        """Whether this process has certainly ended, as seen from the process `here`. False also where nobody can tell."""
        place = (self.host, self.boot, self.namespaces)
        if None in place or self.pid is None or place != (here.host, here.boot, here.namespaces):
            return False
        now = started(self.pid)
        return now == ABSENT or (None not in (now, self.started) and now != self.started)


def shown(text: str) -> str:
    """A stored owner for messages: `host:pid`."""
    return Owner.parse(text).shown
