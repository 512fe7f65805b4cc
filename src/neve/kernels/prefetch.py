"""Reading ahead: few requests, several in flight, a bounded number of bytes in memory.

Used by the kernels around every source. Results come in the order they were asked for, so that latency hides behind the work
on what came before; whoever stops early leaves no thread behind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from neve.errors import StorageError
from neve.kernels.parquet.footer import tail_length
from neve.kernels.streams import Source, check_range
from neve.table.units import KIB, MIB

WHOLE_BYTES = 16 * MIB
"""Files up to this size are read with one request."""
RANGE_BYTES = 32 * MIB
"""The most that one request asks for: two of them and a tail read any file of up to 64 MiB."""
HOLE_BYTES = 256 * KIB
"""Unneeded bytes that are read along rather than asked for separately."""
AHEAD_BYTES = 64 * MIB
THREADS = 16
QUICK_SECONDS = 0.003
QUICK_BYTES_PER_SECOND = 500 * MIB


class Range(NamedTuple):
    """Some bytes of a source, wanted soon."""

    source: Source
    offset: int
    length: int


def read_ahead(ranges: Iterable[Range], *, ahead_bytes: int = AHEAD_BYTES, threads: int = THREADS) -> Generator[bytes]:
    """The bytes of each range in turn; once storage has been slow to answer, those that follow are on their way already.

    Local files answer faster than a thread could be asked, and reading them ahead would only cool the caches.
    """
    remaining = iter(ranges)
    slow_in_a_row = 0
    for wanted in remaining:
        started = time.perf_counter()
        data = _checked(wanted, wanted.source.read_at(wanted.offset, wanted.length))
        is_slow = time.perf_counter() - started > QUICK_SECONDS + wanted.length / QUICK_BYTES_PER_SECOND
        slow_in_a_row = slow_in_a_row + 1 if is_slow else 0
        yield data
        # Twice, since a busy machine makes a local file seem slow now and then.
        if slow_in_a_row == 2:
            yield from _in_parallel(remaining, ahead_bytes, threads)


def _in_parallel(ranges: Iterator[Range], ahead_bytes: int, threads: int) -> Generator[bytes]:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="neve-read")
    waiting: deque[tuple[Range, Future[bytes]]] = deque()
    pending = 0
    try:
        for wanted in ranges:
            while waiting and (pending + wanted.length > ahead_bytes or len(waiting) > 2 * threads):
                pending -= waiting[0][0].length
                yield _result(waiting.popleft())
            waiting.append((wanted, pool.submit(wanted.source.read_at, wanted.offset, wanted.length)))
            pending += wanted.length
        while waiting:
            yield _result(waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(arriving: tuple[Range, Future[bytes]]) -> bytes:
    wanted, future = arriving
    return _checked(wanted, future.result())


def _checked(wanted: Range, data: bytes) -> bytes:
    if len(data) != wanted.length:
        got = f"{len(data)} of {wanted.length} bytes at {wanted.offset} came back"
        raise StorageError(f"Cannot read {wanted.source.path}: {got}")
    return data


def coalesced(source: Source, pieces: Iterable[tuple[int, int]], *, until: int) -> list[Range]:
    """Ranges that together hold these (offset, length) pieces, which ascend, as far as they lie before `until`."""
    found: list[tuple[int, int]] = []
    for offset, length in pieces:
        end = min(offset + length, until)
        if found and offset - found[-1][1] <= HOLE_BYTES:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif offset < end:
            found.append((offset, end))
    return [Range(source, at, min(RANGE_BYTES, end - at)) for start, end in found for at in range(start, end, RANGE_BYTES)]


def opening_range(source: Source, *, whole_bytes: int = WHOLE_BYTES) -> Range:
    """What to ask a file for first: all of it when it is small, otherwise the end with its footer."""
    size = source.size_bytes
    length = size if size <= whole_bytes else tail_length(size)
    return Range(source, size - length, length)


class Prefetched:
    """A source whose first read fetches all of a small file or the end of a large one; later reads inside that are free."""

    def __init__(self, source: Source, *, whole_bytes: int = WHOLE_BYTES) -> None:
        self.path = source.path
        self.size_bytes = source.size_bytes
        self._source = source
        self._opening = opening_range(source, whole_bytes=whole_bytes)
        self._held: bytes | None = None

    def read_at(self, offset: int, length: int) -> bytes:
        """These bytes, from memory when they are there."""
        check_range(self, offset, length)
        start = self._opening.offset
        if offset < start:
            return self._source.read_at(offset, length)
        if self._held is None:
            self._held = self._source.read_at(start, self._opening.length)
        return self._held[offset - start : offset - start + length]

    def release(self) -> None:
        """Forgets what it holds; a later read would fetch it again."""
        self._held = None


def whole_if_small(source: Source, limit: int = WHOLE_BYTES) -> Prefetched:
    """A small file read with one request, a large one with one request for its end."""
    return Prefetched(source, whole_bytes=limit)
