"""Which partition spec the `spark` kernel writes in, and how rows of an older spec are brought to the current one.

Called by `spark_kernel`. Where rows change their spec, Iceberg's writer shuffles them by their new partition and sorts them by
it within each task: a task has one file open at a time, however many partitions a group spreads over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.rewrite.live_files import DataFile
from neve.rewrite.work_order import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter


_SHUFFLED = 3
"""Rows in a shuffle take about as many times the bytes that they take in Parquet. Iceberg's own guess goes by the size of files
that the table asks for, and by Spark's setting: a hot partition would be one task's."""


def is_routed(order: WorkOrder, table: Any) -> bool:
    """Whether rows must be shuffled; where the current spec has no partitions, they stay together as they were read."""
    return order.output_spec_id is not None and not table.spec().isUnpartitioned()


def to_spec(writer: DataFrameWriter, order: WorkOrder, tasks: Any, table: Any) -> DataFrameWriter:
    """The writer, told which spec rows are written in: the current one if the order says so, else that of the files read.

    Told the current spec, Iceberg cuts files by its partitions. There is no choice where a column that the older spec
    partitions by was dropped; the files still belong to their old partition, since every row does.
    """
    if order.output_spec_id is not None:
        return _routed(writer.option("output-spec-id", str(order.output_spec_id)), order, table)
    spec, schema = tasks.get(0).spec(), table.schema()
    if any(schema.findField(int(field.sourceId())) is None for field in spec.fields()):
        return writer.option("fanout-enabled", "true").option("output-spec-id", str(table.spec().specId()))
    return writer.option("output-spec-id", str(spec.specId()))


def _routed(writer: DataFrameWriter, order: WorkOrder, table: Any) -> DataFrameWriter:
    """Shuffled by partition.

    A shuffle by hash lets Spark cut partitions that are too large for one task and put small ones together: a task writes
    about a file's worth. In a table with a sort order rows go by range instead, so that files of a partition do not overlap.
    """
    mode = "range" if table.sortOrder().isSorted() else "hash"
    writer = writer.option("fanout-enabled", "false").option("distribution-mode", mode)
    return writer.option("advisory-partition-size", str(_SHUFFLED * order.write.target_bytes))


def home_of(file: DataFile, order: WorkOrder, table: Any) -> dict[str, Any]:
    """Where an output of such an order is, as the result tells it; Iceberg leaves out a partition that is void throughout."""
    if order.output_spec_id is None:
        return {}
    partition = file.get("partition") or [None] * int(table.spec().fields().size())
    return {"spec_id": int(file["spec-id"]), "partition": tuple(partition)}
