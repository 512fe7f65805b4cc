"""One Iceberg table inside the driver's JVM, spoken to in batches: never a call per file (implements `ports.TableWriter`).

Files travel as JSON (`descriptions`), commits are put together in `deltas`. Used by the flow's stages and by Spark's kernel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from neve.commit.property_swap import Loaded, swap_until_settled
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    CommitConflictError,
    SettingsError,
    TableGoneError,
    TableNotFoundError,
)
from neve.health.queries import Planned
from neve.rewrite.live_files import Ancestor, DataFile, DeleteKey, LiveFile
from neve.spark.quoting import quoted
from neve.spark.table.deltas import Exchange, Onto, commit_drop, commit_exchange, commit_row_delta
from neve.spark.table.descriptions import Descriptions, delete_identity, identity, java_class
from neve.spark.table.methods import Methods
from neve.spark.table.outcome import committing, describing, patiently
from neve.spark.table.renames import forget, renamed, uuid_under
from neve.table.state import MAIN, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableBridge:
    """A loaded table. `refresh` moves it to the newest metadata; everything else looks at what was loaded."""

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        self._spark = spark
        self.jvm: Any = spark._jvm
        self._catalog, self._name = name.catalog, name
        self.quoted = quoted(name.catalog, *name.identifier)
        """The name as SQL takes it."""
        # Past Spark's cache of tables, which may hold metadata older than what the plan saw.
        self.table: Any = patiently(f"load {name}", self._loaded)
        self._uuid = _uuid_of(self.table.operations().current())
        self._methods = Methods(spark)
        self._descriptions = Descriptions(self.jvm, self.table, self._methods)
        self._specs: dict[int, tuple[Any, bool]] = {}
        self._planned: tuple[int, Any, dict[str, int]] | None = None
        """The tasks of the last scan with statistics, or for Spark's kernel, and where each file stands in them."""
        self._scanned: tuple[int | None, Any] = (None, None)
        """The tasks of the last scan of any kind."""
        self._gone: TableGoneError | None = None

    def refresh(self) -> None:
        """Loads the newest metadata. Raises TableGoneError if the table was dropped, renamed or replaced."""
        self.newest("refresh the table")

    def uuid(self) -> str | None:
        """Of the table that was loaded; None for very old tables, which have none."""
        return self._uuid

    def newest(self, purpose: str) -> Any:
        """The newest metadata of the table that was loaded, and of no other.

        Java's own object looks the name up: once the table is gone it has no metadata, and after that it takes whatever table
        it finds under the name. So a table that was found gone stays gone here.
        """
        if self._gone is not None:
            raise self._gone
        try:
            base = patiently(purpose, self.table.operations().refresh)
        except TableNotFoundError as error:
            self._gone = self._gone_by("it was dropped or renamed")
            raise self._gone from error
        except CatalogUnreachableError as error:
            if (other := uuid_under(self._spark, self._name)) in (None, self._uuid):
                raise
            self._gone = self._gone_by(f"another table has its name ({other} instead of {self._uuid})")
            raise self._gone from error
        if base is None or _uuid_of(base) != self._uuid:
            self._gone = self._gone_by("it was dropped, renamed or replaced by another table")
            raise self._gone
        return base

    def _gone_by(self, why: str) -> TableGoneError:
        return TableGoneError(
            f"Cannot go on with {self._name}: {why} during the run",
            hint="Nothing more was committed, and no file was removed. Files that the run wrote and did not commit are orphan "
            "files; its record lists them (`neve runs`).",
        )

    def follow(self) -> str | None:
        """After a rename: moves on to the same table under its new name in the same namespace, and returns that name."""
        found = renamed(self._spark, self._name, self._uuid) if self._uuid is not None else None
        if found is None:
            return None
        self.table, self._gone = found.table, None
        return found.name

    def _loaded(self) -> Any:
        _open(self._spark, self._catalog)
        try:
            table = self._java("spark.Spark3Util").loadIcebergTable(self._spark._jsparkSession, self.quoted)
            table.refresh()
        except Exception:  # sorted out by whoever asked, who tries again
            forget(self._spark, self._name)
            raise
        return table

    def metadata_location(self) -> str:
        """The location of the loaded metadata file."""
        return str(self.table.operations().current().metadataFileLocation())

    def location(self) -> str:
        """The table's own location."""
        return str(self.table.location())

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        snapshot = self.table.snapshot(branch)
        return None if snapshot is None else int(snapshot.snapshotId())

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        return self.table.snapshot(snapshot_id) is not None

    def ancestry(self, snapshot_id: int, until: int | None, *, most: int | None = None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first, and at most so many."""
        found = list[Ancestor]()
        snapshot = self.table.snapshot(snapshot_id)
        while snapshot is not None and snapshot.snapshotId() != until and len(found) != most:
            parent = snapshot.parentId()
            found.append(
                Ancestor(
                    int(snapshot.snapshotId()),
                    parent,
                    str(snapshot.operation()),
                    self._to_dict(snapshot.summary()),
                    int(snapshot.timestampMillis()),
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

    def schemas_json(self) -> list[dict[str, Any]]:
        """Every schema that the table has had, oldest first."""
        parser, schemas = self._java("SchemaParser"), self.table.schemas()
        return [json.loads(parser.toJson(schemas[i])) for i in sorted(schemas)]

    def data_location(self, model: LiveFile, file_name: str) -> str:
        """Where the table's own rules put a new file beside this one: data location, object storage layout and all."""
        spec, is_unpartitioned = self._spec(int(model.data_file["spec-id"]))
        if is_unpartitioned:  # with an empty partition path the other call leaves a double slash
            return str(self._locations.newDataLocation(file_name))
        return str(self._locations.newDataLocation(spec, self._task(model).file().partition(), file_name))

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of the files that do not exist; one request each, through the table's own FileIO."""
        return {path for path in paths if not patiently(f"check {path}", partial(self._exists, path))}

    def _exists(self, path: str) -> bool:
        return bool(self.table.io().newInputFile(path).exists())

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot with its deletes, from an unfiltered plan."""
        if snapshot_id is None:
            return []
        scan = self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals()
        scan = scan.includeColumnStats() if statistics else scan
        tasks = self._tasks_of(snapshot_id, scan)
        self._scanned = (snapshot_id, tasks)
        found = self._descriptions.live_files(tasks)
        if statistics:
            self._planned = (snapshot_id, tasks, {file.path: i for i, file in enumerate(found)})
        return found

    def delete_files(self, snapshot_id: int) -> list[DataFile]:
        """Every delete file and vector of a snapshot, those that apply to nothing included."""
        return patiently(f"list the deletes of snapshot {snapshot_id}", lambda: self._deletes_of(snapshot_id))

    def _deletes_of(self, snapshot_id: int) -> list[DataFile]:
        found, io, read = [], self.table.io(), self._java("ManifestFiles").readDeleteManifest
        for manifest in self.table.snapshot(snapshot_id).deleteManifests(io):
            reader = read(manifest, io, self.table.specs())
            found += self._descriptions.of_one_spec(self._lists.newArrayList(reader), manifest.partitionSpecId())
            reader.close()
        return found

    def sequence_numbers(self, snapshot_id: int) -> Mapping[str, int]:
        """Data sequence numbers by path: of a snapshot's live data files, and of the deletes attached to one."""
        tasks = self._scanned[1] if self._scanned[0] == snapshot_id else self._all_tasks(snapshot_id)
        return self._descriptions.numbers(tasks)

    def scan_tasks(self, snapshot_id: int, paths: Iterable[str]) -> Any:
        """A Java list of these files' scan tasks as Iceberg planned them: sequence numbers, which JSON drops, included."""
        if self._planned is None or self._planned[0] != snapshot_id:
            tasks = self._all_tasks(snapshot_id)
            self._planned = (snapshot_id, tasks, {path: i for i, path in enumerate(self._descriptions.paths(tasks))})
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
        removed_deletes: Sequence[DataFile] = (),
        added_deletes: Sequence[DataFile] = (),
    ) -> None:
        """Commits a replacement on top of `head`, with deletes for the new files; two snapshots where Iceberg asks for it."""
        with describing():
            files = Exchange(
                self._descriptions.data_files([identity(file) for file in removed]),
                self._descriptions.data_files(added),
                self._descriptions.delete_files([delete_identity(file) for file in removed_deletes]),
                self._descriptions.delete_files(added_deletes),
                sequence_number,
            )
        commit_exchange(self.table, files, Onto(head, summary, branch), self._methods)

    def row_delta(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        referenced: Iterable[str],
        head: int,
        summary: Mapping[str, str],
        branch: str = MAIN,
    ) -> None:
        """Commits other deletes for the same rows, on top of `head`."""
        with describing():
            new, old = (self._descriptions.delete_files(files) for files in (added, [*map(delete_identity, removed)]))
            paths = self._methods.texts(list(referenced))
        commit_row_delta(self.table, new, old, paths, Onto(head, summary, branch), self._methods)

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], branch: str = MAIN) -> None:
        """Commits that these data files, all of which must be live, are gone."""
        commit_drop(self.table, self._descriptions.data_files([*map(identity, files)]), summary, branch, self._methods)

    def below(self, snapshot_id: int, field_id: int, high: int | str) -> list[LiveFile]:
        """Data files that may hold a value of a column below this one, with that column's statistics and without deletes."""
        scan, now = self.table.newScan(), self.table.schema().findColumnName(field_id)
        # A filter on the current snapshot goes by the current names, and one on any other by those that it had.
        is_current = snapshot_id == self.head()
        schema = self.table.schema() if is_current else self._java("util.SnapshotUtil").schemaFor(self.table, snapshot_id)
        name = schema.findColumnName(field_id)
        if now is None or name is None:
            return []
        condition = self._java("expressions.Expressions").lessThan(name, high)
        scan = scan.includeColumnStats(self._methods.texts([now])).useSnapshot(snapshot_id)
        return self._descriptions.live_files(self._tasks_of(snapshot_id, scan.filter(condition).ignoreResiduals()))

    def roll_back(self, snapshot_id: int, to: int, branch: str = MAIN) -> bool:
        """Moves the branch from one snapshot back to another, unless it has moved on: then nothing is done, and False.

        Iceberg's own rollback tries again on whatever it finds, and would take a later commit of others with it; so the
        metadata is swapped in one step that fails if anything at all has changed.
        """
        base = self.newest("read the table's branches")
        reference = base.ref(branch)
        if reference is None or reference.snapshotId() != snapshot_id:
            return False
        changed = self.jvm.org.apache.iceberg.TableMetadata.buildFrom(base).setBranchSnapshot(to, branch).build()
        return self.swapped(base, changed)

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        """Changes one property if it is as expected, in one step; False if it is not. None stands for no such property."""
        return self.swap_properties({key: expected}, {key: value})

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        """The same for several properties at once; `expected` may name others than those that change."""

        def load() -> Loaded:
            base = self.newest("read the table's properties")

            def send() -> bool:
                properties = self.jvm.java.util.HashMap(base.properties())
                for key, value in values.items():
                    properties.remove(key) if value is None else properties.put(key, value)
                return self.swapped(base, base.replaceProperties(properties))

            return self._to_dict(base.properties()), send

        return swap_until_settled(load, expected, values)

    def swapped(self, base: Any, changed: Any) -> bool:
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
        filtered = self._by_current_names(snapshot_id).filter(self._expression(where)).ignoreResiduals()
        return set(self._descriptions.paths(self._tasks_of(snapshot_id, filtered)))

    def planned(self, snapshot_id: int | None, query: str) -> Planned:
        """What Iceberg's planning makes of a query, as `EXPLAIN` would count it; nothing where there is no snapshot."""
        condition = self._expression(query)
        started = time.perf_counter()
        tasks = None
        if snapshot_id is not None:
            tasks = self._tasks_of(snapshot_id, self._by_current_names(snapshot_id).filter(condition))
        seconds = time.perf_counter() - started
        plain = self._java("expressions.Expressions").rewriteNot(condition)
        return Planned(
            query=query,
            condition=json.loads(self._java("expressions.ExpressionParser").toJson(plain)),
            paths=set(self._descriptions.paths(tasks)) if tasks is not None else set(),
            seconds=seconds,
        )

    def _by_current_names(self, snapshot_id: int) -> Any:
        """A scan whose filter takes columns by the names that they have now, as Spark does where it reads a branch. Iceberg
        goes by those that an older snapshot had, unless it is asked for the branch."""
        refs = self.table.refs()
        heads = (name for name in refs if refs[name].isBranch() and refs[name].snapshotId() == snapshot_id)
        branch = next(heads, None) if snapshot_id != self.head() else None
        return self.table.newScan().useRef(branch) if branch is not None else self.table.newScan().useSnapshot(snapshot_id)

    def _all_tasks(self, snapshot_id: int) -> Any:
        return self._tasks_of(snapshot_id, self.table.newScan().useSnapshot(snapshot_id).ignoreResiduals())

    def _tasks_of(self, snapshot_id: int, scan: Any) -> Any:
        """A Java list of a scan's tasks."""
        return patiently(f"plan snapshot {snapshot_id}", lambda: self._lists.newArrayList(scan.planFiles()))

    def _expression(self, where: str) -> Any:
        """Iceberg's expression for a predicate; Spark resolves names, folds relative dates and casts."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        converter = self.jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        try:
            resolved = converter.collectResolvedSparkExpression(self._spark._jsparkSession, self.quoted, where)
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
        return self._descriptions.of(files)

    def tasks(self, files: Iterable[DataFile]) -> Any:
        """A Java list of scan tasks over these files, without deletes."""
        return self._descriptions.tasks(files)

    def _removed_deletes(self, snapshot: Any) -> dict[DeleteKey, int]:
        """The delete files that a snapshot removed, with their sequence numbers."""
        purpose = f"read what snapshot {snapshot.snapshotId()} removed"
        removed = patiently(purpose, lambda: self._lists.newArrayList(snapshot.removedDeleteFiles(self.table.io())))
        return self._descriptions.delete_numbers(removed)

    def _task(self, model: LiveFile) -> Any:
        """The file's scan task, from the last scan if it was there."""
        if self._planned is not None and model.path in self._planned[2]:
            return self._planned[1].get(self._planned[2][model.path])
        return self.tasks([identity(model.data_file)]).get(0)

    def _to_dict(self, mapping: Any) -> dict[str, str]:
        """A Java map of texts in one call; walking it would take two per entry, and an exception to end."""
        parsed: dict[str, str] = json.loads(self._methods.mapper.writeValueAsString(mapping))
        return parsed

    def _java(self, name: str) -> Any:
        return java_class(self.jvm, name)

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
    def _lists(self) -> Any:
        return self._java("relocated.com.google.common.collect.Lists")


def _uuid_of(metadata: Any) -> str | None:
    uuid = metadata.uuid() if metadata is not None else None
    return None if uuid is None else str(uuid)


def _open(spark: SparkSession, catalog: str) -> None:
    """Tells why a catalog cannot be opened. Iceberg takes it for none at all, and its name for a namespace of Spark's own."""
    from pyspark.errors import PySparkException

    try:
        spark._jsparkSession.sessionState().catalogManager().catalog(catalog)
    except PySparkException as error:
        reason = str(error).strip()
        lacks = "NoClassDefFoundError" in reason or "ClassNotFoundException" in reason
        hint = f"Describe its storage in catalogs.{catalog}.storage, or name jars in spark.jars." if lacks else None
        raise SettingsError(f"Cannot open catalog {catalog} in Spark: {reason.splitlines()[0]}", hint=hint) from error
