"""The adapters of one connection: catalogs, Spark and the state store, opened at their first use and closed together.

Made from settings by `Connection.open`; everything here names an adapter, and nothing here decides anything.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, NeveError, SettingsError, TableNotFoundError
from neve.table.location import refuse_cut
from neve.table.state import TableName
from neve.table.units import whole_number

if TYPE_CHECKING:
    from neve.catalogs.opening import IcebergCatalog
    from neve.index_ports import References, TableVersion
    from neve.policy.document import Document
    from neve.ports import Clock, Progress, TableEntry, TableReader
    from neve.settings import CatalogSettings, Loaded, TargetSettings
    from neve.spark.runtime.cpu import SparkCpu
    from neve.spark.runtime.session import SparkOptions
    from neve.spark.runtime.submission import Submission
    from neve.state import StateStore
    from neve.table.document import TableOutline
    from neve.table.state import TableState

log = logging.getLogger(__name__)

TARGET_PROPERTY = "write.target-file-size-bytes"
"""The target of writers, which an automatic target keeps to while it suits the table."""

NO_CATALOG = "Use --warehouse PATH for a directory, or describe catalogs in neve.yaml (docs/guide/catalogs.md)."


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class Connection:
    """The catalogs that settings describe, and a Spark session of our own."""

    def __init__(
        self,
        loaded: Loaded,
        catalogs: Mapping[str, CatalogSettings],
        default_catalog: str | None,
        *,
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.loaded, self.settings, self.clock = loaded, loaded.settings, clock
        self.described, self.default, self.environ = dict(catalogs), default_catalog, environ
        self.resources = ExitStack()
        self._opened: dict[str, IcebergCatalog] = {}
        self.trial_policies: Sequence[Document] | None = None
        """Policies to go by in place of those in force, to see what they would do."""
        self.limits: Mapping[str, Any] = {}
        """Knobs that no setting may exceed, by key: what the service allows the run at work."""
        self.progress: Progress | None = None
        """Where the start of Spark is shown; set by whoever works on a table."""
        self.session_start: tuple[float, float] | None = None
        """When the start of Spark began and ended, by `time.monotonic`; None while it has not been started."""
        self.session: Any = None
        """The Spark session if it is running; reading this starts none."""
        self.session_cpu: SparkCpu | None = None
        """What the start of Spark took of CPU time."""
        self.session_uses = 0
        """How often the Spark session was asked for."""

    @staticmethod
    def open(
        loaded: Loaded,
        *,
        warehouse: str | None = None,
        create_warehouse: bool = False,
        spark: Any = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Connection:
        """`warehouse` is a directory to open as a catalog, besides the described ones; then it is the default.

        `spark` is a session of the caller's: tables are those of its own catalogs, and it is neither configured nor stopped.
        """
        environ, clock = os.environ if environ is None else environ, clock or SystemClock()
        if spark is not None and warehouse is not None:
            raise BadRequestError(f"Cannot open {warehouse} in the caller's session: it has catalogs of its own")
        if spark is not None:
            from neve.context.caller import CallerConnection

            return CallerConnection(loaded, spark, environ=environ, clock=clock)
        catalogs, default = dict(loaded.settings.catalogs), loaded.settings.catalog_name
        if warehouse is not None:
            from neve.catalogs.embedded import open_warehouse

            default, catalogs[default] = open_warehouse(warehouse, create=create_warehouse)
        return Connection(loaded, catalogs, default, environ=environ, clock=clock)

    def name(self, table: str) -> TableName:
        """The table's full name."""
        found = TableName.parse(table, catalogs=frozenset(self.described), default_catalog=self.default or "")
        return found if found.catalog else found.model_copy(update={"catalog": self.default_name()})

    def loaded_for(self, name: TableName, state: TableState, documents: Sequence[Document] | None = None) -> Loaded:
        """The settings with the knobs of the policies that match a table; of those in force unless documents are given."""
        documents = self.policy_documents() if documents is None else documents
        if not documents:
            return self.loaded
        from neve.policy.effective import knobs_in_force, with_automatic_target
        from neve.settings.policy_layer import with_policy_knobs

        head, written = state.snapshot, state.properties.get(TARGET_PROPERTY, "")
        rows, size = (None, 0) if head is None else (head.count("total-records"), head.count("total-files-size"))
        knobs = knobs_in_force(str(name), state.properties, documents)
        return with_policy_knobs(
            self.loaded, with_automatic_target(knobs, size, rows=rows, current=whole_number(written) or None)
        )

    def policy_documents(self) -> Sequence[Document]:
        """The policies and teams in force, without those that this release cannot read; none where there is no store yet."""
        if self.trial_policies is not None:
            return self.trial_policies
        store = self.records()
        if store is None:
            return ()
        stored = store.policies.documents()
        for one in stored:
            if one.document is None:
                log.warning("%s %s is left out: %s", one.kind, one.name, one.trouble)
        return [one.document for one in stored if one.document is not None]

    def default_name(self) -> str:
        """The catalog of names that name none."""
        if self.default is None:
            raise BadRequestError("Cannot choose a catalog: none is the default", hint=NO_CATALOG)
        return self.default

    def reader(self, name: TableName) -> TableReader:
        """The table's metadata: in plain Python, and through Spark where it is very large."""
        from neve.spark.table.metadata import LargeTableReader

        return LargeTableReader(self._open(name), lambda: self.spark, python_max_files=self.settings.inspect.python_max_files)

    def outline(self, name: TableName) -> TableOutline | None:
        """Where a table's files are, by its metadata file alone; None where there is no table."""
        return self.catalog(name.catalog).outline(name)

    def _open(self, name: TableName) -> TableReader:
        return self.catalog(name.catalog).open(name)

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the default catalog; `namespace` may begin with the name of another."""
        parts = tuple(namespace.split(".")) if namespace else None
        if parts and parts[0] in self.described:
            yield from self.catalog(parts[0]).tables(parts[1:] or None)
        else:
            yield from self.catalog(self.default_name()).tables(parts)

    def survey(self) -> Iterator[TableName | tuple[str, NeveError]]:
        """Every table of every described catalog, and what cannot be listed, by its full name with the reason."""
        for name in sorted(self.described):
            yield from self.catalog(name).survey()

    def references(self, name: TableName) -> References | None:
        """All that a table's metadata names; None for an entry without metadata. Raises NeveError where it cannot be loaded."""
        return self.catalog(name.catalog).references(name)

    def version(self, name: TableName) -> TableVersion:
        """An Iceberg table at its current metadata file, by that file alone. Raises NeveError."""
        from neve.catalogs.references import TableReferences

        found = self.references(name)
        if not isinstance(found, TableReferences):
            raise TableNotFoundError(f"Cannot load table {name}: it has no Iceberg metadata")
        return found

    def entry(self, name: TableName) -> TableEntry | None:
        """The table's entry in its catalog, changed without Spark; None where only Iceberg's Java may change it."""
        return self.catalog(name.catalog).entry(name, self.storage(name))

    def catalog(self, name: str) -> IcebergCatalog:
        """A described catalog, opened once."""
        from neve.catalogs.opening import IcebergCatalog

        if name not in self.described:
            known = ", ".join(sorted(self.described)) or "none"
            raise BadRequestError(f"Cannot open catalog {name}: it is not described (known: {known})", hint=NO_CATALOG)
        if name not in self._opened:
            self._opened[name] = IcebergCatalog(name, self.described[name], environ=self.environ, cache=self._cache)
        return self._opened[name]

    def storage(self, name: TableName) -> dict[str, str]:
        """The storage properties that tasks need for a table, secrets included: sent to them, never written down."""
        from neve.catalogs.opening import pyiceberg_properties

        self.catalog(name.catalog)
        properties = pyiceberg_properties(self.described[name.catalog], self.environ)
        # Where a property of the storage is not set, pyiceberg goes by the client's of the same name; tasks must as well.
        shared = {f"s3.{key.removeprefix('client.')}": value for key, value in properties.items() if key.startswith("client.")}
        return shared | {key: value for key, value in properties.items() if key.startswith(("s3.", "gcs.", "adls.", "hdfs."))}

    def order_storage(self, table: str) -> dict[str, str]:
        """The same for an order, which may come from elsewhere: without a catalog for it, the machine's own grants decide."""
        known = table.partition(".")[0] in self.described or self.default is not None
        return self.storage(self.name(table)) if known else {}

    def check_commits(self, name: TableName) -> None:
        """Refuses tables in a catalog where commits could be lost, and those that Iceberg's Java cannot keep."""
        from neve.catalogs.opening import revealed
        from neve.catalogs.storage import storage_kind

        described = self.described[name.catalog]
        if storage_kind(revealed(described, self.environ)) != "file" and (found := self.outline(name)) is not None:
            refuse_cut(str(name), found.location, found.metadata_location)
        if described.type == "hadoop":
            from neve.catalogs.hadoop import refuse_commits

            refuse_commits(revealed(described, self.environ), default_filesystem=self._default_filesystem(name.catalog))

    def _default_filesystem(self, catalog: str) -> str:
        """Where Spark opens locations without a scheme."""
        conf = self.spark_catalogs()[0] | dict(self.spark_options().conf)
        keys = (f"spark.sql.catalog.{catalog}.hadoop.fs.defaultFS", "spark.hadoop.fs.defaultFS")
        return next((conf[key] for key in keys if key in conf), "file:///")

    @property
    def spark(self) -> Any:
        """The Spark session with every described catalog; started at its first use, stopped at the end."""
        self.session_uses += 1
        if self.session is None:
            self.session = self._started_session()
        return self.session

    def _started_session(self) -> Any:
        from neve.spark.runtime.cpu import spark_cpu
        from neve.spark.runtime.session import open_session

        conf, needs = self.spark_catalogs()
        options = self.spark_options()
        if self.settings.spark.class_archive == "auto":
            self.resources.push(_archive_afterwards(options, needs))
        self._report("starting Spark")
        begun = time.monotonic()
        session = self.resources.enter_context(open_session(options, catalog_conf=conf, needs=needs))
        self.session_start = (begun, time.monotonic())
        self.session_cpu = spark_cpu(session)
        self._report("running on Spark")
        return session

    def _report(self, stage: str) -> None:
        if self.progress:
            self.progress(stage, 0, None)

    def spark_catalogs(self) -> tuple[dict[str, str], set[str]]:
        """Spark's side of the described catalogs: its configuration, and the jars that they need."""
        from neve.catalogs.opening import spark_conf, spark_needs

        conf: dict[str, str] = {}
        needs: set[str] = set()
        for name, described in self.described.items():
            conf |= spark_conf(name, described, self.environ)
            needs |= spark_needs(described, self.environ)
        return conf, needs

    def spark_options(self, *, lenient: bool = False) -> SparkOptions:
        """How Spark is to be started. If `lenient`, configuration whose references lead nowhere is left out."""
        from neve.spark.runtime.session import SparkOptions

        settings = self.settings.spark
        return SparkOptions(
            master=settings.master,
            driver_memory=settings.driver_memory,
            executor_memory=settings.executor_memory,
            conf=dict(self._revealed_conf(lenient=lenient)),
            jars=settings.jars,
            java_home=settings.java_home,
            class_archive=settings.class_archive != "off",
        )

    def submission(self, program: Path, target: TargetSettings, scratch: Path) -> Submission:
        """How a program of ours is submitted to a target of the service, with the described catalogs."""
        from neve.spark.runtime.submission import submission

        conf, needs = self.spark_catalogs()
        options = self.spark_options()
        given = {key: value.reveal(self.environ) for key, value in target.conf.items()}
        options = replace(options, master=target.master or options.master, conf={**options.conf, **given})
        return submission(options, catalog_conf=conf, needs=needs, program=program, scratch=scratch)

    def _revealed_conf(self, *, lenient: bool) -> Iterator[tuple[str, str]]:
        for key, value in self.settings.spark.conf.items():
            try:
                yield key, value.reveal(self.environ)
            except SettingsError:
                if not lenient:
                    raise

    @property
    def state_url(self) -> str:
        """Where runs are remembered."""
        return self.settings.state.database.reveal(self.environ)

    def databases(self) -> Iterator[str]:
        """URLs of the state store and of catalogs that are databases."""
        from neve.catalogs.opening import pyiceberg_properties

        yield self.state_url
        for described in self.described.values():
            if described.type == "sql":
                yield pyiceberg_properties(described, self.environ)["uri"]

    def store(self) -> StateStore:
        """The state store for writing, made if there is none; the caller closes it."""
        from neve.state import StateStore

        return StateStore.open(self.state_url, keep_seconds=self.settings.state.keep_seconds)

    def records(self) -> StateStore | None:
        """The state store for reading; None where there is none yet. A run may make one, so it is asked for each time."""
        if self._records is None:
            from neve.state import StateStore

            if (store := StateStore.open_existing(self.state_url)) is not None:
                self._records = self.resources.enter_context(store)
        return self._records

    _records: StateStore | None = None

    @cached_property
    def _cache(self) -> Any:
        from neve.catalogs.cache import MetadataCache

        settings = self.settings.cache
        if not settings.enabled:
            return None
        return MetadataCache(settings.path, max_bytes=settings.max_size_bytes, ttl_seconds=settings.ttl_seconds)


def _archive_afterwards(options: SparkOptions, needs: Collection[str]) -> Callable[..., None]:
    """Makes a class archive for later runs once Spark has stopped, unless something went wrong."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        from neve.context.class_archives import make_in_background

        if kind is None:
            make_in_background(options, needs)

    return leave
