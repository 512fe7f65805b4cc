"""The `spark` kernel: reads staged scan tasks, deletes applied, and writes through Iceberg's Spark writer, without its commit.

Called by `rewrite` for groups that the other kernels do not handle. Iceberg's own rewrite action commits by itself; this stages
the same tasks and collects the new files from its coordinator, so that proof, commit and record are ours for every kernel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from neve.core.live import LiveFile
from neve.core.plan_words import Kernel
from neve.core.work import Metrics, OutputFile, WorkOrder, WorkResult
from neve.engines.spark.bridge import TableBridge
from neve.engines.spark.staging import staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkKernel:
    """Rewrites groups of one table at one snapshot."""

    def __init__(self, spark: SparkSession, bridge: TableBridge, snapshot_id: int) -> None:
        self._spark, self._bridge, self._snapshot_id = spark, bridge, snapshot_id
        self._jvm: Any = spark._jvm

    def run(self, order: WorkOrder, refusals: tuple[str, ...]) -> WorkResult:
        """Rewrites the order's files. Rows are counted by a scan of their own, not by the writer."""
        began = time.monotonic()
        table, coordinator = self._bridge.table, self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        tasks = self._bridge.scan_tasks(self._snapshot_id, [file.path for file in order.inputs])
        with staged(self._spark, self._bridge, tasks) as set_id:
            frame = self._frame(set_id, order)
            live_rows = frame.count()
            try:
                self._write(frame.coalesce(_files(order)), set_id, order)
                files = self._bridge.describe(coordinator.fetchNewFiles(table, set_id))
            finally:
                coordinator.clearRewrite(table, set_id)
        read = sum(file.records for file in order.inputs)
        return WorkResult(
            order_id=order.order_id,
            group_id=order.group_id,
            inputs_digest=order.digest,
            kernel=Kernel.SPARK,
            refusals=refusals,
            outputs=tuple(_output(LiveFile(file)) for file in files),
            rows_read=read,
            rows_dropped=read - live_rows,
            kept={},
            seconds=time.monotonic() - began,
            cpu_seconds=0.0,
            peak_memory_bytes=0,
        )

    def _frame(self, set_id: str, order: WorkOrder) -> DataFrame:
        total = sum(file.size_bytes for file in order.inputs)
        reader = self._spark.read.format("iceberg").option("scan-task-set-id", set_id)
        return reader.option("split-size", str(total + 1)).option("file-open-cost", "0").load(set_id)

    def _write(self, frame: DataFrame, set_id: str, order: WorkOrder) -> None:
        writer = frame.write.format("iceberg").option("rewritten-file-scan-task-set-id", set_id)
        writer = writer.option("target-file-size-bytes", str(order.write.target_bytes)).option("distribution-mode", "none")
        if self._bridge.properties().get("write.format.default", "parquet") == "parquet":
            writer = writer.option("compression-codec", order.write.codec)  # an order tells Parquet's; others keep the table's
        writer.mode("append").save(set_id)


def _files(order: WorkOrder) -> int:
    """As many writers as there should be files; Iceberg's reader makes more tasks than that where specs or deletes differ."""
    return max(1, round(sum(file.size_bytes for file in order.inputs) / order.write.target_bytes))


def _output(file: LiveFile) -> OutputFile:
    offsets = tuple(file.data_file.get("split-offsets") or ())
    return OutputFile(
        path=file.path,
        size_bytes=file.size_bytes,
        records=file.records,
        row_groups=max(1, len(offsets)),
        split_offsets=offsets,
        sort_order_id=int(file.data_file.get("sort-order-id") or 0),
        metrics={i: Metrics.of(metrics) for i, metrics in file.metrics.items()},
    )
