"""`Neve`: a connection to catalogs, Spark and the state store, and what can be asked of it.

Every surface opens one. An operation of `operations.registry` is a method here; its options are the fields of its request.
Operations are imported when they are first called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from neve.errors import BadRequestError
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
    from neve.rewrite.planner import Request
    from neve.rewrite.record import RunRecord
    from neve.rewrite.remaining import Remaining
    from neve.rewrite.work_order import WorkOrder, WorkResult
    from neve.samples import Target
    from neve.settings import CatalogSettings, Loaded
    from neve.state.rows import Run
    from neve.table.state import TableName

_RUNS_SEARCHED = 1_000
"""How far back a run is found by the beginning of its id; a whole id is always found."""


def _method(operation: RegisteredOperation) -> Callable[..., Any]:
    def method(self: Neve, table: str, *given: Any, progress: Progress | None = None, **options: Any) -> Any:
        is_made = bool(given) and isinstance(given[0], operation.request)
        request = given[0] if is_made else requested(operation.request, *given, **options)
        return self.run_operation(operation, table, request, progress)

    method.__name__, method.__doc__ = operation.name, operation.request.__doc__
    table = Parameter("table", Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    method.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), table, *parameters(operation.request)])  # type: ignore[attr-defined]
    return method


class Neve:
    """A connection. Use it as a context manager: everything is opened at its first use and closed at the end."""

    deletes: Callable[..., UpkeepRecord] = _method(OPERATIONS["deletes"])
    expire: Callable[..., ExpiryRecord] = _method(OPERATIONS["expire"])
    maintain: Callable[..., MaintainRecord] = _method(OPERATIONS["maintain"])
    manifests: Callable[..., ManifestsRecord] = _method(OPERATIONS["manifests"])
    orphans: Callable[..., OrphanRecord] = _method(OPERATIONS["orphans"])
    prevent: Callable[..., PreventionRecord] = _method(OPERATIONS["prevent"])
    purge: Callable[..., QuarantineRecord] = _method(OPERATIONS["purge"])
    settle: Callable[..., QuarantineRecord] = _method(OPERATIONS["settle"])
    stats: Callable[..., StatisticsRecord] = _method(OPERATIONS["stats"])
    tags: Callable[..., TagsRecord] = _method(OPERATIONS["tags"])
    ttl: Callable[..., TtlRecord] = _method(OPERATIONS["ttl"])

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

    def run_operation(self, operation: RegisteredOperation, table: str, request: Any, progress: Progress | None = None) -> Any:
        """Carries out a request of a registered operation."""
        with self.table(table, progress, branch=getattr(request, "branch", MAIN)) as context:
            return operation.run(context, request)

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

    def plan(self, table: str, *, request: Request | None = None, progress: Progress | None = None) -> Plan:
        """What a compaction of the table would do, with reasons and prices. Reads metadata only."""
        from neve.operations import compact
        from neve.rewrite.planner import Request

        request = request or Request()
        return compact.plan(self.table(table, progress, branch=request.branch), request)[1]

    def compact(
        self, table: str, *, request: Request | None = None, progress: Progress | None = None, **options: Any
    ) -> RunRecord:
        """Plans and carries out a compaction; the table reads the same rows at every moment.

        Options are `verify`, `probe_query`, `expire_snapshots` and `snapshot_retention_hours`. With `expire_snapshots` it then
        expires snapshots under the same lease: those older than so many hours, or by the table's own retention.
        """
        from neve.operations import compact
        from neve.rewrite.planner import Request

        request = request or Request()
        with self.table(table, progress, branch=request.branch) as context:
            return compact.run(context, request, **options)

    def cluster_plan(
        self,
        table: str,
        by: str | None = None,
        *,
        kind: str | None = None,
        request: Request,
        progress: Progress | None = None,
    ) -> Plan:
        """What `cluster` would do. Reads metadata only, and stores nothing."""
        from neve.operations import cluster

        return cluster.plan(self.table(table, progress, branch=request.branch), by, kind, request)

    def cluster(
        self,
        table: str,
        by: str | None = None,
        *,
        kind: str | None = None,
        request: Request,
        progress: Progress | None = None,
        **options: Any,
    ) -> RunRecord:
        """Rewrites files that overlap most, in the order of these columns. The table stores them, and they are its own unless
        given. Options are `verify` and `probe_query`."""
        from neve.operations import cluster

        with self.table(table, progress, branch=request.branch) as context:
            return cluster.run(context, by, kind, request, **options)

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
            return operation.run(context, plan, results)

    def quarantine(self, table: str) -> tuple[QuarantinedRun, ...]:
        """What is in the table's quarantine: files of each run, by reason and fate."""
        from neve.operations import quarantine

        return quarantine.runs_of(self.table(table))

    def quarantined(self, table: str, *, run: str | None = None) -> Iterator[Quarantined]:
        """The single files, of all runs or of one, oldest first, as they are read."""
        from neve.operations import quarantine

        return quarantine.files_of(self.table(table), run)

    def restore(
        self, run: str, *, table: str | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> QuarantineRecord:
        """Puts the files back that a run put into the quarantine, unless they are purged. Expired snapshots stay expired."""
        from neve.operations import quarantine

        found = self.run(run) if table is None else None
        with self.table(table or (found.table_name if found else ""), progress) as context:
            return quarantine.run_restore(context, run, found, dry_run=dry_run)

    def unfinished(self) -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended."""
        records = self.connection.records()
        return records.unfinished() if records is not None else ()

    def require_resumable(self, journalled: JournaledRun) -> None:
        """Raises LeaseHeldError while the owner of an interrupted run is at work on it, or may be."""
        from neve.operations import resume

        with self.table(str(journalled.plan.table)) as context:
            resume.require_resumable(context, journalled)

    def resume(self, journalled: JournaledRun, *, progress: Progress | None = None) -> RunRecord:
        """Takes a run up where it stopped: what was written is committed if it still holds, the rest is done again."""
        from neve.operations import resume

        with self.table(str(journalled.plan.table), progress) as context:
            return resume.run(context, journalled)

    def preview_resume(self, journalled: JournaledRun) -> Remaining:
        """What `resume` would do with each group of the run. Changes nothing, and starts no Spark."""
        from neve.operations import resume

        return resume.run_preview(self.table(str(journalled.plan.table)), journalled)

    def abandon(self, journalled: JournaledRun) -> RunRecord:
        """Ends an interrupted run without committing anything of it; no file is removed."""
        from neve.operations import resume

        with self.table(str(journalled.plan.table)) as context:
            return resume.abandon(context, journalled)

    def roll_back(self, run_id: str, *, dry_run: bool = False) -> RolledBack:
        """Rolls back what a run committed, unless others have committed since; a `dry_run` changes nothing."""
        from neve.operations import rollback

        record = rollback.committed(self.run(run_id))
        with self.table(record.table) as context:
            return rollback.run(context, record, dry_run=dry_run)

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
        store = self.connection.records()
        exact = store.run(run_id) if store is not None else None
        known = store.runs(limit=_RUNS_SEARCHED) if store is not None and exact is None else ()
        found = [exact] if exact else [run for run in known if run.run_id.startswith(run_id)]
        if len(found) == 1 and store is not None:
            from neve.context.runs import with_interrupted

            return with_interrupted(found, store, self.connection.clock)[0]
        if not found:
            raise BadRequestError(f"Cannot find run {run_id!r}: no run's id begins so", hint="`neve runs` lists them.")
        some = ", ".join(run.run_id for run in found[:3])
        message = f"Cannot choose run {run_id!r}: {len(found)} runs begin so ({some})"
        raise BadRequestError(message, hint="Write more of the id.")

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
        """Whether everything that Neve needs is there."""
        from neve.catalogs.probe import probe_catalog, probe_of_warehouse
        from neve.doctor import run_checks

        place = self.connection
        described = place.described.get(place.default or "")
        clock, probes = None, dict[str, Any]({"catalog": None, "warehouse": None})
        if described is not None:
            catalog = place.catalog(place.default_name())
            probes["catalog"] = lambda: probe_catalog(catalog)
            probes["warehouse"] = probe_of_warehouse(described, place.environ)
            clock = self._clock_elsewhere(described)
        conf, needs = place.spark_catalogs()
        return run_checks(
            options=place.spark_options(),
            catalog_conf=conf,
            needs=needs,
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

        opened = revealed(described, self.connection.environ)
        if (opened.uri or "").startswith(("http://", "https://")):
            return http_clock(str(opened.uri))
        if opened.warehouse and scheme(opened.warehouse) == "file":
            return file_clock(local_path(opened.warehouse))
        return None

    def _probe_state(self) -> str:
        from neve.state import StateStore

        with StateStore.open(self.connection.state_url) as store:
            return store.check()
