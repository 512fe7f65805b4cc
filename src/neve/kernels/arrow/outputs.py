"""One output file: pyarrow's writer on a sink, with the properties that Iceberg's table asks for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.arrow.bounds import long_bounds
from neve.kernels.arrow.counting import Tally, blank, by_field
from neve.kernels.arrow.encoding import DELTA, Encodings
from neve.kernels.arrow.footer import Bounds, file_metrics, split_offsets
from neve.kernels.arrow.model import ArrowOutput, BloomFilter, WriteOptions
from neve.kernels.arrow.schema import ArrowLeaf
from neve.kernels.streams import Sink
from neve.table.units import MIB

CODECS = {"uncompressed": "none", "lz4_raw": "lz4"} | {name: name for name in ("zstd", "snappy", "gzip", "lz4", "none")}
"""Not brotli: pyarrow writes it, and Spark reads it only with a codec that neither Spark nor Iceberg brings."""
_LEVELLED = frozenset({"zstd", "gzip"})
_BUFFER_BYTES = 4 * MIB
_WRITER_OPTIONS = frozenset(inspect.signature(pq.ParquetWriter.__init__).parameters)


def writes_bloom_filters() -> bool:
    """Whether this pyarrow can write them."""
    return "bloom_filter_options" in _WRITER_OPTIONS


def writes_local_times() -> bool:
    """Whether this pyarrow can write times of day as Iceberg means them, without a zone."""
    return "write_time_adjusted_to_utc" in _WRITER_OPTIONS


class _SinkFile:
    """A sink as the file object that pyarrow writes to."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.closed = False
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sink.write(view)
        self.size_bytes += view.nbytes
        return view.nbytes

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """The sink decides when."""

    def close(self) -> None:
        self.closed = True


class ParquetOutput:
    """A file being written, one row group per call."""

    def __init__(
        self, sink: Sink, schema: pa.Schema, leaves: Sequence[ArrowLeaf], iceberg_schema: str, properties: Mapping[str, Any]
    ) -> None:
        self.rows = 0
        self._sink = sink
        self._leaves = leaves
        self._counts = blank(leaves)
        self._long_bounds: dict[int, list[Bounds]] = {}
        self._file = _SinkFile(sink)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), _BUFFER_BYTES)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(self._stream, schema, metadata_collector=self._metadata, **properties)
        self._writer.add_key_value_metadata({"iceberg.schema": iceberg_schema})

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, table: pa.Table, counts: Tally) -> int:
        """Writes one row group; returns the bytes that it took."""
        before = self.size_bytes
        for field_id, bounds in long_bounds(table, self._leaves).items():
            self._long_bounds.setdefault(field_id, []).append(bounds)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._counts += counts
        self.rows += table.num_rows
        return self.size_bytes - before

    def close(self) -> ArrowOutput:
        """Completes the file; it exists after this."""
        self._writer.close()
        self._stream.close()
        self._sink.close()
        metadata = self._metadata[0]
        nans = {field_id: counts.nans for field_id, counts in by_field(self._counts, self._leaves).items()}
        return ArrowOutput(
            rows=self.rows,
            size_bytes=self._file.size_bytes,
            row_groups=metadata.num_row_groups,
            split_offsets=split_offsets(metadata),
            metrics=file_metrics(metadata, self._leaves, nans, self._long_bounds),
        )

    def abort(self) -> None:
        """Gives up; the sink leaves nothing behind."""
        self._sink.abort()


def writer_properties(
    options: WriteOptions, encodings: Encodings, leaves: Sequence[ArrowLeaf], *, row_group_rows: int, widest_bytes: float
) -> dict[str, Any]:
    """pyarrow's writer properties: the physical form that Iceberg's Java writer gives a file."""
    properties: dict[str, Any] = {
        "version": "2.6",
        "data_page_version": "1.0",
        "compression": CODECS[options.codec],
        "compression_level": options.level if options.codec in _LEVELLED else None,
        "use_dictionary": list(encodings.dictionaries) or False,
        "column_encoding": dict.fromkeys(encodings.deltas, DELTA) or None,
        "dictionary_pagesize_limit": options.dictionary_bytes,
        "data_page_size": options.page_bytes,
        "write_page_index": True,
        # pyarrow looks at a page's size only between batches, so long values need short ones; and it gathers the statistics
        # of dictionaries once per batch, so the usual thousand rows would cost a fifth of the time.
        "write_batch_size": min(max(int(options.page_bytes / max(widest_bytes, 1.0)), 1), options.page_rows),
        "store_schema": False,
        "store_decimal_as_integer": True,
    }
    if "max_rows_per_page" in _WRITER_OPTIONS:
        properties["max_rows_per_page"] = options.page_rows
    paths = {leaf.field_id: leaf.path for leaf in leaves}
    filters = {paths[i]: _bloom(options, wanted, row_group_rows) for i, wanted in options.bloom_filters.items() if i in paths}
    return properties | ({"bloom_filter_options": filters} if filters else {})


def _bloom(options: WriteOptions, wanted: BloomFilter, row_group_rows: int) -> dict[str, Any]:
    # A block filter of n bytes holds about n divided by (the bytes that one value needs at this rate) values.
    bits_per_value = -8 / math.log(1 - wanted.fpp ** (1 / 8))
    most = max(int(options.bloom_filter_max_bytes * 8 / bits_per_value), 1)
    return {"ndv": min(wanted.ndv or max(row_group_rows, 1), most), "fpp": wanted.fpp}
