"""Deletes that this process has read, kept for the tasks to come: a delete file is read at most once per worker.

Bounded in bytes; what was not asked for longest goes first. Files of a table never change, so that a place names its content.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from neve.table.units import MIB

CACHE_BYTES = 64 * MIB


class DeleteCache:
    """What was read, by place and form. Safe for threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """What was put there, None if it is not here any more."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Keeps it, and lets go of others if need be; what is larger than the whole cache is not kept."""
        with self._lock:
            self.held_bytes -= self._held.pop(key, (None, 0))[1]
            if size_bytes > self.limit_bytes:
                return
            self._held[key] = (value, size_bytes)
            self.held_bytes += size_bytes
            while self.held_bytes > self.limit_bytes:
                self.held_bytes -= self._held.popitem(last=False)[1][1]


SHARED = DeleteCache()
"""The one of this process."""
