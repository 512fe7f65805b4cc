"""Row lineage for the `copy` kernel: the two columns of format v3 that every row must carry into another file.

Used by `copying` and `output`. A row group that lacks the columns gets them from a small Parquet file made here, whose only row
group is then copied beside it like any other; where the columns hold nulls, they alone are decoded and made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from neve.kernels.faults import CorruptFileError
from neve.kernels.parquet import thrift
from neve.kernels.parquet.footer import MAGIC, Footer, read_footer
from neve.kernels.parquet.footer_writing import MovedGroup, group_bytes
from neve.kernels.parquet.row_groups import RowGroup
from neve.kernels.parquet.schema import LINEAGE_ALONE, LINEAGE_IDS, has_lineage
from neve.kernels.streams import BytesSource

if TYPE_CHECKING:
    import pyarrow as pa

Lineage = tuple[int | None, int | None]
"""A file's first row id and its data sequence number, as its manifest entry has them."""

_ROW_ID, _NUMBER = LINEAGE_IDS
_COUNT = len(LINEAGE_IDS)


@dataclass(frozen=True, slots=True)
class Splice:
    """A Parquet file in memory whose row group holds nothing but the lineage of another's rows."""

    footer: Footer
    data: bytes


def without_incomplete(footer: Footer) -> Footer:
    """The footer, lineage that must be made anew set apart in its row groups."""
    if footer.objection is not None or not has_lineage(footer.schema):
        return footer
    return replace(footer, groups=tuple(_cut(group) for group in footer.groups))


def _cut(group: RowGroup) -> RowGroup:
    kept, lineage = group.chunks[:-_COUNT], group.chunks[-_COUNT:]
    if not kept or all(chunk.nulls == 0 for chunk in lineage):
        return group
    return group._replace(chunks=kept, end=kept[-1].end, incomplete=lineage)


def by_group(footer: Footer, lineage: Lineage) -> list[Lineage]:
    """The lineage of each row group's first row."""
    first, number = lineage
    starts = accumulate((group.rows for group in footer.groups[:-1]), initial=0)
    return [(None if first is None else first + start, number) for start in starts]


def made(rows: int, lineage: Lineage) -> Splice:
    """The lineage of rows whose file stores none."""
    import numpy as np
    import pyarrow as pa

    first, number = lineage
    row_ids = pa.nulls(rows, pa.int64()) if first is None else pa.array(np.arange(first, first + rows, dtype=np.int64))
    return _encoded(row_ids, pa.repeat(pa.scalar(number, pa.int64()), rows))


def completed(footer: Footer, group: RowGroup, data: bytes, lineage: Lineage) -> Splice:
    """The lineage that a file stores, nulls filled; `data` are the bytes of its two column chunks."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    row_ids, numbers = _decoded(footer, group, data)
    first, number = lineage
    if first is not None:
        row_ids = pc.coalesce(row_ids, pa.array(np.arange(first, first + group.rows, dtype=np.int64)))
    return _encoded(row_ids, numbers if number is None else pc.fill_null(numbers, number))


def _encoded(row_ids: pa.Array, numbers: pa.Array) -> Splice:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(i)}) for name, i in LINEAGE_IDS.items()]
    out = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays([row_ids, numbers], schema=pa.schema(fields)),
        out,
        row_group_size=len(row_ids),
        # Packed like this, a million consecutive ids take 22 kB; compressed plain numbers take 1 MB. Readers of row lineage
        # know the encoding: Iceberg's vectorized one learned both in the same release.
        use_dictionary=[_NUMBER],
        column_encoding={_ROW_ID: "DELTA_BINARY_PACKED"},
        compression="none",
        write_page_index=True,
        store_schema=False,
    )
    data = out.getvalue().to_pybytes()
    return Splice(read_footer(BytesSource(data, "the row lineage"), known=LINEAGE_ALONE), data)


def _decoded(footer: Footer, group: RowGroup, data: bytes) -> tuple[pa.Array, pa.Array]:
    """Both columns, read by pyarrow from a file that holds nothing else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(_alone(footer, group, data))).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(footer.path, f"its row lineage cannot be decoded, {error}") from error
    if table.num_rows != group.rows:
        raise CorruptFileError(footer.path, f"it has row lineage for {table.num_rows} of {group.rows} rows")
    return table[0].combine_chunks(), table[1].combine_chunks()


def _alone(footer: Footer, group: RowGroup, data: bytes) -> bytes:
    plain = [chunk._replace(bloom=None, bloom_move=None) for chunk in group.incomplete]
    only = group._replace(chunks=tuple(plain), start=plain[0].start, end=plain[-1].end, incomplete=())
    moved = group_bytes(MovedGroup(footer, only, start=len(MAGIC)), 0)
    fields = (b"\x15\x02\x19", LINEAGE_ALONE.raw, b"\x16", thrift.integer(group.rows), b"\x19\x1c", moved, b"\0")
    raw = b"".join(fields)
    return b"".join((MAGIC, data, raw, len(raw).to_bytes(4, "little"), MAGIC))
