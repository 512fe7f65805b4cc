"""Deletion vectors (`deletion-vector-v1`) in Puffin files: one blob read from its bytes, many written into one file.

Read by tasks for the vectors of an order, written by conversion, by upkeep and for late deletes. What is written is what
Iceberg's own writer writes, and is read back from where it is stored; a damaged blob raises CorruptFileError with the file's
name.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from neve.kernels.deletes.roaring import Encoder, decode
from neve.kernels.faults import CorruptFileError, UnreadableOutputError
from neve.kernels.opening import FooterSource, confirm_size
from neve.kernels.streams import Sink

Longs = npt.NDArray[np.int64]

_FILE_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_ROW_POSITION = 2147483645
_CREATED_BY = {"created-by": "Neve"}
_AROUND = 12
"""Bytes of a blob besides its bitmap: length, magic and checksum."""


def check_vector(blob: bytes | memoryview, path: str) -> None:
    """Raises unless these bytes, which the manifest's offset and length name, are a whole vector with the right checksum."""
    if len(blob) < _AROUND:
        raise CorruptFileError(path, f"its deletion vector has only {len(blob)} bytes")
    (length,) = struct.unpack_from(">I", blob)
    if length != len(blob) - 8:
        raise CorruptFileError(path, f"its deletion vector says {length} bytes, the table says {len(blob) - 8}")
    if bytes(blob[4:8]) != _VECTOR_MAGIC:
        raise CorruptFileError(path, f"its deletion vector begins with {bytes(blob[4:8]).hex()}, not {_VECTOR_MAGIC.hex()}")
    (checksum,) = struct.unpack_from(">I", blob, len(blob) - 4)
    if zlib.crc32(blob[4:-4]) != checksum:
        raise CorruptFileError(path, "the checksum of its deletion vector is wrong")


def read_vector(blob: bytes | memoryview, path: str, *, cardinality: int | None = None) -> Longs:
    """Deleted positions, ascending, from the bytes that the manifest's offset and length name."""
    check_vector(blob, path)
    try:
        positions = decode(memoryview(blob)[8:-4])
    except ValueError as error:
        raise CorruptFileError(path, f"in its deletion vector, {error}") from error
    if cardinality is not None and len(positions) != cardinality:
        found = f"its deletion vector holds {len(positions)} positions, the table says {cardinality}"
        raise CorruptFileError(path, found)
    return positions


@dataclass(frozen=True)
class WrittenVector:
    """Where a data file's vector lies in its Puffin file, and how many rows it deletes."""

    data_file: str
    offset: int
    length: int
    cardinality: int


class VectorStorage(FooterSource, Protocol):
    """Where Puffin files are written and read back."""

    def sink(self, location: str) -> Sink:
        """A file to write."""
        ...


class VectorWriter:
    """Writes vectors one after another into one Puffin file. The caller aborts the sink when something fails."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._blobs: list[dict[str, Any]] = []
        self.size_bytes = 0
        self._write(_FILE_MAGIC)

    def add(self, data_file: str, positions: Longs | Encoder) -> WrittenVector:
        """Writes the vector of a data file: ascending positions, or a bitmap that was built bit by bit."""
        if not isinstance(positions, Encoder):
            encoder = Encoder()
            encoder.add(positions)
            positions = encoder
        blob = _blob(positions.finish())
        written = WrittenVector(data_file, self.size_bytes, len(blob), positions.cardinality)
        self._write(blob)
        self._blobs.append(_described(written))
        return written

    def finish(self) -> int:
        """Writes the footer and completes the file; gives its size."""
        self._write(_footer(self._blobs))
        self._sink.close()
        return self.size_bytes

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self.size_bytes += len(data)


def write_vectors(sink: Sink, vectors: Iterable[tuple[str, Longs | Encoder]]) -> tuple[list[WrittenVector], int]:
    """A whole Puffin file of (data file, positions); gives where each lies, and the file's size. Aborts the sink on failure."""
    try:
        writer = VectorWriter(sink)
        return [writer.add(path, positions) for path, positions in vectors], writer.finish()
    except BaseException:
        sink.abort()
        raise


def store_vectors(
    storage: VectorStorage, path: str, vectors: Iterable[tuple[str, Longs | Encoder]]
) -> tuple[list[WrittenVector], int]:
    """The same at a location, read back from there. Raises UnreadableOutputError where it is not as it was written."""
    written, size_bytes = write_vectors(storage.sink(path), vectors)
    source = confirm_size(storage, path, size_bytes)
    try:
        for vector in written:
            read_vector(source.read_at(vector.offset, vector.length), path, cardinality=vector.cardinality)
    except CorruptFileError as error:
        raise UnreadableOutputError(path, error.reason) from error
    footer = _footer([_described(vector) for vector in written])
    if source.read_at(0, 4) != _FILE_MAGIC or source.read_at(size_bytes - len(footer), len(footer)) != footer:
        raise UnreadableOutputError(path, "its beginning or its footer is not as it was written")
    return written, size_bytes


def _footer(blobs: list[dict[str, Any]]) -> bytes:
    payload = json.dumps({"blobs": blobs, "properties": _CREATED_BY}, separators=(",", ":"), ensure_ascii=False).encode()
    return _FILE_MAGIC + payload + struct.pack("<i4x", len(payload)) + _FILE_MAGIC


def _blob(bitmap: bytes) -> bytes:
    content = _VECTOR_MAGIC + bitmap
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def _described(written: WrittenVector) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": written.offset,
        "length": written.length,
        "properties": {"referenced-data-file": written.data_file, "cardinality": str(written.cardinality)},
    }
