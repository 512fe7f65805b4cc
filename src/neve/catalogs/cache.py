"""A disk cache for metadata that never changes: manifest lists and manifests, keyed by their location.

Iceberg writes a metadata file once and never again, so an entry can be stale only by being old; age and size are bounded all
the same. Several processes may share a directory: entries appear by rename, and one that cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

FORMAT = "2"
"""Part of every key; raised when what is stored under a key changes its meaning."""


@dataclass
class MetadataCache:
    """`max_bytes` and `ttl_seconds` are kept by removing the entries unused for longest, after a write."""

    directory: Path
    max_bytes: int
    ttl_seconds: float
    _unswept_bytes: int = 0

    def fetch(self, kind: str, location: str, produce: Callable[[], bytes]) -> bytes:
        """The entry, or what `produce` gives, which is then kept."""
        if (found := self.find(kind, location)) is not None:
            return found
        data = produce()
        self.keep(kind, location, data)
        return data

    def find(self, kind: str, location: str) -> bytes | None:
        """The entry if it is there and young enough; a hit makes it count as just used."""
        path = self._path(kind, location)
        try:
            if time.time() - path.stat().st_mtime > self.ttl_seconds:
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
            return path.read_bytes()
        except OSError:
            return None

    def keep(self, kind: str, location: str, data: bytes) -> None:
        """Stores an entry; a full or read-only disk costs speed, never the inspection."""
        path = self._path(kind, location)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
                file.write(data)
            Path(file.name).replace(path)
        except OSError as error:
            log.info("metadata cache %s cannot be written: %s", self.directory, error)
            return
        self._unswept_bytes += len(data)
        if self._unswept_bytes > self.max_bytes // 10:
            self.sweep()

    def sweep(self) -> None:
        """Removes what is too old, then what is unused for longest until the rest fits."""
        self._unswept_bytes = 0
        entries = sorted(_entries(self.directory), reverse=True)
        kept = 0
        for used_at, size, path in entries:
            kept += size
            if kept > self.max_bytes or time.time() - used_at > self.ttl_seconds:
                path.unlink(missing_ok=True)

    def _path(self, kind: str, location: str) -> Path:
        digest = hashlib.sha256(f"{FORMAT}\0{kind}\0{location}".encode()).hexdigest()
        return self.directory / kind / digest[:2] / digest


def _entries(directory: Path) -> list[tuple[float, int, Path]]:
    found = []
    for path in directory.glob("*/*/*"):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((status.st_mtime, status.st_size, path))
    return found
