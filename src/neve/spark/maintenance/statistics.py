"""Statistics of columns and partitions, counted by Iceberg and published by us (implements `ports.StatisticsWriter`).

Iceberg's action makes the sketches that other engines read, over Spark. But it publishes them on the metadata that it was begun
with, and so loses its work to whoever commits meanwhile; so its two steps are taken here without the third.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from neve.spark.table.bridge import TableBridge
from neve.spark.table.outcome import reading
from neve.spark.table.redirects import refuse_redirects
from neve.table.state import Sketch, StatisticsFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStatistics:
    """Of one table, as its bridge has loaded it."""

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._bridge = spark, bridge
        self._jvm: Any = spark._jvm
        self._written: dict[str, Any] = {}
        """Java's descriptions by path."""

    def write(self, snapshot_id: int, *, columns: Sequence[str], partitions: bool) -> tuple[StatisticsFile, ...]:
        """A Puffin file of sketches over Spark; numbers by partition in the driver, from manifests."""
        found: list[StatisticsFile] = []
        if columns:
            # Iceberg's action reads the snapshot by the table's name; Spark 3.5 fails there, and others may read elsewhere.
            refuse_redirects(self._spark, self._bridge.properties(), self._bridge.quoted)
        with reading("count the table's values"):
            if columns:
                found.append(self._described(self._sketched(snapshot_id, columns)))
            if partitions:
                handler = self._jvm.org.apache.iceberg.PartitionStatsHandler
                file = handler.computeAndWriteStatsFile(self._bridge.table, snapshot_id)
                self._written[str(file.path())] = file
                size = int(file.fileSizeInBytes())
                found.append(StatisticsFile(snapshot_id=snapshot_id, path=str(file.path()), size_bytes=size))
        return tuple(found)

    def publish(self, files: Sequence[StatisticsFile], *, in_place_of: Collection[str]) -> bool:
        """One exchange of the table's metadata."""
        base = self._bridge.newest("read the table's statistics")
        there = [*base.statisticsFiles(), *base.partitionStatisticsFiles()]
        others = {file.path() for file in there if file.snapshotId() == files[0].snapshot_id} - set(in_place_of)
        if others or base.snapshot(files[0].snapshot_id) is None:
            return False
        changed = self._jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        for file in files:
            java = self._written[file.path]
            changed = changed.setStatistics(java) if file.sketches else changed.setPartitionStatistics(java)
        return self._bridge.swapped(base, changed.build())

    def _sketched(self, snapshot_id: int, columns: Sequence[str]) -> Any:
        names = self._spark.sparkContext._gateway.new_array(self._jvm.java.lang.String, len(columns))
        for place, name in enumerate(columns):
            names[place] = name
        actions = self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)
        action = actions.computeTableStats(self._bridge.table).snapshot(snapshot_id).columns(names)
        return self._step(action, "writeStatsFile", self._step(action, "generateNDVBlobs"))

    def _step(self, action: Any, name: str, *given: Any) -> Any:
        """One of the action's own steps."""
        step = next(method for method in action.getClass().getDeclaredMethods() if method.getName() == name)
        step.setAccessible(True)
        words = self._spark.sparkContext._gateway.new_array(self._jvm.java.lang.Object, len(given))
        for place, value in enumerate(given):
            words[place] = value
        return step.invoke(action, words)

    def _described(self, file: Any) -> StatisticsFile:
        self._written[str(file.path())] = file
        told = json.loads(self._jvm.org.apache.iceberg.StatisticsFileParser.toJson(file))
        return StatisticsFile(
            snapshot_id=told["snapshot-id"],
            path=told["statistics-path"],
            size_bytes=told["file-size-in-bytes"],
            sketches=tuple(_sketch(blob) for blob in told["blob-metadata"]),
        )


def _sketch(blob: dict[str, Any]) -> Sketch:
    told = blob.get("properties", {}).get("ndv")
    return Sketch(field_ids=tuple(blob["fields"]), kind=blob["type"], distinct=None if told is None else int(told))
