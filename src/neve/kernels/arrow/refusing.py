"""What this kernel does not do right, said before any work, so that the planner can fall through to another kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.arrow.model import WriteOptions
from neve.kernels.arrow.naming import NameMapping, has_ids
from neve.kernels.arrow.outputs import CODECS, writes_bloom_filters, writes_local_times
from neve.kernels.arrow.schema import leaves, repeated_names, unsupported, with_lineage

_UUID_SINCE = 21


def refusal(
    schema: Mapping[str, Any],
    options: WriteOptions,
    footers: Sequence[pq.FileMetaData] = (),
    *,
    name_mapping: NameMapping | None = None,
) -> str | None:
    """Why a group is not for this kernel, None if it is."""
    return unsupported(schema) or _unwritable(schema, options) or _unreadable(footers, name_mapping)


def _unwritable(schema: Mapping[str, Any], options: WriteOptions) -> str | None:
    if options.codec not in CODECS:
        return f"this kernel does not write codec {options.codec}, which not every reader has"
    if options.bloom_filters and not writes_bloom_filters():
        return f"pyarrow {pa.__version__} does not write bloom filters"
    if reason := repeated_names(with_lineage(schema) if options.row_lineage else schema):
        return reason
    kinds = {leaf.kind for leaf in leaves(schema)}
    if "uuid" in kinds and int(pa.__version__.split(".")[0]) < _UUID_SINCE:
        return f"pyarrow {pa.__version__} does not mark uuid columns"
    if "time" in kinds and not writes_local_times():
        return f"pyarrow {pa.__version__} marks time columns as UTC"
    if any(leaf.repeated for leaf in leaves(schema)) and not counts_nested_nulls():
        return f"pyarrow {pa.__version__} miscounts nulls below lists and maps"
    return None


@cache
def counts_nested_nulls() -> bool:
    """Whether this pyarrow's footers tell the nulls below a missing list; version 21 says none in some cases."""
    missing = pa.table({"l": pa.array([None], pa.list_(pa.struct([("x", pa.bool_())])))})
    out = pa.BufferOutputStream()
    pq.write_table(missing, out)
    statistics = pq.read_metadata(pa.BufferReader(out.getvalue())).row_group(0).column(0).statistics
    return bool(statistics is not None and statistics.null_count == 1)


def _unreadable(footers: Sequence[pq.FileMetaData], name_mapping: NameMapping | None) -> str | None:
    for footer in footers:
        if name_mapping is None and not has_ids(footer.schema.to_arrow_schema()):
            return "a file has no field ids and the table has no name mapping"
        for i in range(footer.num_row_groups):
            group = footer.row_group(i)
            codecs = {group.column(j).compression for j in range(group.num_columns)}
            if unknown := sorted(codec for codec in codecs if not _reads(codec)):
                return f"a file is compressed with {unknown[0]}"
    return None


def _reads(codec: str) -> bool:
    name = codec.lower()
    return codec == "UNCOMPRESSED" or (name in (*CODECS, "brotli") and pa.Codec.is_available(CODECS.get(name, name)))
