"""The `spark` kernel: reads staged scan tasks, deletes applied, and writes through Iceberg's Spark writer, without its commit.

Called by `rewrite` for groups that the other kernels do not handle. Iceberg's own rewrite action commits by itself; this stages
the same tasks and collects the new files from its coordinator, so that proof, commit and record are ours for every kernel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neve.rewrite.group import Kernel
from neve.rewrite.live_files import LiveFile
from neve.rewrite.work_order import Metrics, OutputFile, WorkOrder, WorkResult
from neve.spark.table.bridge import TableBridge
from neve.spark.table.opening import FileIOSources, check_inputs, open_outputs
from neve.spark.tasks.respec import home_of, is_routed, to_spec
from neve.spark.tasks.sorting import Amount, Sorter
from neve.spark.tasks.staging import staged, without_deletes
from neve.table.layout import Layout
from neve.table.metrics import leaf_fields
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 64 * MIB
"""What a task reads of files that are shuffled; where they are not, a task reads what it writes."""


class SparkKernel:
    """Rewrites groups of one table at one snapshot."""

    def __init__(self, spark: SparkSession, bridge: TableBridge, snapshot_id: int) -> None:
        self._spark, self._bridge, self._snapshot_id = spark, bridge, snapshot_id
        self._jvm: Any = spark._jvm

    def run(self, order: WorkOrder, refusals: tuple[str, ...]) -> WorkResult:
        """Rewrites the order's files. Rows are counted by a scan of their own, not by the writer and not from the metadata."""
        began = time.monotonic()
        sources = FileIOSources(self._bridge.table)
        types = {number: field["type"] for number, field in leaf_fields(order.table_schema)}
        check_inputs(order.inputs, sources, types)
        table, coordinator = self._bridge.table, self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        tasks = self._bridge.scan_tasks(self._snapshot_id, [file.path for file in order.inputs])
        with staged(self._spark, self._bridge, tasks) as set_id:
            frame = self._frame(set_id, order)
            live_rows = frame.count()
            read = self._read_rows(tasks, order, live_rows)
            try:
                self._write(self._arranged(frame, order, live_rows), set_id, order, tasks)
                files = self._bridge.describe(coordinator.fetchNewFiles(table, set_id))
            finally:
                coordinator.clearRewrite(table, set_id)
        result = WorkResult(
            order_id=order.order_id,
            group_id=order.group_id,
            inputs_digest=order.digest,
            kernel=Kernel.SPARK,
            refusals=refusals,
            outputs=tuple(_output(LiveFile(file), order.layout, home_of(file, order, table)) for file in files),
            rows_read=read,
            rows_dropped=read - live_rows,
            kept={},
            seconds=time.monotonic() - began,
        )
        return open_outputs(result, sources)

    def _read_rows(self, tasks: Any, order: WorkOrder, live_rows: int) -> int:
        """How many rows Iceberg's reader finds, deleted ones too. It opens footers alone for that."""
        every = without_deletes(self._spark, tasks)
        if every is None:
            return live_rows
        with staged(self._spark, self._bridge, every) as set_id:
            return int(self._frame(set_id, order).count())

    def open_outputs(self, result: WorkResult) -> WorkResult:
        """The result with each of its outputs opened now."""
        return open_outputs(result, FileIOSources(self._bridge.table))

    def _frame(self, set_id: str, order: WorkOrder) -> DataFrame:
        is_shuffled = order.layout is not None or is_routed(order, self._bridge.table)
        split_bytes = SPLIT_BYTES if is_shuffled else _total(order) + 1
        reader = self._spark.read.format("iceberg").option("scan-task-set-id", set_id)
        return reader.option("split-size", str(split_bytes)).option("file-open-cost", "0").load(set_id)

    def _arranged(self, frame: DataFrame, order: WorkOrder, rows: int) -> DataFrame:
        """As many partitions as there should be files, in the layout's order. Iceberg's reader makes more where specs or
        deletes differ."""
        if is_routed(order, self._bridge.table):
            return frame
        if order.layout is None:
            return frame.coalesce(max(1, round(_total(order) / order.write.target_bytes)))
        size_bytes = _total(order) * rows // max(1, sum(file.records for file in order.inputs))
        # A tenth of a file more is spread over the others.
        amount = Amount(rows, size_bytes, files=max(1, math.ceil(size_bytes / order.write.target_bytes - 0.1)))
        catalog = str(self._bridge.table.name()).partition(".")[0]
        return Sorter(self._spark, catalog).laid_out(frame, order.layout, amount)

    def _write(self, frame: DataFrame, set_id: str, order: WorkOrder, tasks: Any) -> None:
        form = self._bridge.properties().get("write.format.default", "parquet")
        # A session's spark.datasource.iceberg.* are options of every writer that does not name them itself.
        writer = frame.write.format("iceberg").option("write-format", form).option("merge-schema", "false")
        writer = writer.option("rewritten-file-scan-task-set-id", set_id)
        writer = writer.option("target-file-size-bytes", str(order.write.target_bytes)).option("distribution-mode", "none")
        writer = to_spec(writer, order, tasks, self._bridge.table)
        if order.layout is not None and order.output_spec_id is None:
            # Parts are equal in rows, not in bytes: one that comes out somewhat larger shall not leave a tiny file behind.
            writer = writer.option("target-file-size-bytes", str(order.write.target_bytes * 3 // 2))
            writer = writer.option("use-table-distribution-and-ordering", "false")
        if form == "parquet":
            writer = writer.option("compression-codec", order.write.codec)  # an order tells Parquet's; others keep the table's
        writer.mode("append").save(set_id)


def _total(order: WorkOrder) -> int:
    return sum(file.size_bytes for file in order.inputs)


def _output(file: LiveFile, layout: Layout | None, home: Mapping[str, Any]) -> OutputFile:
    """What was written; sorted by the layout's order, or by what Iceberg's writer says where none was asked for."""
    offsets = tuple(file.data_file.get("split-offsets") or ())
    return OutputFile(
        path=file.path,
        file_format=file.data_file["file-format"],
        size_bytes=file.size_bytes,
        records=file.records,
        row_groups=max(1, len(offsets)),
        split_offsets=offsets,
        sort_order_id=layout.order_id if layout else int(file.data_file.get("sort-order-id") or 0),
        metrics={i: Metrics.of(metrics) for i, metrics in file.metrics.items()},
        **home,
    )
