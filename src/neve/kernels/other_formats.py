"""Opens ORC and Avro files that Iceberg's writer wrote, by readers that did not. Used by `spark.table.opening`.

pyarrow reads the footer of an ORC file and counts its rows. It reads no Avro, so that of such a file only the beginning and the
marker at its end are compared.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from neve.kernels.faults import CorruptFileError
from neve.kernels.opening import PYARROW
from neve.kernels.parquet.thrift import read_int
from neve.kernels.streams import Source
from neve.rewrite.work_order import OpenedFile
from neve.table.units import MIB

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_AVRO_MAGIC = b"Obj\x01"
_MARKER_BYTES = 16
_HEADER_BYTES = 4 * MIB
"""The header of an Avro file, with the schema in it, is shorter. Avro's integers are encoded as Thrift's are."""


def open_orc(source: Source) -> OpenedFile:
    """What pyarrow finds in the footer of a complete ORC file. Raises CorruptFileError where it does not open."""
    import pyarrow as pa
    from pyarrow.orc import ORCFile

    stream = _Stream(source)
    try:
        rows = ORCFile(pa.PythonFile(stream, mode="r")).nrows
    except (pa.ArrowException, OSError, ValueError) as error:
        if stream.failure is not None:
            raise stream.failure from error  # storage that does not answer proves nothing about the file
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorruptFileError(source.path, f"pyarrow cannot open it, {said}") from error
    return OpenedFile(reader=PYARROW, size_bytes=source.size_bytes, rows=rows)


def open_avro(source: Source) -> OpenedFile:
    """Compares the marker at the end of a complete Avro file with its header. Raises CorruptFileError where they differ."""
    size = source.size_bytes
    marker = _avro_marker(source.read_at(0, min(size, _HEADER_BYTES)))
    if marker is None or source.read_at(size - len(marker), len(marker)) != marker:
        raise CorruptFileError(source.path, "it does not begin and end like an Avro file")
    return OpenedFile(reader="its markers", size_bytes=size)


def _avro_marker(header: bytes) -> bytes | None:
    """The marker after an Avro file's header, which follows every block of rows; None where there is none."""
    at = len(_AVRO_MAGIC)
    if not header.startswith(_AVRO_MAGIC):
        return None
    try:
        while (found := read_int(header, at))[0]:
            count, at = found
            if count < 0:  # then the length of this part of the map follows
                count, at = -count, read_int(header, at)[1]
            for _ in range(2 * count):
                length, at = read_int(header, at)
                at += length
    except (IndexError, ValueError):
        return None
    marker = header[found[1] : found[1] + _MARKER_BYTES]
    return marker if len(marker) == _MARKER_BYTES else None


class _Stream(io.RawIOBase):
    """A source as a file object."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size_bytes}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), max(0, self._source.size_bytes - self._at))
        try:
            view[:length] = self._source.read_at(self._at, length) if length else b""
        except Exception as error:
            self.failure = error
            raise
        self._at += length
        return length
