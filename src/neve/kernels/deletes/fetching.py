"""Bytes of delete files: what the order carries is taken from it, the rest is read from storage, and counted.

Used by `loading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from neve.kernels.arrow.model import RefusedError
from neve.kernels.prefetch import HOLE_BYTES, RANGE_BYTES, Range, read_ahead
from neve.kernels.streams import BytesSource, Source
from neve.rewrite.work_order import DeleteFile


class DeleteStorage(Protocol):
    """Where delete files are opened."""

    def source(self, location: str, size_bytes: int) -> Source:
        """A file to read."""
        ...


class Fetcher:
    """Opens delete files; `reads` counts the deletes that came from storage."""

    def __init__(self, storage: DeleteStorage) -> None:
        self._storage = storage
        self.reads = 0

    def open(self, delete: DeleteFile) -> tuple[Source, int]:
        """A file of positions or keys, and its rows. Raises RefusedError unless it is Parquet."""
        if delete.format.lower() != "parquet":
            reason = f"{delete.path} holds {delete.kind} in {delete.format}, not in Parquet"
            raise RefusedError(f"Cannot read deletes: {reason}", hint="The spark kernel can.")
        if delete.content is not None:
            return BytesSource(delete.content, delete.path), delete.records
        self.reads += 1
        return self._storage.source(delete.path, delete.size_bytes), delete.records

    def vectors(self, deletes: Sequence[DeleteFile]) -> list[bytes]:
        """The blobs of vectors, in this order; those that lie close together in a file come with one request."""
        blobs = [delete.content or b"" for delete in deletes]
        stored = [i for i, delete in enumerate(deletes) if delete.content is None]
        self.reads += len(stored)
        spans = _spans(deletes, stored)
        wanted = [self._range([deletes[i] for i in span]) for span in spans]
        with closing(read_ahead(wanted)) as arriving:
            for span, asked, data in zip(spans, wanted, arriving, strict=True):
                for i in span:
                    at = _start(deletes[i]) - asked.offset
                    blobs[i] = data[at : at + deletes[i].size_bytes]
        return blobs

    def _range(self, deletes: Sequence[DeleteFile]) -> Range:
        start, stop = _start(deletes[0]), max(map(_stop, deletes))
        return Range(self._storage.source(deletes[0].path, stop), start, stop - start)


def _start(delete: DeleteFile) -> int:
    return delete.offset or 0


def _stop(delete: DeleteFile) -> int:
    return _start(delete) + delete.size_bytes


def _spans(deletes: Sequence[DeleteFile], places: Sequence[int]) -> list[list[int]]:
    """Vectors that are worth one request."""
    spans: list[list[int]] = []
    for i in sorted(places, key=lambda i: (deletes[i].path, _start(deletes[i]))):
        if spans and _is_near(deletes[spans[-1][0]], deletes[spans[-1][-1]], deletes[i]):
            spans[-1].append(i)
        else:
            spans.append([i])
    return spans


def _is_near(first: DeleteFile, last: DeleteFile, other: DeleteFile) -> bool:
    if first.path != other.path:
        return False
    return _start(other) - _stop(last) <= HOLE_BYTES and _stop(other) - _start(first) <= RANGE_BYTES
