"""Manifests written anew by Spark's tasks, and committed by us (implements `ports.ManifestRewriter`).

The writing function is that of Iceberg's action, which by itself reads entries in far more tasks, would commit, and delete its
files when a second try finds that the first one landed. Here it is staged in a transaction that is thrown away, and what it
holds is read back before anything is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from neve.maintenance.manifests import Entries, ManifestGroup, ManifestPlan, WrittenManifests
from neve.spark.maintenance.reachable import in_few_tasks
from neve.spark.quoting import quoted
from neve.spark.table.bridge import TableBridge
from neve.spark.table.deltas import preparing
from neve.spark.table.methods import Methods
from neve.spark.table.outcome import committing, patiently, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TARGET = "commit.manifest.target-size-bytes"
_ACTION = "org.apache.iceberg.spark.actions.RewriteManifestsSparkAction"
_WRITTEN = ("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
"""Of an entry, in the order in which Iceberg's writing function takes it."""
_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


class SparkManifests:
    """The manifests of one table on main, as its bridge has loaded it."""

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._bridge, self._methods = spark, bridge, Methods(spark)
        self._jvm: Any = spark._jvm
        self._lists = self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
        self._written: dict[tuple[str, ...], tuple[Any, Any]] = {}
        """Java lists of what goes and what comes, by the paths of the latter."""

    def listed(self, snapshot_id: int) -> dict[str, int | None]:
        """The manifests of a snapshot with the first row id that each was given."""
        manifests = patiently(f"list the manifests of snapshot {snapshot_id}", lambda: self._manifests(snapshot_id))
        return dict(zip(self._asked(manifests, "path"), self._asked(manifests, "firstRowId"), strict=True))

    def write(self, plan: ManifestPlan) -> WrittenManifests:
        """One Spark job for each group, over entries that are read once."""
        table = self._bridge.table
        with reading("write manifests"):
            listed = self.listed(int(table.currentSnapshot().snapshotId()))
            transaction = table.newTransaction()
            transaction.updateProperties().set(_TARGET, str(plan.target_bytes)).commit()
            # After an upgrade to version 3 rows have no ids before the next commit, which may be ours: it cannot keep any.
            ids = None not in self._asked(table.currentSnapshot().dataManifests(table.io()), "firstRowId")
            gone, new, lists = self._those(plan.replaced), self._lists.newArrayList(), []
            entries = self._entries(transaction.table()).persist()
            try:
                before = _digest(entries, ids=ids)
                if not gone.isEmpty():
                    for group in plan.groups:
                        new.addAll(self._anew(transaction.table(), entries, group, plan))
                    self._replace(transaction.rewriteManifests(), gone, new).commit()
                    lists = [str(transaction.table().currentSnapshot().manifestListLocation())]
            finally:
                entries.unpersist()
            after = _digest(self._entries(transaction.table()), ids=ids)
        added = tuple(self._asked(new, "path"))
        self._written[added] = (gone, new)
        return WrittenManifests(
            replaced={path: listed[path] for path in self._asked(gone, "path")},
            added=added,
            leftovers=tuple(lists),
            format_version=self._bridge.shape()["format version"],
            before=before,
            after=after,
        )

    def commit(self, written: WrittenManifests, summary: Mapping[str, str]) -> None:
        """Iceberg refuses it where a manifest to be replaced is gone, or where the numbers of files differ."""
        gone, new = self._written[written.added]
        with preparing():
            operation = self._replace(self._bridge.table.rewriteManifests(), gone, new)
            for key, value in summary.items():
                operation.set(key, value)
        with committing():
            operation.commit()

    def _replace(self, operation: Any, gone: Any, new: Any) -> Any:
        self._methods.give(gone, operation, "RewriteManifests", "deleteManifest", "ManifestFile")
        self._methods.give(new, operation, "RewriteManifests", "addManifest", "ManifestFile")
        return operation

    def _those(self, paths: Collection[str]) -> Any:
        """A Java list of the manifests at these paths, as far as the current snapshot has them."""
        found = self._lists.newArrayList(self._manifests(int(self._bridge.table.currentSnapshot().snapshotId())))
        others = [path for path in self._asked(found, "path") if path not in paths]
        found.removeIf(self._methods.one_of(others, "ManifestFile", "path"))
        return found

    def _anew(self, table: Any, entries: DataFrame, group: ManifestGroup, plan: ManifestPlan) -> Any:
        """A Java list of manifests with the entries of a group, sorted as the plan says, or else by partition."""
        from pyspark.sql.functions import broadcast, col, struct

        paths = self._spark.createDataFrame([(path,) for path in group.paths], "manifest string")
        rows = entries.join(broadcast(paths), "manifest", "left_semi").select(*_WRITTEN)
        names = [str(field.name()) for field in table.specs().get(group.spec_id).fields()]
        if names:
            by = plan.by if plan.by and set(names) >= set(plan.by) else ()
            order = struct(*(col(f"data_file.partition.{quoted(name)}") for name in by)) if by else col("data_file.partition")
            rows = rows.repartitionByRange(group.outputs, order).sortWithinPartitions(order)
        else:
            rows = rows.repartition(group.outputs)
        action = self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)
        action = action.rewriteManifests(table).specId(group.spec_id)
        kinds = self._jvm.org.apache.iceberg.ManifestContent
        given = {
            "org.apache.iceberg.ManifestContent": kinds.DELETES if group.holds_deletes else kinds.DATA,
            "org.apache.spark.sql.types.StructType": rows._jdf.schema(),
        }
        write = self._methods.hidden(action, _ACTION, "newWriteManifestsFunc", given)
        frame = {"org.apache.spark.sql.Dataset": rows._jdf}
        return self._methods.hidden(write, f"{_ACTION}$WriteManifests", "apply", frame).collectAsList()

    def _manifests(self, snapshot_id: int) -> Any:
        table = self._bridge.table
        return table.snapshot(snapshot_id).allManifests(table.io())

    def _asked(self, manifests: Any, method: str) -> list[Any]:
        return self._methods.plain(self._methods.mapped(manifests, "ManifestFile", method))

    def _entries(self, table: Any) -> DataFrame:
        """Every live entry of the table's snapshot, with all that it says and the manifest that says it."""
        from pyspark.sql import DataFrame

        kind = self._jvm.org.apache.iceberg.MetadataTableType.ENTRIES
        options = in_few_tasks(self._spark, table.currentSnapshot().allManifests(table.io()).size())
        loading = self._jvm.org.apache.iceberg.spark.SparkTableUtil
        rows = loading.loadMetadataTable(self._spark._jsparkSession, table, kind, options)
        return DataFrame(rows, self._spark).where("status < 2").selectExpr("input_file_name() AS manifest", *_WRITTEN)


def _digest(entries: DataFrame, *, ids: bool) -> Entries:
    """Hashed and added up by Spark's tasks."""
    fields = [field.name for field in entries.schema["data_file"].dataType.fields]
    told = [_hashable(field) for field in fields if ids or field != "first_row_id"]
    hashed = f"xxhash64(snapshot_id, sequence_number, file_sequence_number, {', '.join(told)})"
    total = "CAST(coalesce(sum(CAST({} AS DECIMAL(38, 0))), 0) AS STRING)"
    summed = entries.selectExpr(f"{hashed} AS hash").selectExpr("count(*) AS files", f"{total.format('hash')} AS sum")
    (row,) = summed.collect()
    return Entries(files=row.files, digest=row.sum)


def _hashable(field: str) -> str:
    """Spark hashes no maps, and a map has no order."""
    return f"sort_array(map_entries(data_file.{field}))" if field in _MAPS else f"data_file.{field}"
