"""`Neve`: a connection to catalogs, Spark and the state store, and what can be asked of it.

Every surface opens one. An operation of `operations.registry` is a method here; its options are the fields of its request.
Operations are imported when they are first called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from neve.operations.registry import OPERATIONS, RegisteredOperation, parameters, requested
from neve.table.depth import Depth
from neve.table.state import MAIN

if TYPE_CHECKING:
    from neve.context.class_archives import Prepared
    from neve.context.connection import Connection
    from neve.context.table import TableContext
    from neve.doctor import DoctorCheck, RemoteClock
    from neve.health.inspection import Inspection
    from neve.maintenance.delete_files import UpkeepRecord
    from neve.maintenance.expiry import ExpiryRecord
    from neve.maintenance.manifests import ManifestsRecord
    from neve.maintenance.orphans import OrphanRecord
    from neve.maintenance.prevention import PreventionRecord
    from neve.maintenance.quarantine import Quarantined, QuarantinedRun, QuarantineRecord
    from neve.maintenance.statistics import StatisticsRecord
    from neve.maintenance.steps import MaintainRecord
    from neve.maintenance.tags import TagsRecord
    from neve.maintenance.ttl import TtlRecord
    from neve.operations.rollback import RolledBack
    from neve.ports import Clock, Progress
    from neve.rewrite.advice import Advice
    from neve.rewrite.journal import JournaledRun
    from neve.rewrite.plan import Plan
    from neve.rewrite.record import RunRecord
    from neve.rewrite.work_order import WorkOrder, WorkResult
    from neve.samples import Target
    from neve.settings import CatalogSettings, Loaded
    from neve.state.history import History
    from neve.state.rows import Run
    from neve.table.state import TableName

_OF_FILES = ("tier", "kernel", "force", "partitions", "where", "branch")
"""Fields that `rewrite.planner.Request` shares with the requests of compact and cluster."""


def _asked(operation: RegisteredOperation, given: Sequence[Any], request: Any, options: Mapping[str, Any]) -> Any:
    """The request of an operation: one that was made, or its fields; what is said besides a request has the last word."""
    if given and isinstance(given[0], operation.request):
        given, request = given[1:], given[0]
    if isinstance(request, operation.request) and not given and not options:
        return request
    names = vars(request) if isinstance(request, operation.request) else _OF_FILES if request is not None else ()
    return requested(operation.request, *given, **{name: getattr(request, name) for name in names} | dict(options))


def _method(name: str) -> Callable[..., Any]:
    """The method of a registered operation."""
    operation = OPERATIONS[name]

    def method(
        self: Neve, table: str, *given: Any, request: Any = None, progress: Progress | None = None, **options: Any
    ) -> Any:
        asked = _asked(operation, given, request, options)
        with self.table(table, progress, branch=getattr(asked, "branch", MAIN)) as context:
            return context.sourced(context.timed(operation.run(context, asked)))

    def method_of_run(self: Neve, *given: Any, request: Any = None, progress: Progress | None = None, **options: Any) -> Any:
        asked = _asked(operation, given, request, options)
        with self.table(operation.table_of(self.connection, asked), progress) as context:
            return context.sourced(context.timed(operation.run(context, asked)))

    made: Callable[..., Any] = method_of_run if operation.of_run else method
    made.__name__, made.__doc__ = operation.name, operation.request.__doc__
    table = [] if operation.of_run else [Parameter("table", Parameter.POSITIONAL_OR_KEYWORD, annotation="str")]
    made.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter("self", Parameter.POSITIONAL_ONLY), *table, *parameters(operation.request)]
    )
    return made


class Neve:
    """A connection. Use it as a context manager: everything is opened at its first use and closed at the end."""

    cluster: Callable[..., RunRecord] = _method("cluster")
    compact: Callable[..., RunRecord] = _method("compact")
    deletes: Callable[..., UpkeepRecord] = _method("deletes")
    expire: Callable[..., ExpiryRecord] = _method("expire")
    maintain: Callable[..., MaintainRecord] = _method("maintain")
    manifests: Callable[..., ManifestsRecord] = _method("manifests")
    orphans: Callable[..., OrphanRecord] = _method("orphans")
    prevent: Callable[..., PreventionRecord] = _method("prevent")
    purge: Callable[..., QuarantineRecord] = _method("purge")
    restore: Callable[..., QuarantineRecord] = _method("restore")
    resume: Callable[..., RunRecord] = _method("resume")
    rollback: Callable[..., RolledBack] = _method("rollback")
    roll_back = rollback
    settle: Callable[..., QuarantineRecord] = _method("settle")
    stats: Callable[..., StatisticsRecord] = _method("stats")
    tags: Callable[..., TagsRecord] = _method("tags")
    ttl: Callable[..., TtlRecord] = _method("ttl")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    def open(
        cls,
        loaded: Loaded,
        *,
        warehouse: str | None = None,
        create_warehouse: bool = False,
        spark: Any = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """As `Connection.open` takes it."""
        from neve.context.connection import Connection

        options = {"warehouse": warehouse, "create_warehouse": create_warehouse, "spark": spark}
        return cls(Connection.open(loaded, **options, environ=environ, clock=clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # The session turns Spark's errors into ours while the JVM still lives: afterwards nobody could read them.
        return self.connection.resources.__exit__(kind, error, trace)

    def table(self, table: str, progress: Progress | None = None, *, branch: str = MAIN) -> TableContext:
        """One table, for one request."""
        from neve.context.table import TableContext

        return TableContext(self.connection, table, progress, branch=branch)

    def inspect(
        self,
        table: str,
        *,
        depth: Depth = Depth.FILES,
        sample: int = 0,
        branch: str = MAIN,
        progress: Progress | None = None,
    ) -> Inspection:
        """Inspects one table at the head of a branch; `sample` is how many footers to read besides."""
        from neve.operations.inspect import inspect

        return inspect(self.table(table, progress, branch=branch), depth=depth, footers=sample)

    def advise(self, table: str, *, every: int | None = None) -> Advice:
        """Whether a compaction is worth it; files are inspected only after every so many commits, else one catalog call."""
        from neve.operations import compact

        return compact.advise(self.table(table), every)

    def plan(self, table: str, *, request: Any = None, progress: Progress | None = None) -> Plan:
        """What a compaction of the table would do, with reasons and prices. Reads metadata only."""
        return cast("Plan", self.compact(table, request=request, progress=progress, dry_run=True))

    def work_orders(self, plan: Plan) -> list[WorkOrder]:
        """The plan as orders that can be carried out anywhere, by `execute` or by `neve work`, and then committed."""
        from neve.operations import results

        return results.orders_of(self.table(str(plan.table)), plan)

    def execute(self, order: WorkOrder) -> WorkResult:
        """Carries one order out in this process, without Spark. Its files are seen by nobody until they are committed."""
        from neve.kernels.orders import run_order
        from neve.storage.files import Storage

        return run_order(order, Storage(self.connection.order_storage(order.table)))

    def commit(self, plan: Plan, results: Sequence[WorkResult], *, progress: Progress | None = None) -> RunRecord:
        """Verifies and commits what orders of this plan wrote."""
        from neve.operations import results as operation

        with self.table(str(plan.table), progress) as context:
            return context.timed(operation.run(context, plan, results))

    def quarantine(self, table: str) -> tuple[QuarantinedRun, ...]:
        """What is in the table's quarantine: files of each run, by reason and fate."""
        from neve.operations import quarantine

        return quarantine.runs_of(self.table(table))

    def quarantined(self, table: str, *, run: str | None = None) -> Iterator[Quarantined]:
        """The single files, of all runs or of one, oldest first, as they are read."""
        from neve.operations import quarantine

        return quarantine.files_of(self.table(table), run)

    def unfinished(self, run: str | None = None) -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended. Raises BadRequestError if a run is named, and none of them begins so."""
        from neve.context.runs import unfinished

        return unfinished(self.connection.records(), run)

    def require_resumable(self, journalled: JournaledRun) -> None:
        """Raises LeaseHeldError while the owner of an interrupted run is at work on it, or may be."""
        from neve.operations import resume

        with self.table(str(journalled.plan.table)) as context:
            resume.require_resumable(context, journalled)

    def runs(self, table: str | None = None, *, limit: int = 100) -> tuple[Run, ...]:
        """Runs that were recorded, newest first."""
        uuid = None if table is None else self.table(table).uuid
        records = self.connection.records()
        if records is None:
            return ()
        from neve.context.runs import with_interrupted

        return with_interrupted(records.runs(uuid, limit=limit), records, self.connection.clock)

    def run(self, run_id: str) -> Run:
        """One run, by its id or by how that begins."""
        from neve.context.runs import find_run

        return find_run(self.connection.records(), self.connection.clock, run_id)

    def history(self, wanted: str, *, days: int = 30, limit: int = 20) -> History:
        """Health over time, and what runs did and cost, of one table or of all that a glob matches."""
        from neve.context.runs import history

        return history(self.connection.records(), self.connection.clock, wanted, days=days, limit=limit)

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the default catalog; `namespace` may begin with the name of another."""
        return self.connection.tables(namespace)

    def table_properties(self, table: str) -> dict[str, str]:
        """The properties of one table."""
        return self.table(table).state.properties

    @property
    def spark(self) -> Any:
        """The Spark session; started at its first use, stopped at the end."""
        return self.connection.spark

    @contextmanager
    def demo_target(self, namespace: str, *, spark: bool = False) -> Iterator[Target]:
        """Where sample tables go: the default catalog, with a Spark session beside it if asked."""
        from neve.samples import Target

        name = self.connection.default_name()
        client = self.connection.catalog(name).client
        client.create_namespace_if_not_exists(namespace)
        yield Target(catalog=client, spark=self.spark if spark else None, spark_catalog=name, namespace=namespace)

    def prepare(self) -> Prepared:
        """Fetches jars, prepares Java and makes the class archive for sessions of this connection."""
        from neve.context.class_archives import prepare

        _, needs = self.connection.spark_catalogs()
        return prepare(self.connection.spark_options(), needs)

    def doctor(self, *, start_spark: bool = False) -> tuple[DoctorCheck, ...]:
        """Whether everything that Neve needs is there. A reference that leads nowhere fails one check and ends none other."""
        from neve.catalogs.opening import spark_needs
        from neve.catalogs.probe import probe_catalog, probe_of_warehouse
        from neve.doctor import run_checks, settings_probe
        from neve.settings.unresolved import unresolved

        place = self.connection
        described = place.described.get(place.default or "")
        clock, probes = None, dict[str, Any]({"catalog": None, "warehouse": None})
        if described is not None:
            catalog = place.catalog(place.default_name())
            probes["catalog"] = lambda: probe_catalog(catalog)
            probes["warehouse"] = probe_of_warehouse(described, place.environ)
            clock = self._clock_elsewhere(described)
        broken = unresolved(place.settings, place.environ)
        return run_checks(
            options=place.spark_options(lenient=True),
            catalog_conf={} if broken else place.spark_catalogs()[0],
            needs={need for each in place.described.values() for need in spark_needs(each, place.environ)},
            settings=settings_probe(broken),
            probes={**probes, "state store": self._probe_state},
            remote_clock=clock,
            start_spark=start_spark,
            environ=place.environ,
        )

    def _clock_elsewhere(self, described: CatalogSettings) -> RemoteClock | None:
        """The clock that a commit is compared with: the catalog server's, else that of the disk."""
        from neve.catalogs.embedded import local_path
        from neve.catalogs.opening import revealed
        from neve.catalogs.storage import scheme
        from neve.doctor import file_clock, http_clock

        opened = revealed(described, self.connection.environ, lenient=True)
        if (opened.uri or "").startswith(("http://", "https://")):
            return http_clock(str(opened.uri))
        if opened.warehouse and scheme(opened.warehouse) == "file":
            return file_clock(local_path(opened.warehouse))
        return None

    def _probe_state(self) -> str:
        from neve.state import StateStore

        with StateStore.open(self.connection.state_url) as store:
            return store.check()
