"""The paths of a manifest's live entries, and the directories they are in; many manifests on every core.

Used for the file index (implements `operations.index_ports.ManifestPaths`). Workers are subprocesses, as in `catalogs.pool`.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import IO, Any, TypeVar

from pyiceberg.avro.decoder import new_decoder

from neve.catalogs.avro import Read, read_blocks, read_header, value_reader, value_skipper
from neve.catalogs.pool import PARALLEL_FROM_FILES, usable_cores
from neve.errors import CorruptMetadataError, NeveError
from neve.maintenance.file_index import places_of_files

_DELETED = 2
_WANTED = ("status", "data_file.file_path", "data_file.file_size_in_bytes")
_AHEAD = 16

_Key = TypeVar("_Key")
Found = tuple[int, tuple[str, ...]]
"""How many live entries there are, and their directories."""


def live_paths(data: bytes, manifest: str) -> Iterator[str]:
    """Returns the paths of all entries but deleted ones. Raises CorruptMetadataError."""
    return (path for path, _ in live_files(data, manifest))


def live_files(data: bytes, manifest: str) -> Iterator[tuple[str, int]]:
    """Returns the paths of all entries but deleted ones with their sizes in bytes. Raises CorruptMetadataError."""
    try:
        decoder = new_decoder(data)
        header = read_header(decoder)
        steps, status, path, size = _steps(header.schema)
        for count, block in read_blocks(decoder, header):
            for _ in range(count):
                row = [step(block) for step in steps]
                if row[status] != _DELETED:
                    yield row[path], row[size]
    except Exception as error:
        raise CorruptMetadataError(
            f"Cannot decode manifest {manifest}: {error or type(error).__name__}",
            hint="The file is damaged, or is not Iceberg metadata.",
        ) from error


def _steps(schema: dict[str, Any]) -> tuple[list[Read], int, int, int]:
    """Reads one entry as a flat list, without a dictionary for each; where its status, path and size stand in it."""
    names, steps = list[str](), list[Read]()
    for field in schema["fields"]:
        inner = field["type"]["fields"] if field["name"] == "data_file" else [field]
        prefix = "data_file." if field["name"] == "data_file" else ""
        for one in inner:
            name = prefix + one["name"]
            names.append(name)
            steps.append(value_reader(one["type"]) if name in _WANTED else value_skipper(one["type"]))
    status, path, size = map(names.index, _WANTED)
    return steps, status, path, size


def summarized(data: bytes, manifest: str) -> Found:
    """Returns how many live entries a manifest has, and their directories. Raises CorruptMetadataError."""
    number, directories = 0, set[str]()
    for path in live_paths(data, manifest):
        number += 1
        directories.add(path.rpartition("/")[0])
    # A path that Iceberg cuts within its last name stays in its directory; one that it cuts before is cut by `places_of_files`.
    return number, places_of_files(f"{directory}/" for directory in directories)


class ParallelManifestPaths:
    """Decodes manifests; subprocesses are started for a large number of entries and end with the block."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._workers: SimpleQueue[_Worker] | None = None

    def __enter__(self) -> ParallelManifestPaths:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers = None
        self._resources.close()

    def paths(self, data: bytes, manifest: str) -> Iterator[str]:
        """The live paths of one manifest, in this process."""
        return live_paths(data, manifest)

    def summaries(
        self, jobs: Iterable[tuple[_Key, str, Callable[[], bytes]]], entries: int
    ) -> Iterator[tuple[_Key, Found | NeveError]]:
        """Yields each manifest's summary, or why there is none; `entries` says about how many there are in all of them."""
        if entries >= PARALLEL_FROM_FILES and self._workers is None and usable_cores() > 1:
            self._workers = SimpleQueue()
            for _ in range(usable_cores()):
                self._workers.put(self._resources.enter_context(_Worker()))
        with ThreadPoolExecutor(_AHEAD) as threads:
            waiting: deque[tuple[_Key, Future[Found | NeveError]]] = deque()
            for key, path, read in jobs:
                waiting.append((key, threads.submit(self._summary, path, read)))
                if len(waiting) > 2 * _AHEAD:
                    done, future = waiting.popleft()
                    yield done, future.result()
            for done, future in waiting:
                yield done, future.result()

    def _summary(self, path: str, read: Callable[[], bytes]) -> Found | NeveError:
        try:
            data = read()
            if self._workers is None:
                return summarized(data, path)
            worker = self._workers.get()
            try:
                return worker.ask(data, path)
            finally:
                self._workers.put(worker)
        except NeveError as error:
            return error


class _Worker:
    """A subprocess that summarizes one manifest at a time."""

    def __enter__(self) -> _Worker:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def ask(self, data: bytes, path: str) -> Found:
        stdin = _pipe(self._process.stdin)
        pickle.dump((data, path), stdin)
        stdin.flush()
        answer = pickle.load(_pipe(self._process.stdout))  # noqa: S301 - our own child's answer
        if isinstance(answer, str):
            raise CorruptMetadataError(answer, hint="The file is damaged, or is not Iceberg metadata.")
        number, places = answer
        return int(number), tuple(places)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - both were asked for
    return pipe


def _serve() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            data, path = pickle.load(stdin)  # noqa: S301 - our own parent's question
        except EOFError:
            return
        try:
            answer: Found | str = summarized(data, path)
        except CorruptMetadataError as error:
            answer = str(error)
        pickle.dump(answer, stdout)
        stdout.flush()


if __name__ == "__main__":
    _serve()
