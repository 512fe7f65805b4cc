"""One Iceberg table inside the driver's JVM, spoken to in JSON: a call per batch, never a call per file.

Iceberg can write the tasks of a scan as one JSON text and read them back, partitions, deletes and statistics included (REST
catalogs plan scans so); building data files that way costs one Py4J call where the builder would cost a dozen each. Used by
`commit` and `rewrite`, and by nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from neve.core.live import Ancestor, DataFile, DeleteKey, LiveFile
from neve.core.model import MAIN, TableName
from neve.engines.spark.outcome import committing, patiently
from neve.errors import BadRequestError, CatalogUnreachableError, CommitConflictError, CommitUnknownError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK = 50_000
"""Tasks per JSON text: much larger texts cost the JVM more memory than they save calls."""

_SWAPS = 20
"""How often a property is set against writers that commit at the same moment."""

_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})

_IDENTITY = ("spec-id", "content", "file-path", "file-format", "partition", "file-size-in-bytes", "record-count")
"""What names a file: removing one, or asking for its partition, needs no statistics, which are most of its text."""


class TableBridge:
    """A loaded table. `refresh` moves it to the newest metadata; everything else looks at what was loaded."""

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        self._spark = spark
        self.jvm: Any = spark._jvm
        self._quoted = ".".join(f"`{part}`" for part in (name.catalog, *name.identifier))
        # Past Spark's cache of tables, which may hold metadata older than what the plan saw.
        self.table: Any = patiently(f"load {name}", self._loaded)
        self._specs: dict[int, tuple[Any, bool]] = {}
        self._planned: tuple[int, Any, dict[str, int]] | None = None
        """The tasks of the last scan with statistics, or for Spark's kernel, and where each file stands in them."""

    def refresh(self) -> None:
        """Loads the newest metadata."""
        patiently("refresh the table", self.table.refresh)

    def _loaded(self) -> Any:
        table = self._java("spark.Spark3Util").loadIcebergTable(self._spark._jsparkSession, self._quoted)
        table.refresh()
        return table

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        snapshot = self.table.snapshot(branch)
        return None if snapshot is None else int(snapshot.snapshotId())

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        return self.table.snapshot(snapshot_id) is not None

    def ancestry(self, snapshot_id: int, until: int | None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first."""
        found = []
        snapshot = self.table.snapshot(snapshot_id)
        while snapshot is not None and snapshot.snapshotId() != until:
            parent = snapshot.parentId()
            found.append(
                Ancestor(
                    int(snapshot.snapshotId()),
                    parent,
                    str(snapshot.operation()),
                    self._to_dict(snapshot.summary()),
                    removed_deletes=partial(self._removed_deletes, snapshot),
                )
            )
            snapshot = None if parent is None else self.table.snapshot(parent)
        return found

    def shape(self) -> dict[str, int]:
        """What must not change between plan and commit."""
        table = self.table
        return {
            "format version": int(self._java("TableUtil").formatVersion(table)),
            "schema": int(table.schema().schemaId()),
            "partition spec": int(table.spec().specId()),
            "sort order": int(table.sortOrder().orderId()),
        }

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return self._to_dict(self.table.properties())

    def schema_json(self) -> dict[str, Any]:
        """The current schema in Iceberg's JSON."""
        parsed: dict[str, Any] = json.loads(self._java("SchemaParser").toJson(self.table.schema()))
        return parsed

    def data_location(self, model: LiveFile, file_name: str) -> str:
        """Where the table's own rules put a new file beside this one: data location, object storage layout and all."""
        spec, is_unpartitioned = self._spec(int(model.data_file["spec-id"]))
        if is_unpartitioned:  # with an empty partition path the other call leaves a double slash
            return str(self._locations.newDataLocation(file_name))
        return str(self._locations.newDataLocation(spec, self._task(model).file().partition(), file_name))

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot with its deletes, from an unfiltered plan."""
        if snapshot_id is None:
            return []
        scan = self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals()
        scan = scan.includeColumnStats() if statistics else scan
        tasks = self._tasks_of(snapshot_id, scan)
        found: list[LiveFile] = []
        size = int(tasks.size())
        for start in range(0, size, CHUNK):
            part = tasks if size <= CHUNK else tasks.subList(start, min(start + CHUNK, size))
            found += _read_tasks(self._to_json(part))
        if statistics:
            self._planned = (snapshot_id, tasks, {file.path: i for i, file in enumerate(found)})
        return found

    def scan_tasks(self, snapshot_id: int, paths: Iterable[str]) -> Any:
        """A Java list of these files' scan tasks as Iceberg planned them: sequence numbers, which JSON drops, included."""
        if self._planned is None or self._planned[0] != snapshot_id:
            tasks = self._tasks_of(snapshot_id, self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals())
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
        branch: str = MAIN,
    ) -> None:
        """Commits a replacement on top of `head`, sorted by what a failure means for the files (`engines.spark.outcome`)."""
        operation = self.table.newRewrite()
        gone, new = self._file_set([_identity(file) for file in removed]), self._file_set(added)
        if sequence_number is None:
            operation.rewriteFiles(gone, new)
        else:
            operation.rewriteFiles(gone, new, sequence_number)
        operation.validateFromSnapshot(head)
        for key, value in summary.items():
            operation.set(key, value)
        if branch != MAIN:
            operation.toBranch(branch)
        with committing():
            operation.commit()

    def roll_back(self, snapshot_id: int, to: int, branch: str = MAIN) -> bool:
        """Moves the branch from one snapshot back to another, unless it has moved on: then nothing is done, and False.

        Iceberg's own rollback tries again on whatever it finds, and would take a later commit of others with it; so the
        metadata is swapped in one step that fails if anything at all has changed.
        """
        operations = self.table.operations()
        base = operations.refresh()
        reference = base.ref(branch)
        if reference is None or reference.snapshotId() != snapshot_id:
            return False
        changed = self.jvm.org.apache.iceberg.TableMetadata.buildFrom(base).setBranchSnapshot(to, branch).build()
        return self._swapped(base, changed)

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        """Changes one property if it is as expected, in one step; False if it is not. None stands for no such property."""
        sent = False
        for _ in range(_SWAPS):
            base = patiently("read the table's properties", self.table.operations().refresh)
            properties = self.jvm.java.util.HashMap(base.properties())
            if properties.get(key) == value and sent:
                return True  # the answer was lost, not the change
            if properties.get(key) != expected:
                return False
            properties.remove(key) if value is None else properties.put(key, value)
            sent = True
            with suppress(CommitUnknownError):
                if self._swapped(base, base.replaceProperties(properties)):
                    return True
        raise CatalogUnreachableError(f"Cannot set property {key}: others changed the table {_SWAPS} times meanwhile")

    def _swapped(self, base: Any, changed: Any) -> bool:
        """Whether the metadata was exchanged; not if anybody changed it since `base` was read."""
        try:
            with committing():
                self.table.operations().commit(base, changed)
        except CommitConflictError:
            return False
        return True

    def snapshots_with(self, key: str, value: str) -> list[int]:
        """Snapshots on any branch, or on none, whose summary says so."""
        text = self._java("TableMetadataParser").toJson(self.table.operations().current())
        snapshots = json.loads(text).get("snapshots", [])
        return [int(snapshot["snapshot-id"]) for snapshot in snapshots if snapshot.get("summary", {}).get(key) == value]

    def matching(self, snapshot_id: int, where: str) -> set[str]:
        """The data files that may hold rows for which a Spark SQL predicate is true."""
        filtered = self.table.newScan().useSnapshot(snapshot_id).filter(self._expression(where)).ignoreResiduals()
        return {str(task.file().location()) for task in self._tasks_of(snapshot_id, filtered)}

    def _tasks_of(self, snapshot_id: int, scan: Any) -> Any:
        """A Java list of a scan's tasks."""
        return patiently(f"plan snapshot {snapshot_id}", lambda: self._lists.newArrayList(scan.planFiles()))

    def _expression(self, where: str) -> Any:
        """Iceberg's expression for a predicate; Spark resolves names, folds relative dates and casts."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        converter = self.jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        try:
            resolved = converter.collectResolvedSparkExpression(self._spark._jsparkSession, self._quoted, where)
            return converter.convertToIcebergExpression(resolved)
        except (Py4JJavaError, PySparkException) as error:
            told = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
            reason = str(told).strip().splitlines()[0]
            raise BadRequestError(
                f"Cannot choose files by {where!r}: {reason}",
                hint='Write a Spark SQL predicate over its columns, such as "day >= current_date() - INTERVAL 7 DAYS".',
            ) from error

    def describe(self, files: Any) -> list[DataFile]:
        """A Java collection of data files in Iceberg's JSON."""
        parser, specs = self.jvm.org.apache.iceberg.ContentFileParser, self.table.specs()
        return [json.loads(parser.toJson(file, specs.get(file.specId()))) for file in files]

    def tasks(self, files: Iterable[DataFile]) -> Any:
        """A Java list of scan tasks over these files, without deletes."""
        return self._parse([{"data-file": self._readable(file), "residual-filter": True} for file in files])

    def _removed_deletes(self, snapshot: Any) -> dict[DeleteKey, int]:
        """The delete files that a snapshot removed, with their sequence numbers."""
        purpose = f"read what snapshot {snapshot.snapshotId()} removed"
        removed = patiently(purpose, lambda: list(snapshot.removedDeleteFiles(self.table.io())))
        return {(str(file.location()), int(file.contentOffset() or 0)): int(file.dataSequenceNumber() or 0) for file in removed}

    def _task(self, model: LiveFile) -> Any:
        """The file's scan task, from the last scan if it was there."""
        if self._planned is not None and model.path in self._planned[2]:
            return self._planned[1].get(self._planned[2][model.path])
        return self.tasks([_identity(model.data_file)]).get(0)

    def _file_set(self, files: Sequence[DataFile]) -> Any:
        """A Java set of data files, by way of the class that Iceberg's own rewrites use for it."""
        new_group = self._java("actions.RewriteFileGroup")
        result = self._java("util.DataFileSet").create()
        for start in range(0, len(files), CHUNK):
            group = new_group(None, self.tasks(files[start : start + CHUNK]), 0, 0, 0, 0)
            result.addAll(group.rewrittenFiles())
        return result

    def _readable(self, file: DataFile) -> DataFile:
        """Iceberg writes a NaN partition value as a text, which it then refuses to read as a number."""
        if not any(value in _NOT_NUMBERS for value in file.get("partition") or () if isinstance(value, str)):
            return file
        kinds = [str(field.type()) for field in self._spec(int(file["spec-id"]))[0].partitionType().fields()]
        values = zip(file["partition"], kinds, strict=True)
        return {**file, "partition": [float(v) if k in ("float", "double") and v is not None else v for v, k in values]}

    def _parse(self, tasks: list[dict[str, Any]]) -> Any:
        text = json.dumps({"status": "completed", "file-scan-tasks": tasks})
        return self._responses.fromJson(self._lenient_json.readTree(text), self.table.specs(), True).fileScanTasks()

    def _to_json(self, tasks: Any) -> dict[str, Any]:
        status = self._java("rest.PlanStatus").COMPLETED
        builder = self._java("rest.responses.PlanTableScanResponse").builder().withPlanStatus(status).withFileScanTasks(tasks)
        response = builder.withSpecsById(self.table.specs()).build()
        parsed: dict[str, Any] = json.loads(self._responses.toJson(response))
        return parsed

    def _to_dict(self, mapping: Any) -> dict[str, str]:
        """A Java map of texts in one call; walking it would take two per entry, and an exception to end."""
        parsed: dict[str, str] = json.loads(self._json.writeValueAsString(mapping))
        return parsed

    def _java(self, name: str) -> Any:
        """A class of Iceberg's by its name; found by its packages, each part of the name would be a call."""
        from py4j.java_gateway import JavaClass

        return JavaClass(f"org.apache.iceberg.{name}", self.jvm._gateway_client)

    def _spec(self, spec_id: int) -> tuple[Any, bool]:
        """A partition spec, and whether it has no fields; asked once for each, as every group needs it."""
        if spec_id not in self._specs:
            spec = self.table.specs().get(spec_id)
            self._specs[spec_id] = (spec, bool(spec.isUnpartitioned()))
        return self._specs[spec_id]

    @cached_property
    def _locations(self) -> Any:
        return self.table.locationProvider()

    @cached_property
    def _json(self) -> Any:
        return self._java("util.JsonUtil").mapper()

    @cached_property
    def _lenient_json(self) -> Any:
        """Reads NaN and Infinity as numbers, as Python writes them."""
        feature = self._java("shaded.com.fasterxml.jackson.core.json.JsonReadFeature").ALLOW_NON_NUMERIC_NUMBERS
        return self._json.copy().configure(feature.mappedFeature(), True)

    @cached_property
    def _responses(self) -> Any:
        return self._java("rest.responses.PlanTableScanResponseParser")

    @cached_property
    def _lists(self) -> Any:
        return self._java("relocated.com.google.common.collect.Lists")


def _identity(file: DataFile) -> DataFile:
    return {key: file[key] for key in _IDENTITY if key in file}


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
