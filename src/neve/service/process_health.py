"""Whether a worker process should be replaced: it has grown, its Spark has died, or it has done enough jobs.

Called by `worker` between jobs. Memory is that of the process and of everything that it started, Spark's JVM and its Python
workers included, as /proc shows it; elsewhere it is not limited.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neve.settings import ServiceSettings
from neve.table.units import format_bytes

_PROC = Path("/proc")
_PARENT_FIELD, _RSS_FIELD = 1, 21
"""Places in /proc/PID/stat, counted from after the command's name."""


def reason_to_leave(settings: ServiceSettings, jobs_done: int) -> str | None:
    """Why this process should be replaced; None if it should go on."""
    if is_spark_dead():
        return "its Spark has ended"
    if jobs_done >= settings.max_worker_jobs:
        return f"it has done {jobs_done} jobs"
    size = memory_bytes()
    if jobs_done and size > settings.max_worker_memory:
        return f"it has grown to {format_bytes(size)} (max-worker-memory is {format_bytes(settings.max_worker_memory)})"
    return None


def is_spark_dead() -> bool:
    """Whether this process started a JVM that has ended since, or whose context was stopped. Imports nothing."""
    found = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(found, "_gateway", None), "proc", None)
    if process is not None and process.poll() is not None:
        return True
    context = getattr(found, "_active_spark_context", None)
    return context is not None and _has_stopped(context)


def _has_stopped(context: Any) -> bool:
    """Whether the context was stopped in the JVM, as it is after an error in its scheduler."""
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM does not answer
        return True


def memory_bytes() -> int:
    """Resident memory of this process and of all that it started, 0 where that cannot be read."""
    page = os.sysconf("SC_PAGE_SIZE")
    children, pages = defaultdict[int, list[int]](list), dict[int, int]()
    for pid, parent, resident in _processes():
        children[parent].append(pid)
        pages[pid] = resident
    waiting, total = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        total += pages.get(pid, 0) * page
        waiting += children[pid]
    return total


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process: its id, its parent's and its resident pages."""
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            yield int(entry.parent.name), int(fields[_PARENT_FIELD]), int(fields[_RSS_FIELD])
        except (OSError, IndexError, ValueError):
            continue  # it has ended
