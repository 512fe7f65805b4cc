"""What can be asked of Neve, each answer one method: it opens what it needs at a place and calls the flow with it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from neve.compose.data_ttl import DataTtl
from neve.compose.expiring import Expiring
from neve.compose.interrupted import with_interrupted
from neve.compose.keeping import Keeping
from neve.compose.looking import Looking
from neve.compose.maintaining import Maintaining
from neve.compose.orphans import Orphans, OrphansAsked
from neve.compose.place import Place
from neve.compose.prevention import Preventing
from neve.compose.quarantine import QuarantineKeeping
from neve.compose.resuming import Resuming
from neve.compose.rewriting import Rewriting
from neve.compose.upkeep import DeleteUpkeep
from neve.errors import BadRequestError
from neve.table.depth import Depth
from neve.table.state import MAIN

if TYPE_CHECKING:
    from neve.compose.class_archives import Prepared
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


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class Neve:
    """Settings made to work. Use it as a context manager."""

    def __init__(self, loaded: Loaded, place: Place, *, clock: Clock, resources: ExitStack) -> None:
        self._place, self._resources, self._clock = place, resources, clock
        self._looking = Looking(place, loaded, clock)
        self._rewriting = Rewriting(place, loaded, self._looking, clock)
        self._resuming = Resuming(self._rewriting, place, self._looking, clock)
        self._upkeep = DeleteUpkeep(place, self._looking, clock)
        self._expiring = Expiring(place, loaded, self._looking, clock)
        self._quarantine = QuarantineKeeping(place, self._looking, clock)
        self._orphans = Orphans(place, self._looking, clock)
        self._keeping = Keeping(place, self._looking, clock)
        self._ttl = DataTtl(place, self._looking, clock)
        self._preventing = Preventing(place, self._looking, clock)
        self._maintaining = Maintaining(self, place, self._looking, clock, due=(self._expiring.due, self._ttl.due))

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
        """`warehouse` is a directory to open as a catalog, besides the described ones; then it is the default.

        `spark` is a session of the caller's: tables are those of its own catalogs, and it is neither configured nor stopped.
        """
        if spark is not None and warehouse is not None:
            raise BadRequestError(f"Cannot open {warehouse} in the caller's session: it has catalogs of its own")
        catalogs, default = dict(loaded.settings.catalogs), loaded.settings.catalog_name
        if warehouse is not None:
            from neve.catalogs.embedded import open_warehouse

            default, catalogs[default] = open_warehouse(warehouse, create=create_warehouse)
        environ, resources = os.environ if environ is None else environ, ExitStack()
        if spark is None:
            place = Place(loaded.settings, catalogs, default, environ=environ, resources=resources)
        else:
            from neve.compose.caller import CallerPlace

            place = CallerPlace(loaded.settings, spark, environ=environ, resources=resources)
        place.settings_file = loaded.file
        return cls(loaded, place, clock=clock or SystemClock(), resources=resources)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # The session turns Spark's errors into ours while the JVM still lives: afterwards nobody could read them.
        return self._resources.__exit__(kind, error, trace)

    def inspect(
        self,
        table: str,
        *,
        depth: Depth = Depth.FILES,
        sample: int = 0,
        branch: str = MAIN,
        progress: Progress | None = None,
    ) -> Inspection:
        """A look at one table at the head of a branch; `sample` is how many footers to read besides."""
        return self._looking.inspect(table, depth=depth, sample=sample, branch=branch, progress=progress)

    def advise(self, table: str, *, every: int | None = None) -> Advice:
        """Whether a compaction is worth it; the files are looked at only after every so many commits, else one catalog call."""
        return self._rewriting.advise(table, every)

    def plan(self, table: str, *, request: Request | None = None, progress: Progress | None = None) -> Plan:
        """What a compaction of the table would do, with reasons and prices. Reads metadata only."""
        return self._rewriting.plan(table, request, progress)[1]

    def compact(
        self,
        table: str,
        *,
        request: Request | None = None,
        verify: str = "metadata",
        probe_query: str | None = None,
        expire_snapshots: bool = False,
        snapshot_retention_hours: float | None = None,
        progress: Progress | None = None,
    ) -> RunRecord:
        """Plans and carries out a compaction; the table reads the same rows at every moment.

        With `expire_snapshots` it then expires snapshots under the same lease: those older than `snapshot_retention_hours`, or
        by the table's own retention.
        """
        if snapshot_retention_hours is not None and not expire_snapshots:
            message = f"Cannot keep snapshots for {snapshot_retention_hours:g} hours: the compaction is not asked to expire any"
            raise BadRequestError(message, hint="Add --expire-snapshots (in Python, expire_snapshots=True).")
        expiry = self._expiring.after_compaction(table, snapshot_retention_hours, progress) if expire_snapshots else None
        words = {"verify": verify, "probe_query": probe_query, "progress": progress, "expiry": expiry}
        return self._rewriting.compact(table, request, **words)  # type: ignore[arg-type]

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
        return self._rewriting.cluster_plan(table, by, kind, request, progress)

    def cluster(
        self,
        table: str,
        by: str | None = None,
        *,
        kind: str | None = None,
        request: Request,
        verify: str = "metadata",
        probe_query: str | None = None,
        progress: Progress | None = None,
    ) -> RunRecord:
        """Rewrites files that overlap most, in the order of these columns; the table keeps them, and they are its own unless
        given."""
        return self._rewriting.cluster(table, by, kind, request, verify=verify, probe_query=probe_query, progress=progress)

    def work_orders(self, plan: Plan) -> list[WorkOrder]:
        """The plan as orders that can be carried out anywhere, by `execute` or by `neve work`, and then committed."""
        return self._resuming.work_orders(plan)

    def execute(self, order: WorkOrder) -> WorkResult:
        """Carries one order out in this process, without Spark. Its files are seen by nobody until they are committed."""
        from neve.kernels.orders import run_order
        from neve.storage.files import Storage

        return run_order(order, Storage(self._place.order_storage(order.table)))

    def commit(self, plan: Plan, results: Sequence[WorkResult], *, progress: Progress | None = None) -> RunRecord:
        """Verifies and commits what orders of this plan wrote."""
        return self._resuming.commit(plan, results, progress)

    def deletes(
        self, table: str, operation: str, *, branch: str = MAIN, dry_run: bool = False, progress: Progress | None = None
    ) -> UpkeepRecord:
        """Keeps the table's deletes few and cheap by `convert`, `rewrite` or `prune`; no row changes, no data is rewritten."""
        return self._upkeep.run(table, operation, branch=branch, dry_run=dry_run, progress=progress)

    def expire(
        self,
        table: str,
        *,
        older_than: str | None = None,
        keep: int | None = None,
        snapshot_ids: Sequence[int] = (),
        metadata_only: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ExpiryRecord:
        """Expires snapshots that nobody needs, and writes down what only they needed; `older_than` is an age or a moment."""
        return self._expiring.run(
            table,
            older_than=older_than,
            keep=keep,
            snapshot_ids=snapshot_ids,
            metadata_only=metadata_only,
            dry_run=dry_run,
            progress=progress,
        )

    def quarantine(self, table: str) -> tuple[QuarantinedRun, ...]:
        """What is in the table's quarantine: files of each run, by reason and fate."""
        return self._quarantine.runs(table)

    def quarantined(self, table: str, *, run: str | None = None) -> Iterator[Quarantined]:
        """The single files, of all runs or of one, oldest first, as they are read."""
        return self._quarantine.files(table, run)

    def settle(
        self,
        table: str,
        *,
        run: str | None = None,
        limit: int | None = None,
        at_once: bool = False,
        delete: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> QuarantineRecord:
        """Looks again at files that were recorded: what is needed stays, the rest goes to the trash."""
        words = {"run": run, "limit": limit, "at_once": at_once, "delete": delete, "dry_run": dry_run}
        return self._quarantine.settle(table, **words, progress=progress)  # type: ignore[arg-type]

    def purge(
        self, table: str, *, limit: int | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> QuarantineRecord:
        """Removes files for good that have been in the trash for `trash-keep`; what is needed by now is put back."""
        return self._quarantine.purge(table, limit=limit, dry_run=dry_run, progress=progress)

    def restore(
        self, run: str, *, table: str | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> QuarantineRecord:
        """Puts the files back that a run put into the quarantine, unless they are purged. Expired snapshots stay expired."""
        return self._quarantine.restore(run, table, self.run, dry_run=dry_run, progress=progress)

    def orphans(self, table: str, asked: OrphansAsked | None = None, *, progress: Progress | None = None) -> OrphanRecord:
        """Finds files that no snapshot of the table needs and puts them into the quarantine; none is moved or deleted."""
        return self._orphans.run(table, asked or OrphansAsked(), progress)

    def manifests(
        self,
        table: str,
        *,
        by: Sequence[str] = (),
        limit: int = 10_000,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ManifestsRecord:
        """Rewrites manifests where queries gain by it, sorted by these partition fields or by all of them; files stay."""
        return self._keeping.manifests(table, by, limit=limit, dry_run=dry_run, progress=progress)

    def stats(
        self,
        table: str,
        *,
        columns: Sequence[str] = (),
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> StatisticsRecord:
        """Counts the different values of columns, and rows by partition, where what is known of them has aged."""
        return self._keeping.statistics(table, columns, force=force, dry_run=dry_run, progress=progress)

    def tags(self, table: str, *, dry_run: bool = False, progress: Progress | None = None) -> TagsRecord:
        """Makes and drops tags of ends of days, weeks and months as the policy's `auto-tags` says."""
        return self._keeping.tags(table, dry_run=dry_run, progress=progress)

    def ttl(
        self,
        table: str,
        *,
        enforce: bool = False,
        dry_run: bool = False,
        branch: str = MAIN,
        progress: Progress | None = None,
    ) -> TtlRecord:
        """Counts the rows that are past their time, which is remembered unless it is a `dry_run`, or removes them."""
        return self._ttl.run(table, enforce=enforce, dry_run=dry_run, branch=branch, progress=progress)

    def maintain(
        self,
        table: str,
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintainRecord:
        """Does all that the table needs, in the safe order, as far as it is due; steps are chosen by their names."""
        return self._maintaining.run(table, only=only, skip=skip, dry_run=dry_run, progress=progress)

    def prevent(
        self, table: str, *, apply: bool = False, undo: bool = False, progress: Progress | None = None
    ) -> PreventionRecord:
        """Proposes properties that keep files from becoming bad; sets them, or takes back what was set, where asked."""
        return self._preventing.run(table, apply=apply, undo=undo, progress=progress)

    def unfinished(self) -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended."""
        records = self._place.records()
        return records.unfinished() if records is not None else ()

    def require_resumable(self, journalled: JournaledRun) -> None:
        """Raises LeaseHeldError while the owner of an interrupted run is at work on it, or may be."""
        self._resuming.require_resumable(journalled)

    def resume(self, journalled: JournaledRun, *, progress: Progress | None = None) -> RunRecord:
        """Takes a run up where it stopped: what was written is committed if it still holds, the rest is done again."""
        return self._resuming.resume(journalled, progress)

    def preview_resume(self, journalled: JournaledRun) -> Remaining:
        """What `resume` would do with each group of the run. Changes nothing, and starts no Spark."""
        return self._resuming.preview(journalled)

    def abandon(self, journalled: JournaledRun) -> RunRecord:
        """Ends an interrupted run without committing anything of it; no file is removed."""
        return self._resuming.abandon(journalled)

    def roll_back(self, run_id: str, *, dry_run: bool = False) -> RolledBack:
        """Rolls back what a run committed, unless others have committed since; a `dry_run` changes nothing."""
        return self._rewriting.roll_back(self.run(run_id), dry_run=dry_run)

    def runs(self, table: str | None = None, *, limit: int = 100) -> tuple[Run, ...]:
        """Runs that were recorded, newest first."""
        uuid = None if table is None else self._looking.reader(table).state().uuid
        records = self._place.records()
        return () if records is None else with_interrupted(records.runs(uuid, limit=limit), records, self._clock)

    def run(self, run_id: str) -> Run:
        """One run, by its id or by how that begins."""
        store = self._place.records()
        exact = store.run(run_id) if store is not None else None
        known = store.runs(limit=_RUNS_SEARCHED) if store is not None and exact is None else ()
        found = [exact] if exact else [run for run in known if run.run_id.startswith(run_id)]
        if len(found) == 1 and store is not None:
            return with_interrupted(found, store, self._clock)[0]
        if not found:
            raise BadRequestError(f"Cannot find run {run_id!r}: no run's id begins so", hint="`neve runs` lists them.")
        some = ", ".join(run.run_id for run in found[:3])
        message = f"Cannot choose run {run_id!r}: {len(found)} runs begin so ({some})"
        raise BadRequestError(message, hint="Write more of the id.")

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the default catalog; `namespace` may begin with the name of another."""
        return self._place.tables(namespace)

    def table_properties(self, table: str) -> dict[str, str]:
        """The properties of one table."""
        return self._looking.reader(table).state().properties

    @property
    def spark(self) -> Any:
        """The Spark session; started at its first use, stopped at the end."""
        return self._place.spark

    @contextmanager
    def demo_target(self, namespace: str, *, spark: bool = False) -> Iterator[Target]:
        """Where sample tables go: the default catalog, with a Spark session beside it if asked."""
        from neve.samples import Target

        name = self._place.default_name()
        client = self._place.catalog(name).client
        client.create_namespace_if_not_exists(namespace)
        yield Target(catalog=client, spark=self.spark if spark else None, spark_catalog=name, namespace=namespace)

    def prepare(self) -> Prepared:
        """Fetches jars, prepares Java and makes the class archive for sessions of this place."""
        from neve.compose.class_archives import prepare

        # Without any catalog, the next command most likely names a directory (--warehouse).
        needs = self._place.spark_catalogs()[1] if self._place.described else {"sqlite"}
        return prepare(self._place.spark_options(), needs)

    def doctor(self, *, start_spark: bool = False) -> tuple[DoctorCheck, ...]:
        """Whether everything that Neve needs is there."""
        from neve.catalogs.probe import probe_catalog, probe_of_warehouse
        from neve.doctor import run_checks

        place = self._place
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

        opened = revealed(described, self._place.environ)
        if (opened.uri or "").startswith(("http://", "https://")):
            return http_clock(str(opened.uri))
        if opened.warehouse and scheme(opened.warehouse) == "file":
            return file_clock(local_path(opened.warehouse))
        return None

    def _probe_state(self) -> str:
        from neve.state import StateStore

        with StateStore.open(self._place.state_url) as store:
            return store.check()
