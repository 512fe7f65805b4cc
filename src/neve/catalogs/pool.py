"""Decodes many manifests, on every core once there are enough of them to pay for it.

Called by `reader`. Reading overlaps decoding, and only a window of manifests is in memory at a time. Workers are plain
subprocesses running this module: unlike multiprocessing they never run the caller's own script again, so that a look at a
table from a notebook or an unguarded script is safe.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import IO, Any

from neve.catalogs.manifests import decode_manifest, from_ipc, to_ipc
from neve.table.files import FileColumns
from neve.table.state import Manifest

PARALLEL_FROM_FILES = 50_000
"""Below this the second process costs more (its imports, about half a second) than it saves."""

_READS_AHEAD = 8

Job = tuple[Manifest, Sequence[str], Sequence[int]]
"""A manifest, its spec's transforms, and the columns whose bounds are wanted: what `decode_manifest` takes."""


def decode_all(jobs: Sequence[Job], read: Callable[[str], bytes]) -> Iterator[tuple[Manifest, FileColumns]]:
    """Each manifest with its files, in the order of the jobs."""
    files = sum(manifest.live_files or 0 for manifest, *_ in jobs)
    cores = usable_cores()
    with ExitStack() as stack:
        readers = stack.enter_context(ThreadPoolExecutor(_READS_AHEAD))
        if files < PARALLEL_FROM_FILES or len(jobs) < 2 or cores < 2:
            for job, data in _ahead(readers, lambda job: read(job[0].path), jobs):
                yield job[0], decode_manifest(data, *job)
            return
        workers: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(min(cores, len(jobs))):
            workers.put(stack.enter_context(_Worker()))
        threads = stack.enter_context(ThreadPoolExecutor(cores + _READS_AHEAD))

        def decode(job: Job) -> FileColumns:
            data = read(job[0].path)
            worker = workers.get()
            try:
                return from_ipc(worker.decode(data, *job))
            finally:
                workers.put(worker)

        for job, part in _ahead(threads, decode, jobs):
            yield job[0], part


def _ahead(executor: Executor, work: Callable[[Job], Any], jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
    """Results in order, with only a window of them under way: `Executor.map` would start all at once."""
    waiting: deque[tuple[Job, Future[Any]]] = deque()
    for job in jobs:
        waiting.append((job, executor.submit(work, job)))
        if len(waiting) > 2 * _READS_AHEAD:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def usable_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A subprocess that decodes one manifest at a time."""

    def __enter__(self) -> _Worker:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait()
        self._pipe(self._process.stdout).close()

    def decode(self, data: bytes, manifest: Manifest, transforms: Sequence[str], bounds: Sequence[int]) -> bytes:
        stdin = self._pipe(self._process.stdin)
        pickle.dump((data, manifest.model_dump(), tuple(transforms), tuple(bounds)), stdin)
        stdin.flush()
        answer = pickle.load(self._pipe(self._process.stdout))  # noqa: S301 - our own child's answer
        if isinstance(answer, BaseException):
            raise answer
        return bytes(answer)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None  # noqa: S101 - both were asked for
        return pipe


def _serve() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            data, manifest, *rest = pickle.load(stdin)  # noqa: S301 - our own parent's question
        except EOFError:
            return
        try:
            answer: bytes | Exception = to_ipc(decode_manifest(data, Manifest(**manifest), *rest))
        except Exception as error:
            answer = error
        pickle.dump(answer, stdout)
        stdout.flush()


if __name__ == "__main__":
    _serve()
