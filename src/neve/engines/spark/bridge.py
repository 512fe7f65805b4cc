"""One Iceberg table inside the driver's JVM, spoken to in JSON: a call per batch, never a call per file.

Iceberg can write the tasks of a scan as one JSON text and read them back, partitions, deletes and statistics included (REST
catalogs plan scans so); building data files that way costs one Py4J call where the builder would cost a dozen each. Used by
`commit` and `rewrite`, and by nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neve.core.live import Ancestor, DataFile, LiveFile
from neve.core.model import TableName
from neve.engines.spark.outcome import committing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK = 50_000
"""Tasks per JSON text: much larger texts cost the JVM more memory than they save calls."""


class TableBridge:
    """A loaded table. `refresh` moves it to the newest metadata; everything else looks at what was loaded."""

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        self._spark = spark
        self.jvm: Any = spark._jvm
        quoted = ".".join(f"`{part}`" for part in (name.catalog, *name.identifier))
        # Past Spark's cache of tables, which may hold metadata older than what the plan saw.
        self.table: Any = self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, quoted)
        self.table.refresh()
        self._planned: tuple[int, Any, dict[str, int]] | None = None

    def refresh(self) -> None:
        """Loads the newest metadata."""
        self.table.refresh()

    def head(self, branch: str = "main") -> int | None:
        """The branch's snapshot."""
        snapshot = self.table.snapshot(branch)
        return None if snapshot is None else int(snapshot.snapshotId())

    def ancestry(self, snapshot_id: int, until: int | None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first."""
        found = []
        snapshot = self.table.snapshot(snapshot_id)
        while snapshot is not None and snapshot.snapshotId() != until:
            parent = snapshot.parentId()
            found.append(Ancestor(int(snapshot.snapshotId()), parent, str(snapshot.operation()), dict(snapshot.summary())))
            snapshot = None if parent is None else self.table.snapshot(parent)
        return found

    def shape(self) -> dict[str, int]:
        """What must not change between plan and commit."""
        table = self.table
        return {
            "format version": int(self.jvm.org.apache.iceberg.TableUtil.formatVersion(table)),
            "schema": int(table.schema().schemaId()),
            "partition spec": int(table.spec().specId()),
            "sort order": int(table.sortOrder().orderId()),
        }

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.table.properties())

    def schema_json(self) -> dict[str, Any]:
        """The current schema in Iceberg's JSON."""
        parsed: dict[str, Any] = json.loads(self.jvm.org.apache.iceberg.SchemaParser.toJson(self.table.schema()))
        return parsed

    def data_location(self, model: LiveFile, file_name: str) -> str:
        """Where the table's own rules put a new file beside this one: data location, object storage layout and all."""
        (task,) = self.tasks([model.data_file])
        spec = self.table.specs().get(task.file().specId())
        return str(self.table.locationProvider().newDataLocation(spec, task.file().partition(), file_name))

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot with its deletes, from an unfiltered plan."""
        if snapshot_id is None:
            return []
        scan = self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals()
        scan = scan.includeColumnStats() if statistics else scan
        tasks = self._lists.newArrayList(scan.planFiles())
        found: list[LiveFile] = []
        for start in range(0, tasks.size(), CHUNK):
            part = tasks.subList(start, min(start + CHUNK, tasks.size()))
            found += _read_tasks(self._to_json(part))
        return found

    def scan_tasks(self, snapshot_id: int, paths: Iterable[str]) -> Any:
        """A Java list of these files' scan tasks as Iceberg planned them: sequence numbers, which JSON drops, included."""
        if self._planned is None or self._planned[0] != snapshot_id:
            tasks = self._lists.newArrayList(self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles())
            self._planned = (snapshot_id, tasks, {task.file().location(): i for i, task in enumerate(tasks)})
        _, tasks, index = self._planned
        chosen = self._lists.newArrayList()
        for path in paths:
            chosen.add(tasks.get(index[path]))
        return chosen

    def rewrite(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        *,
        head: int,
        sequence_number: int | None,
        summary: Mapping[str, str],
        branch: str = "main",
    ) -> None:
        """Commits a replacement on top of `head`, sorted by what a failure means for the files (`engines.spark.outcome`)."""
        operation = self.table.newRewrite()
        gone, new = self._file_set(removed), self._file_set(added)
        if sequence_number is None:
            operation.rewriteFiles(gone, new)
        else:
            operation.rewriteFiles(gone, new, sequence_number)
        operation.validateFromSnapshot(head)
        for key, value in summary.items():
            operation.set(key, value)
        if branch != "main":
            operation.toBranch(branch)
        with committing():
            operation.commit()

    def describe(self, files: Any) -> list[DataFile]:
        """A Java collection of data files in Iceberg's JSON."""
        parser, specs = self.jvm.org.apache.iceberg.ContentFileParser, self.table.specs()
        return [json.loads(parser.toJson(file, specs.get(file.specId()))) for file in files]

    def tasks(self, files: Iterable[DataFile]) -> Any:
        """A Java list of scan tasks over these files, without deletes."""
        return self._parse([{"data-file": file, "residual-filter": True} for file in files])

    def _file_set(self, files: Sequence[DataFile]) -> Any:
        """A Java set of data files, by way of the class that Iceberg's own rewrites use for it."""
        actions = self.jvm.org.apache.iceberg.actions
        result = self.jvm.org.apache.iceberg.util.DataFileSet.create()
        for start in range(0, len(files), CHUNK):
            group = actions.RewriteFileGroup(None, self.tasks(files[start : start + CHUNK]), 0, 0, 0, 0)
            result.addAll(group.rewrittenFiles())
        return result

    def _parse(self, tasks: list[dict[str, Any]]) -> Any:
        text = json.dumps({"status": "completed", "file-scan-tasks": tasks})
        node = self.jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree(text)
        return self._responses.PlanTableScanResponseParser.fromJson(node, self.table.specs(), True).fileScanTasks()

    def _to_json(self, tasks: Any) -> dict[str, Any]:
        status = self.jvm.org.apache.iceberg.rest.PlanStatus.COMPLETED
        builder = self._responses.PlanTableScanResponse.builder().withPlanStatus(status).withFileScanTasks(tasks)
        response = builder.withSpecsById(self.table.specs()).build()
        parsed: dict[str, Any] = json.loads(self._responses.PlanTableScanResponseParser.toJson(response))
        return parsed

    @cached_property
    def _responses(self) -> Any:
        return self.jvm.org.apache.iceberg.rest.responses

    @cached_property
    def _lists(self) -> Any:
        return self.jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists


def _read_tasks(answer: dict[str, Any]) -> list[LiveFile]:
    deletes = [
        ((file["file-path"], int(file.get("content-offset") or 0)), file["content"] == "equality-deletes")
        for file in answer.get("delete-files", [])
    ]
    found = []
    for task in answer["file-scan-tasks"]:
        attached = [deletes[i] for i in task.get("delete-file-references", [])]
        found.append(
            LiveFile(
                data_file=task["data-file"],
                deletes=frozenset(key for key, _ in attached),
                equality_deletes=frozenset(key for key, is_equality in attached if is_equality),
            )
        )
    return found
