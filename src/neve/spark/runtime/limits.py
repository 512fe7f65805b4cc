"""Python workers under a memory limit. Called at the beginning of every Python task; does something once per process.

`spark.executor.pyspark.memory` limits the addresses of a worker and not its pages, and three things take many addresses for few
pages: Arrow's default allocator reserves a gibibyte at once, glibc 64 MiB for each thread, and each thread has a stack. So a
worker under a limit does without them, in a caller's session as well, whose environment is not ours to set.
"""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from functools import cache

_ARENA_MAX = -8
"""glibc's number for the option of `mallopt`."""


@cache
def keep_within_limit() -> bool:
    """Whether there is a limit; if so, addresses are saved from now on."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return False
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_io_thread_count(2)
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    return True
