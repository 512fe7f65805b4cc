"""CPU and memory of this process with everything under it (a JVM, its Python workers) between two moments. Linux only.

Times are summed by process from samples, since Spark's Python workers end without anybody waiting for them, which loses their
time; at most the last sample's length of such a worker is missing. The sampling's own time is taken off.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.1

Known = tuple[int, float]
"""A process by id and start: ids come round again."""


@dataclass
class Used:
    """What a block used. Memory shared by two processes counts twice, so the peak is an upper bound."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


class OwnTree:
    """Use as a context manager; read `used` after the block."""

    def __init__(self) -> None:
        self.used = Used()
        self._cpu: dict[Known, float] = {}
        self._stop = threading.Event()
        self._sampling_seconds = 0.0
        self._sampler = threading.Thread(target=self._keep_sampling, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._before = dict(self._cpu)
        self._sampler.start()
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.used.wall_seconds = time.perf_counter() - self._start
        self._stop.set()
        self._sampler.join()
        self._sample()
        spent = sum(seconds - self._before.get(known, 0.0) for known, seconds in self._cpu.items())
        self.used.cpu_seconds = spent - self._sampling_seconds

    def _keep_sampling(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()
        self._sampling_seconds = time.thread_time()

    def _sample(self) -> None:
        me = psutil.Process()
        rss = 0
        for process in (me, *me.children(recursive=True)):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    rss += process.memory_info().rss
            except psutil.NoSuchProcess:  # it has just ended; its last sample stands
                continue
            self._cpu[process.pid, process.create_time()] = times.user + times.system
        self.used.peak_rss_bytes = max(self.used.peak_rss_bytes, rss)
