"""What a table's metadata needs, found on Spark and streamed to the driver in batches (implements `ports.Reachability`).

Iceberg's own tasks read manifest lists and manifests, each once, over all snapshots and so over all refs.
Paths are compared without scheme and authority, so that s3a://b/f is s3://b/f: in doubt a file is needed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from neve.errors import StorageError
from neve.maintenance.quarantine import Candidate
from neve.spark.maintenance.expiry import snapshot_ids, without
from neve.spark.maintenance.judging import as_read, key_of
from neve.spark.runtime.job_failure import reason_of
from neve.spark.table.bridge import TableBridge
from neve.spark.table.descriptions import java_class
from neve.spark.table.methods import Methods
from neve.spark.table.outcome import patiently, reading
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_BATCH = 50_000
"""Paths that are asked for at a time."""
_WAVES = 4
"""Tasks for each core: so many that a slow one does not hold up the rest."""

_REMOVES_METADATA = "write.metadata.delete-after-commit.enabled"

_REASONS = {
    "DATA": "data file of expired snapshots",
    "POSITION_DELETES": "delete file of expired snapshots",
    "EQUALITY_DELETES": "delete file of expired snapshots",
    "Manifest": "manifest of expired snapshots",
    "Manifest List": "manifest list of an expired snapshot",
    "Statistics Files": "statistics of an expired snapshot",
    "Others": "metadata or statistics that the table names no more",
}


_DATASETS = ("manifestListDS", "statisticsFileDS")
_PARTITIONS = "spark.sql.shuffle.partitions"
_ACTIONS = "org.apache.iceberg.spark.actions"
_COMPILED_BYTES = 8_000
"""Java never compiles a larger method, and what it only interprets takes several times as long."""
_OPEN_BYTES = 4 * MIB
"""What Iceberg reckons that opening a file costs."""
_BEAN = (
    "content",
    "path",
    "length",
    "0 AS sequenceNumber",
    "partition_spec_id AS partitionSpecId",
    "added_snapshot_id AS addedSnapshotId",
    "key_metadata AS keyMetadata",
)
"""A manifest as Iceberg's tasks take it."""


def few_tasks(spark: SparkSession) -> int:
    """As many as there is work for. A shuffle's usual number is far too large for most tables."""
    cores: int = spark.sparkContext.defaultParallelism
    return min(int(str(spark.conf.get(_PARTITIONS))), _WAVES * cores)


def own_session(spark: SparkSession) -> Any:
    """A Java session beside the caller's: its shuffles make few tasks, and its code is in parts that Java does compile."""
    session = spark._jsparkSession.newSession()
    session.conf().set(_PARTITIONS, str(few_tasks(spark)))
    session.conf().set("spark.sql.codegen.hugeMethodLimit", str(_COMPILED_BYTES))
    return session


def in_few_tasks(spark: SparkSession, files: int) -> Any:
    """Options for reading metadata out of so many files: by itself Iceberg makes a task of every four small ones."""
    jvm: Any = spark._jvm
    options = jvm.java.util.HashMap()
    options.put("split-size", str(_OPEN_BYTES * ceil(max(files, 1) / few_tasks(spark))))
    options.put("file-open-cost", str(_OPEN_BYTES))
    return options


@contextmanager
def known_files(spark: SparkSession, bridge: TableBridge) -> Iterator[DataFrame]:
    """Every file that the loaded metadata names, in one column `path`, as it is spelled there; some more than once.

    To be used within the block: what is kept of it for a while goes at its end.
    """
    with _Iceberg(spark, bridge).reading("find what the table needs") as iceberg:
        yield as_read(iceberg.everything(bridge.table))


class SparkReachability:
    """Over one loaded table."""

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._bridge, self._iceberg = spark, bridge, _Iceberg(spark, bridge)

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        """Files that an older metadata file needs and the newest one does not. Raises at once if the older is not readable."""
        parser, table = java_class(self._bridge.jvm, "TableMetadataParser"), self._bridge.table
        before = patiently(f"read {metadata_location}", lambda: parser.read(table.io(), metadata_location))
        self._bridge.refresh()
        after = table.operations().current()
        # Where Iceberg removes versions itself that leave the log, they are gone already.
        return self._lost(before, after, metadata_too=not after.propertyAsBoolean(_REMOVES_METADATA, False))

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        """Files that only these snapshots need."""
        current = self._bridge.table.operations().current()
        return self._lost(current, without(self._bridge, current, snapshots), metadata_too=False)

    def _lost(self, before: Any, after: Any, *, metadata_too: bool = True) -> Iterator[Candidate]:
        from pyspark.sql import functions as f

        old, kept = self._iceberg.static(before), snapshot_ids(self._bridge, after)
        gone, known = snapshot_ids(self._bridge, before) - kept, _statistics_sizes(self._bridge, before)
        with self._iceberg.reading("find what nothing needs any more"):
            of_gone = self._iceberg.static(without(self._bridge, before, kept))
            parts = [self._iceberg.sized_content(of_gone)] if gone else []
            parts += [_unsized(self._iceberg.others(old))] if metadata_too else []
            if not parts:
                return
            candidates = _union(parts).withColumn("key", key_of(f.col("path"))).dropDuplicates(["key"])
            valid = as_read(self._needed_by(after)).select(key_of(f.col("path")).alias("key"))
            for row in candidates.join(valid, "key", "left_anti").toLocalIterator(prefetchPartitions=True):
                reason = _REASONS.get(row.type, "named by expired snapshots")
                yield Candidate(path=row.path, reason=reason, size_bytes=known.get(row.path, row.size_bytes))

    def _needed_by(self, metadata: Any) -> DataFrame:
        """All that some metadata names, over every snapshot and so over every ref."""
        return self._iceberg.everything(self._iceberg.static(metadata))

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Those that the newest metadata names; its manifests are read once, however many paths there are."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as f

        asked = iter(paths)
        batch = list(islice(asked, _BATCH))
        if not batch:
            return
        self._bridge.refresh()
        with self._iceberg.reading("look up files in the table's metadata"):
            known = as_read(self._iceberg.everything(self._bridge.table)).select(key_of(f.col("path")).alias("key"))
            self._iceberg.keep(known.persist(StorageLevel.DISK_ONLY))
            while batch:
                found = self._spark.createDataFrame([(path,) for path in batch], "path string")
                keyed = f.broadcast(found.withColumn("key", key_of(f.col("path"))))
                yield from [row.path for row in known.join(keyed, "key").select("path").distinct().collect()]
                batch = list(islice(asked, _BATCH))


def _unsized(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("path", "type", "CAST(NULL AS BIGINT) AS size_bytes")


def _statistics_sizes(bridge: TableBridge, metadata: Any) -> dict[str, int]:
    """The sizes of statistics files by path, which the metadata file itself has."""
    found = json.loads(java_class(bridge.jvm, "TableMetadataParser").toJson(metadata))
    files = [*(found.get("statistics") or ()), *(found.get("partition-statistics") or ())]
    return {str(file["statistics-path"]): int(file["file-size-in-bytes"]) for file in files}


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.unionByName(right), frames)


@contextmanager
def _working(purpose: str) -> Iterator[None]:
    """Around a Spark job: a manifest that is not there is a fault of storage, whatever raises it."""
    from pyspark.errors import PySparkException

    try:
        with reading(purpose):
            yield
    except PySparkException as error:
        raise StorageError(f"Cannot {purpose}: {str(error).strip().splitlines()[0]}") from error


class _Iceberg:
    """What Iceberg's actions read, as frames of `path` and `type`; reflection opens them, since they are protected.

    Theirs read every manifest list twice, for manifests and again for what is in them, a few in each of many tasks.
    """

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._jvm, self._bridge = spark, bridge.jvm, bridge
        self._methods = Methods(spark)
        self._tasks = few_tasks(spark)
        self._session = own_session(spark)
        self._kept: list[DataFrame] = []

    @contextmanager
    def reading(self, purpose: str) -> Iterator[_Iceberg]:
        """Around all use of frames, making them included, for which Spark looks at manifest lists already.

        Manifests are kept until its end, so that their lists are not read again.
        """
        try:
            with _working(purpose):
                yield self
        finally:
            while self._kept:
                self._kept.pop().unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Remembers a frame that is kept by Spark until then."""
        self._kept.append(frame)
        return frame

    def static(self, metadata: Any) -> Any:
        """A table that stands at this metadata."""
        operations = java_class(self._jvm, "StaticTableOperations")(metadata, self._bridge.table.io())
        return java_class(self._jvm, "BaseTable")(operations, str(metadata.metadataFileLocation()))

    def content(self, table: Any) -> DataFrame:
        """Data and delete files, manifests and their lists, and statistics, of all snapshots."""
        manifests = self._manifests(table)
        paths = manifests.selectExpr("path", "'Manifest' AS type")
        return _union([self._entries(table, manifests), paths, *(self._frame(name, table, None) for name in _DATASETS)])

    def sized_content(self, table: Any) -> DataFrame:
        """The same, each file with its size in a column `size_bytes` where metadata has it."""
        manifests = self._manifests(table)
        paths = manifests.selectExpr("path", "'Manifest' AS type", "length AS size_bytes")
        rest = (_unsized(self._frame(name, table, None)) for name in _DATASETS)
        return _union([self._sized_entries(table, manifests), paths, *rest])

    def others(self, table: Any) -> DataFrame:
        """The metadata file and its log, statistics of all kinds, the version hint."""
        return self._frame("otherMetadataFileDS", table)

    def everything(self, table: Any) -> DataFrame:
        """All that the table's metadata names."""
        return self.content(table).unionByName(self.others(table))

    def _manifests(self, table: Any) -> DataFrame:
        """Each once, as Iceberg's tasks take it."""
        from pyspark.sql import DataFrame

        kind = java_class(self._jvm, "MetadataTableType").ALL_MANIFESTS
        lists = self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(table.snapshots())
        options = in_few_tasks(self._spark, lists)
        found = java_class(self._jvm, "spark.SparkTableUtil").loadMetadataTable(self._session, table, kind, options)
        manifests = DataFrame(found, self._spark).selectExpr(*_BEAN).dropDuplicates(["path"])
        return self.keep(manifests.repartition(self._tasks).persist())

    def _entries(self, table: Any, manifests: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        beans = getattr(manifests._jdf, "as")(java_class(self._jvm, "spark.actions.ManifestFileBean").ENCODER)
        copy = java_class(self._jvm, "spark.source.SerializableTableWithSize").copyOf(table)
        # Iceberg's function is private, and made from a broadcast table.
        read = self._methods.made(f"{_ACTIONS}.BaseSparkAction$ReadManifest", self._spark.sparkContext._jsc.broadcast(copy))
        files = beans.flatMap(read, java_class(self._jvm, "spark.actions.FileInfo").ENCODER)
        return DataFrame(files.toDF(), self._spark)

    def _sized_entries(self, table: Any, manifests: DataFrame) -> DataFrame:
        """Data and delete files with their sizes, which the function behind `_entries` leaves out."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql import DataFrame

        kind, options = java_class(self._jvm, "MetadataTableType").ALL_FILES, in_few_tasks(self._spark, manifests.count())
        try:
            files = java_class(self._jvm, "spark.SparkTableUtil").loadMetadataTable(self._session, table, kind, options)
        except (Py4JJavaError, PySparkException) as error:
            # Iceberg has no such table where partition specs of format version 1 use one field id for two fields.
            log.warning("the sizes of expired files are not known yet: %s", reason_of(error))
            return _unsized(self._entries(table, manifests))
        content = "CASE content WHEN 0 THEN 'DATA' ELSE 'POSITION_DELETES' END AS type"
        return DataFrame(files, self._spark).selectExpr("file_path AS path", content, "file_size_in_bytes AS size_bytes")

    def _frame(self, name: str, table: Any, *rest: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        given = dict(zip(("org.apache.iceberg.Table", "java.util.Set"), (table, *rest), strict=False))
        return DataFrame(self._methods.hidden(self._action, f"{_ACTIONS}.BaseSparkAction", name, given).toDF(), self._spark)

    @cached_property
    def _action(self) -> Any:
        """Any will do, as long as it looks at nothing: that of an expiry refuses tables whose files must stay."""
        return java_class(self._jvm, "spark.actions.SparkActions").get(self._session).deleteReachableFiles("")
