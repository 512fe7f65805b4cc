"""The fingerprint of Parquet files as pyarrow decodes them, under the table's current schema, columns by field id.

Called in Spark tasks by `spark.tasks.content` for files that Spark wrote. Reads as the arrow kernel does, within its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from neve.kernels.arrow import ArrowInput, RefusedError, SchemaMismatchError
from neve.kernels.arrow.layout import Layouts
from neve.kernels.arrow.naming import NameMapping
from neve.kernels.arrow.projection import Mismatch, project
from neve.kernels.arrow.reading import Reader
from neve.kernels.arrow.schema import arrow_schema, unsupported
from neve.kernels.content.rows import fingerprint
from neve.rewrite.content import Fingerprint
from neve.table.units import MIB

_MEMORY_BYTES = 256 * MIB


def fingerprint_files(
    inputs: Sequence[ArrowInput], schema: Mapping[str, Any], *, name_mapping: NameMapping | None = None
) -> Fingerprint:
    """The fingerprint of all rows of these files. Raises RefusedError for a schema that pyarrow does not read."""
    if reason := unsupported(schema):
        raise RefusedError(f"Cannot read with pyarrow: {reason}", hint="Spark can.")
    return fingerprint(_batches(inputs, schema, name_mapping))


def _batches(
    inputs: Sequence[ArrowInput], schema: Mapping[str, Any], name_mapping: NameMapping | None
) -> Iterator[pa.RecordBatch]:
    marked = arrow_schema(schema, written=True)
    layouts = Layouts([field["id"] for field in schema["fields"]], [], name_mapping)
    with closing(iter(Reader(inputs, layouts, _MEMORY_BYTES))) as files:
        for opened in files:
            given = inputs[opened.index]
            try:
                plan = project(schema, opened.layout.schema, given.constants)
                for batch in opened.batches:
                    columns = zip(plan.apply(batch.rows), marked, strict=True)
                    yield pa.record_batch([_marked(column, field.type) for column, field in columns], marked.names)
            except (Mismatch, pa.ArrowException) as error:
                raise SchemaMismatchError(f"Cannot read {given.source.path}: {error}") from error


def _marked(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column with its uuids marked as such, which the projection leaves as bytes."""
    return column if column.type.equals(kind) else column.cast(kind)
