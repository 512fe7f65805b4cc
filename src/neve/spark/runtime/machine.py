"""What this machine, the container around us, or a cluster's executor can spare. Called by `session` and `rewrite`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from neve.table.units import parse_bytes

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


def task_memory_bytes(setting: Callable[[str, str], str], cores: int) -> int | None:
    """What one task's Python may use where `spark.executor.pyspark.memory` bounds it, which Spark gives in equal parts to an
    executor's cores: a quarter, since interpreter, libraries and the allocator's reserve are within the same bound."""
    limit = setting("spark.executor.pyspark.memory", "").strip().lower()
    if not limit:
        return None
    size = parse_bytes(f"{limit}m" if limit.isdigit() else limit)
    return size // int(setting("spark.executor.cores", str(cores))) // 4


def driver_memory(available_bytes: int) -> str:
    """A quarter of the memory, at least 1 and at most 8 GiB: Python workers and the page cache need the rest."""
    share = max(_GIB, min(8 * _GIB, available_bytes // 4))
    return f"{share >> 20}m"
