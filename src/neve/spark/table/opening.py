"""Opens files in the driver through the table's own FileIO: outputs that Spark wrote, outputs of earlier processes, and inputs.

Used by `rewrite`, `spark_kernel` and `maintenance.ttl`. Iceberg's Java wrote these outputs, so that pyarrow opens them, from
bytes that the FileIO reads: any storage that the table is on will do. Avro files are opened by `kernels.other_formats`, as ORC
files are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from neve.errors import MissingFileError, NeveError, StorageError
from neve.kernels.faults import CorruptFileError, MisreadFileError
from neve.kernels.opening import check_footer, confirm_output, confirm_size, misread_column, open_parquet, read_tail
from neve.kernels.other_formats import open_avro, open_orc
from neve.kernels.parquet.footer import ENCRYPTED_MAGIC
from neve.kernels.stored_column import stored_column
from neve.kernels.streams import Source, check_range
from neve.maintenance.ttl_proof import FooterFinding
from neve.rewrite.live_files import LiveFile
from neve.rewrite.work_order import InputFile, OpenedFile, WorkResult
from neve.spark.table.outcome import is_missing

_THREADS = 8
_REASON_BYTES = 300


class FileIOSources:
    """Files of one table, read through py4j."""

    def __init__(self, table: Any) -> None:
        self._io = table.io()

    def stored(self, location: str) -> Source:
        """A file to read, of the size that it has now."""
        return _FileIOSource(self._io, location)


class _FileIOSource:
    def __init__(self, io: Any, location: str) -> None:
        self.path = location
        try:
            self._file = io.newInputFile(location)
            self.size_bytes = int(self._file.getLength())
        except Exception as error:  # py4j gives every Java exception as the same type
            kind = MissingFileError if is_missing(error) else StorageError
            raise kind(f"Cannot open {location}: {_reason(error)}") from error

    def read_at(self, offset: int, length: int) -> bytes:
        check_range(self, offset, length)
        try:
            stream = self._file.newStream()
            try:
                stream.seek(offset)
                data = bytes(stream.readNBytes(length))
            finally:
                stream.close()
        except Exception as error:
            raise StorageError(f"Cannot read {self.path}: {_reason(error)}") from error
        if len(data) != length:
            raise StorageError(f"Cannot read {self.path}: it ended after {offset + len(data)} bytes")
        return data


def open_outputs(result: WorkResult, sources: FileIOSources) -> WorkResult:
    """The result with each of its outputs opened now, or with the reason why not."""
    seen = tuple(output.seen_as(_opened(sources, output.path, output.size_bytes)) for output in result.outputs)
    return result.model_copy(update={"outputs": seen})


def _opened(sources: FileIOSources, path: str, size_bytes: int) -> OpenedFile | str:
    try:
        if path.endswith((".orc", ".avro")):
            source = confirm_size(sources, path, size_bytes)
            return open_orc(source) if path.endswith(".orc") else open_avro(source)
        return confirm_output(sources, path, size_bytes, strictly=False)
    except NeveError as error:
        if error.retryable:
            raise  # storage that does not answer proves nothing about the file
        return str(error)


def check_inputs(inputs: Iterable[InputFile], sources: FileIOSources, types: Mapping[int, str]) -> None:
    """Raises CorruptFileError for a Parquet file that does not open, or that has other rows than the table says, and
    MisreadFileError for one whose values Iceberg's reader takes for others.

    Iceberg's reader in Spark follows a damaged footer where other readers refuse it. It leaves out row groups, or asks for as
    much memory as a column chunk claims, which ends the whole session. Its vectorized reader ignores the unit of timestamps and
    the scale of decimals, and the proof compares counts and wide bounds only.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="neve-open") as threads:
        for _ in threads.map(lambda file: _check_input(file, sources, types), inputs):
            pass


def _check_input(file: InputFile, sources: FileIOSources, types: Mapping[int, str]) -> None:
    if file.path.endswith((".orc", ".avro")):
        return
    source = sources.stored(file.path)
    tail = read_tail(source)
    opened = open_parquet(source, tail)
    if opened.rows is not None and opened.rows != file.records:
        raise CorruptFileError(file.path, f"it holds {opened.rows} rows, the table says {file.records}")
    if tail[-4:] != ENCRYPTED_MAGIC:
        check_footer(file.path, source.size_bytes, tail)
    if (reason := misread_column(file.path, tail, types)) is not None:
        raise MisreadFileError(file.path, reason)


def stored_columns(
    files: Sequence[LiveFile], field_id: int, sources: FileIOSources, name_mapping: str | None
) -> dict[str, FooterFinding]:
    """What the footers of data files say of one column, by path. Only Parquet files are opened."""
    mapping = json.loads(name_mapping) if name_mapping else None

    def opened(file: LiveFile) -> FooterFinding:
        form = str(file.data_file["file-format"]).lower()
        if form != "parquet":
            return FooterFinding(unknown=f"it is {form}, of which Neve reads no statistics")
        return stored_column(sources, file.path, file.records, field_id, mapping)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="neve-open") as threads:
        return dict(zip((file.path for file in files), threads.map(opened, files), strict=True))


def _reason(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return " ".join(str(java.toString() if java is not None else error).split())[:_REASON_BYTES]
