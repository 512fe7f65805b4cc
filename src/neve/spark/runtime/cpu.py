"""CPU time of Spark's driver JVM and, on local Spark, of its Python processes. Called by `context.meter`.

Guarantees to raise nothing: what cannot be measured is None.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")
_PARENT, _TIMES, _WAITED_FOR = 1, slice(11, 15), slice(13, 15)
"""Places in /proc/PID/stat, counted from after the command's name: times are those of the process, then of its children that
have ended."""
_BEAN, _BEAN_TYPE = "java.lang:type=OperatingSystem", "com.sun.management.OperatingSystemMXBean"


class SparkCpu(NamedTuple):
    """Seconds since the processes began."""

    jvm: float | None
    workers: float | None


def spark_cpu(session: Any) -> SparkCpu:
    """Reads the times of a running session. Workers are None on a cluster, and where there is no /proc."""
    jvm = workers = None
    with suppress(Exception):  # a JVM that has died, or one that the caller restricts
        java = session._jvm.java
        management = java.lang.management.ManagementFactory
        kind = java.lang.Class.forName(_BEAN_TYPE)
        bean = management.newPlatformMXBeanProxy(management.getPlatformMBeanServer(), _BEAN, kind)
        jvm = int(bean.getProcessCpuTime()) / 1e9
        if str(session.sparkContext.master).startswith("local"):
            workers = descendants_seconds(int(java.lang.ProcessHandle.current().pid()))
    return SparkCpu(jvm, workers)


def descendants_seconds(pid: int) -> float | None:
    """CPU time of everything that a process started, also of what has ended; None if it cannot be read."""
    found = _processes()
    if pid not in found:
        return None
    children: dict[int, list[int]] = defaultdict(list)
    for child, fields in found.items():
        children[int(fields[_PARENT])].append(child)
    ticks, waiting = sum(map(int, found[pid][_WAITED_FOR])), list(children[pid])
    while waiting:
        one = waiting.pop()
        ticks += sum(map(int, found[one][_TIMES]))
        waiting += children[one]
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes() -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            found[int(entry.parent.name)] = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return found
