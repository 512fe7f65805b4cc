"""The composition root: the one place that names concrete adapters and wires them to the flow.

Every surface opens a `Neve` from its settings and calls the flow through it. Catalogs, Spark and the state store are opened at
their first use, and closed with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from neve.core.depth import Depth
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.catalogs.opening import IcebergCatalog
    from neve.core.advice import Advice
    from neve.core.inspection import Inspection
    from neve.core.journal import JournaledRun
    from neve.core.model import TableName, TableState
    from neve.core.plan import Plan
    from neve.core.record import RunRecord
    from neve.core.statistics import Report
    from neve.doctor import Check, RemoteClock
    from neve.engines.spark.session import SparkOptions
    from neve.flow.plan import Request
    from neve.ports import Clock, Progress, TableReader
    from neve.samples import Target
    from neve.settings import CatalogSettings, Loaded
    from neve.state import StateStore
    from neve.state.rows import Run


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class Neve:
    """Settings made to work. Use it as a context manager."""

    def __init__(
        self,
        loaded: Loaded,
        catalogs: Mapping[str, CatalogSettings],
        default_catalog: str | None,
        *,
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._described = dict(catalogs)
        self._default = default_catalog
        self._environ = environ
        self._clock = clock
        self._opened: dict[str, IcebergCatalog] = {}
        self._resources = ExitStack()

    @classmethod
    def open(
        cls,
        loaded: Loaded,
        *,
        warehouse: str | None = None,
        create_warehouse: bool = False,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """`warehouse` is a directory to open as a catalog, besides the described ones; then it is the default."""
        catalogs, default = dict(loaded.settings.catalogs), loaded.settings.catalog_name
        if warehouse is not None:
            from neve.catalogs.embedded import open_warehouse

            default, catalogs[default] = open_warehouse(warehouse, create=create_warehouse)
        return cls(loaded, catalogs, default, environ=os.environ if environ is None else environ, clock=clock or SystemClock())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # The session turns Spark's errors into ours while the JVM still lives: afterwards nobody could read them.
        return self._resources.__exit__(kind, error, trace)

    def inspect(
        self, table: str, *, depth: Depth = Depth.FILES, sample: int = 0, progress: Progress | None = None
    ) -> Inspection:
        """A look at one table; `sample` is how many footers to read besides."""
        from neve.flow import inspect

        reader = self._reader(table)
        state = inspect.read(reader, depth, progress)
        policy, _ = self._loaded.policy(state.properties)
        footers = reader.sample_row_groups(inspect.sample(state.files, sample)) if sample and state.files is not None else {}
        memory = inspect.Memory.of(self._records, state.uuid)
        return inspect.examine(state, policy, now_ms=self._clock.now_ms(), memory=memory, footers=footers)

    def plan(self, table: str, *, request: Request | None = None, progress: Progress | None = None) -> Plan:
        """What a compaction of the table would do, with reasons and prices. Reads metadata only."""
        return self._plan(table, request, progress)[1]

    def compact(self, table: str, *, request: Request | None = None, progress: Progress | None = None) -> RunRecord:
        """Plans and carries out a compaction; the table reads the same rows at every moment."""
        from neve.flow import run
        from neve.state import StateStore

        state, planned = self._plan(table, request, progress)
        if not len(planned.groups):
            return run.nothing_to_do(planned, clock=self._clock)
        with StateStore.open(self._state_url) as store:
            record = run.compact(planned, **self._tools(planned), specs=state.specs, progress=progress, journal=store)
            self._keep(store, record, planned)
        return record

    def unfinished(self) -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended."""
        return self._records.unfinished() if self._records is not None else ()

    def resume(self, journalled: JournaledRun, *, progress: Progress | None = None) -> RunRecord:
        """Takes a run up where it stopped: what was written is committed if it still holds, the rest is done again."""
        from neve.flow import run
        from neve.state import StateStore

        specs = self._reader(str(journalled.plan.table)).state().specs
        with StateStore.open(self._state_url) as store:
            record = run.resume(journalled, **self._tools(journalled.plan), specs=specs, progress=progress, journal=store)
            self._keep(store, record, journalled.plan)
        return record

    def _tools(self, planned: Plan) -> dict[str, Any]:
        """What the flow needs to carry a plan out on this table."""
        from neve.engines.spark.bridge import TableBridge
        from neve.engines.spark.rewrite import SparkEngine
        from neve.engines.spark.spark_kernel import SparkKernel

        catalog = planned.table.catalog
        self._refuse_commits(catalog)
        bridge = TableBridge(self.spark, planned.table)
        kernel = SparkKernel(self.spark, bridge, planned.snapshot_id or 0)
        parallelism = planned.policy.max_parallelism
        engine = SparkEngine(self.spark, kernel, self._task_storage(catalog), max_parallelism=parallelism)
        return {"writer": bridge, "engine": engine, "clock": self._clock, "sleep": time.sleep}

    def report(self, table: str, *, request: Request | None = None, progress: Progress | None = None) -> Report:
        """A compaction with a look at the table on either side of it."""
        from neve.core.statistics import Report

        before = self.inspect(table)
        record = self.compact(table, request=request, progress=progress)
        if self._records is None:
            # The run may have made the state store; the second look must not go by the memory that there was none.
            del self._records
        return Report.of(record, before, self.inspect(table) if record.groups else before)

    def advise(self, table: str, *, every: int | None = None) -> Advice:
        """Whether a compaction is worth it; the files are looked at only after every so many commits, else one catalog call."""
        from neve.core.advice import advise, is_due, not_looked
        from neve.flow import inspect, plan

        reader = self._reader(table)
        state = inspect.read(reader, Depth.SUMMARY)
        policy, _ = self._loaded.policy(state.properties)
        interval = every or policy.check_interval_writes
        if not policy.advise:
            return not_looked(str(state.name), "advise is off")
        if not is_due(state, interval):
            return not_looked(str(state.name), f"looked at every {interval} commits")
        state, now = inspect.read(reader, Depth.FILES), self._clock.now_ms()
        memory = inspect.Memory.of(self._records, state.uuid)
        looked = inspect.examine(state, policy, now_ms=now, memory=memory)
        return advise(plan.plan(state, policy, now_ms=now, memory=memory), looked.small_files or 0)

    def runs(self, table: str | None = None, *, limit: int = 100) -> tuple[Run, ...]:
        """Runs that were recorded, newest first."""
        uuid = None if table is None else self._reader(table).state().uuid
        return () if self._records is None else self._records.runs(uuid, limit=limit)

    def run(self, run_id: str) -> Run:
        """One run, by its id or by how that begins."""
        store = self._records
        exact = store.run(run_id) if store is not None else None
        known = store.runs(limit=_RUNS_SEARCHED) if store is not None and exact is None else ()
        found = [exact] if exact else [run for run in known if run.run_id.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise BadRequestError(f"Cannot find run {run_id!r}: no run's id begins so", hint="neve runs lists them.")
        some = ", ".join(run.run_id for run in found[:3])
        message = f"Cannot choose run {run_id!r}: {len(found)} runs begin so ({some})"
        raise BadRequestError(message, hint="Write more of the id.")

    def _plan(self, table: str, request: Request | None, progress: Progress | None) -> tuple[TableState, Plan]:
        from neve.flow import inspect, plan

        state = inspect.read(self._reader(table), Depth.FILES, progress)
        policy, _ = self._loaded.policy(state.properties)
        memory = inspect.Memory.of(self._records, state.uuid)
        return state, plan.plan(state, policy, now_ms=self._clock.now_ms(), memory=memory, request=request)

    def _refuse_commits(self, catalog: str) -> None:
        described = self._described[catalog]
        if described.type == "hadoop":
            from neve.catalogs.hadoop import refuse_commits
            from neve.catalogs.opening import revealed

            refuse_commits(revealed(described, self._environ))

    def _task_storage(self, catalog: str) -> dict[str, str]:
        """The storage properties that tasks need, secrets included: sent to them, never written down."""
        from neve.catalogs.opening import pyiceberg_properties

        properties = pyiceberg_properties(self._described[catalog], self._environ)
        return {key: value for key, value in properties.items() if key.startswith(("s3.", "gcs.", "adls.", "hdfs."))}

    def _keep(self, store: StateStore, record: RunRecord, planned: Plan) -> None:
        """Remembers the run, so that the next look knows what was compacted when, and how its files are cut."""
        from neve.flow.record import keep

        keep(store, record, planned)

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the default catalog; `namespace` may begin with the name of another."""
        parts = tuple(namespace.split(".")) if namespace else None
        if parts and parts[0] in self._described:
            yield from self._catalog(parts[0]).tables(parts[1:] or None)
        else:
            yield from self._catalog(self._default_name()).tables(parts)

    def table_properties(self, table: str) -> dict[str, str]:
        """The properties of one table."""
        return self._reader(table).state().properties

    def doctor(self, *, start_spark: bool = False) -> tuple[Check, ...]:
        """Whether everything that Neve needs is there."""
        from neve.catalogs.probe import probe_catalog, probe_of_warehouse
        from neve.doctor import run_checks

        described = self._described.get(self._default or "")
        clock, probes = None, dict[str, Any]({"catalog": None, "warehouse": None})
        if described is not None:
            catalog = self._catalog(self._default_name())
            probes["catalog"] = lambda: probe_catalog(catalog)
            probes["warehouse"] = probe_of_warehouse(described, self._environ)
            clock = self._clock_elsewhere(described)
        conf, needs = self._spark_catalogs()
        return run_checks(
            options=self._spark_options(),
            catalog_conf=conf,
            needs=needs,
            probes={**probes, "state store": self._probe_state},
            remote_clock=clock,
            start_spark=start_spark,
            environ=self._environ,
        )

    def _clock_elsewhere(self, described: CatalogSettings) -> RemoteClock | None:
        """The clock that a commit is compared with: the catalog server's, else that of the disk."""
        from neve.catalogs.embedded import local_path
        from neve.catalogs.opening import revealed
        from neve.catalogs.storage import scheme
        from neve.doctor import file_clock, http_clock

        opened = revealed(described, self._environ)
        if (opened.uri or "").startswith(("http://", "https://")):
            return http_clock(str(opened.uri))
        if opened.warehouse and scheme(opened.warehouse) == "file":
            return file_clock(local_path(opened.warehouse))
        return None

    @contextmanager
    def demo_target(self, namespace: str, *, spark: bool = False) -> Iterator[Target]:
        """Where sample tables go: the default catalog, with a Spark session beside it if asked."""
        from neve.samples import Target

        name = self._default_name()
        client = self._catalog(name).client
        client.create_namespace_if_not_exists(namespace)
        yield Target(catalog=client, spark=self.spark if spark else None, spark_catalog=name, namespace=namespace)

    @cached_property
    def spark(self) -> Any:
        """The Spark session with every described catalog; started at its first use, stopped at the end."""
        from neve.engines.spark.session import open_session

        conf, needs = self._spark_catalogs()
        return self._resources.enter_context(open_session(self._spark_options(), catalog_conf=conf, needs=needs))

    def _spark_catalogs(self) -> tuple[dict[str, str], set[str]]:
        from neve.catalogs.opening import spark_conf, spark_needs

        conf: dict[str, str] = {}
        needs: set[str] = set()
        for name, described in self._described.items():
            conf |= spark_conf(name, described, self._environ)
            needs |= spark_needs(described, self._environ)
        return conf, needs

    def _spark_options(self) -> SparkOptions:
        from neve.engines.spark.session import SparkOptions

        settings = self._settings.spark
        return SparkOptions(
            master=settings.master,
            driver_memory=settings.driver_memory,
            executor_memory=settings.executor_memory,
            conf={key: value.reveal(self._environ) for key, value in settings.conf.items()},
            jars=settings.jars,
            java_home=settings.java_home,
        )

    def _reader(self, table: str) -> TableReader:
        from neve.core.model import TableName
        from neve.engines.spark.metadata import LargeTableReader

        name = TableName.parse(table, catalogs=frozenset(self._described), default_catalog=self._default or "")
        plain = self._catalog(name.catalog or self._default_name()).open(name)
        return LargeTableReader(plain, lambda: self.spark, python_max_files=self._settings.inspect.python_max_files)

    def _catalog(self, name: str) -> IcebergCatalog:
        from neve.catalogs.opening import IcebergCatalog

        if name not in self._described:
            known = ", ".join(sorted(self._described)) or "none"
            raise BadRequestError(f"Cannot open catalog {name}: it is not described (known: {known})", hint=_NO_CATALOG)
        if name not in self._opened:
            self._opened[name] = IcebergCatalog(name, self._described[name], environ=self._environ, cache=self._cache)
        return self._opened[name]

    def _default_name(self) -> str:
        if self._default is None:
            raise BadRequestError("Cannot choose a catalog: none is the default", hint=_NO_CATALOG)
        return self._default

    @cached_property
    def _cache(self) -> Any:
        from neve.catalogs.cache import MetadataCache

        settings = self._settings.cache
        if not settings.enabled:
            return None
        return MetadataCache(settings.path, max_bytes=settings.max_size_bytes, ttl_seconds=settings.ttl_seconds)

    def _probe_state(self) -> str:
        from neve.state import StateStore

        with StateStore.open(self._state_url) as store:
            return store.check()

    @property
    def _state_url(self) -> str:
        return self._settings.state.database.reveal(self._environ)

    @cached_property
    def _records(self) -> StateStore | None:
        from neve.state import StateStore

        store = StateStore.open_existing(self._state_url)
        return self._resources.enter_context(store) if store is not None else None


_NO_CATALOG = "Use --warehouse PATH for a directory, or describe catalogs in neve.yaml (docs/guide/catalogs.md)."
_RUNS_SEARCHED = 1_000
"""How far back a run is found by the beginning of its id; a whole id is always found."""
