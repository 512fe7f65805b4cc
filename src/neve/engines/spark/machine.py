"""What this machine, or the container around us, can spare. Called by `session` for its defaults."""

from __future__ import annotations

import os
from pathlib import Path

_GIB = 1 << 30
_CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that we may use: the machine's, or the container's limit where that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for name in _CGROUP_LIMITS if (limit := _limit(cgroup / name)))])


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" means none


def driver_memory(available_bytes: int) -> str:
    """A quarter of the memory, at least 1 and at most 8 GiB: Python workers and the page cache need the rest."""
    share = max(_GIB, min(8 * _GIB, available_bytes // 4))
    return f"{share >> 20}m"
