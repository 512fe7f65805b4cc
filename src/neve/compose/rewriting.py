"""Rewriting tables: plans, runs, their continuation and their undoing, with the adapters of a place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.core.depth import Depth
from neve.core.plan_words import Kernel
from neve.errors import BadRequestError, CommitIncidentError, NeveError

if TYPE_CHECKING:
    from neve.core.advice import Advice
    from neve.core.cost import Rates
    from neve.core.journal import JournaledRun
    from neve.core.layout import Layout
    from neve.core.model import PartitionSpec, TableState
    from neve.core.plan import Plan
    from neve.core.policy import Policy
    from neve.core.queries import QueryGain
    from neve.core.record import RunRecord
    from neve.core.statistics import Condition
    from neve.core.work import WorkOrder, WorkResult
    from neve.engines.spark.bridge import TableBridge
    from neve.flow.plan import Request
    from neve.flow.rollback import Committed, RolledBack
    from neve.flow.tools import Tools
    from neve.ports import Clock, ContentVerifier, Progress, TableReader, TableWriter
    from neve.settings import CostSettings, Loaded
    from neve.state import StateStore
    from neve.state.rows import Run


log = logging.getLogger(__name__)

Knobs = Mapping[str, Any]
"""Fields of the policy by name."""


class Rewriting:
    """Calls the flow that changes tables."""

    def __init__(self, place: Place, loaded: Loaded, looking: Looking, clock: Clock) -> None:
        self._place, self._loaded, self._looking, self._clock = place, loaded, looking, clock

    def plan(
        self, table: str, request: Request | None, progress: Progress | None, knobs: Knobs | None = None
    ) -> tuple[TableState, Plan]:
        """What a run would do, and the state that it was planned from; `knobs` override the policy, by the fields' names."""
        from neve.flow import inspect, plan

        request = replace(request or plan.Request(), rates=_rates(self._place.settings.cost))
        reader = self._looking.reader(table, request.branch)
        state = inspect.read(reader, Depth.MANIFESTS)
        policy, memory = self._policy(state, knobs or {}), self._looking.memory(state)
        files = reader.files(state.manifests or (), progress, bounds=plan.bounds_wanted(state, policy))
        state = state.model_copy(update={"files": files})
        if request.where is not None:
            request = replace(request, paths=self._chosen(state, request.where))
        footers = self._footers(reader, state, memory.row_groups)
        now = self._clock.now_ms()
        planned = plan.plan(state, policy, now_ms=now, memory=memory, footers=footers, request=request)
        return state, self._with_queries(planned, state, {**memory.row_groups, **footers})

    def _with_queries(self, planned: Plan, state: TableState, row_groups: Mapping[str, int]) -> Plan:
        """The plan with what stated queries read. Spark reads predicates, so where there are some this starts it."""
        if not planned.policy.queries:
            return planned
        from neve.engines.spark.bridge import TableBridge
        from neve.flow.queries import predict

        bridge = TableBridge(self._place.spark, state.name)
        return planned.model_copy(update={"queries": predict(planned, state, bridge, row_groups)})

    def _policy(self, state: TableState, knobs: Knobs) -> Policy:
        """The table's, in which a layout that names no column of the table counts only if it was asked for in this very call:
        elsewhere it may have been right when it was written down, and files can be merged without it."""
        from neve.flow.inspect import layout_of
        from neve.settings.origins import OriginKind

        told, origins = self._loaded.policy(state.properties)
        policy = told.model_copy(update=knobs)
        try:
            layout_of(state, policy)
        except BadRequestError as error:
            if "strategy" in knobs or origins["cluster-by"].kind is OriginKind.FLAG:
                raise
            log.warning("the layout is left aside: %s", error)
            return policy.model_copy(update={"cluster_by": None})
        return policy

    def advise(self, table: str, every: int | None) -> Advice:
        """Whether a compaction is worth it: the files are looked at only after every so many commits, else one catalog call."""
        from neve.core.advice import advise, is_due, not_looked

        state = self._looking.reader(table).state()
        policy = self._looking.policy(state)
        interval = every or policy.check_interval_writes
        if not policy.advise:
            return not_looked(str(state.name), "advise is off")
        if not is_due(state, interval):
            return not_looked(str(state.name), f"looked at every {interval} commits")
        state, planned = self.plan(table, None, None)
        return advise(planned, self._looking.examine(state).small_files or 0)

    def cluster_plan(self, table: str, by: str | None, kind: str | None, request: Request, progress: Progress | None) -> Plan:
        """What `cluster` would do; nothing is stored."""
        return self.plan(table, request, progress, self._clustering(table, asked_layout(by, kind)))[1]

    def cluster(
        self,
        table: str,
        by: str | None,
        kind: str | None,
        request: Request,
        *,
        verify: str,
        probe_query: str | None,
        progress: Progress | None,
    ) -> RunRecord:
        """Stores the layout in the table, so that any later run goes on with it, and carries a run of it out."""
        from neve.core.layout import CLUSTER_BY
        from neve.engines.spark.bridge import TableBridge
        from neve.flow.lease import require_history

        layout = asked_layout(by, kind)
        knobs = self._clustering(table, layout)
        state = self._looking.reader(table).state()
        kept = state.properties.get(CLUSTER_BY)
        if layout is not None and kept != str(layout):
            self._place.check_commits(state.name)
            require_history(str(state.name), state.properties)
            if not TableBridge(self._place.spark, state.name).swap_property(CLUSTER_BY, kept, str(layout)):
                message = f"Cannot keep the layout of {state.name}: somebody else has just changed it"
                raise BadRequestError(message, hint="Look at the table property neve.cluster-by, and try again.")
        return self.compact(table, request, verify=verify, probe_query=probe_query, progress=progress, knobs=knobs)

    def _clustering(self, table: str, by: Layout | None) -> Knobs:
        """The knobs of a clustering run. Raises BadRequestError where there is no layout, or none that the table can have."""
        from neve.flow.inspect import layout_of

        knobs: Knobs = {"strategy": "dimensional"} | ({"cluster_by": str(by)} if by is not None else {})
        state = self._looking.reader(table).state()
        if layout_of(state, self._looking.policy(state).model_copy(update=knobs)) is None:
            hint = 'Name the columns that queries look for, such as --by "city, amount".'
            raise BadRequestError(f"Cannot cluster {state.name}: it has neither neve.cluster-by nor a sort order", hint=hint)
        return knobs

    def compact(
        self,
        table: str,
        request: Request | None,
        *,
        verify: str,
        probe_query: str | None,
        progress: Progress | None,
        knobs: Knobs | None = None,
    ) -> RunRecord:
        """Plans and carries out a compaction."""
        from neve.core.statistics import Condition
        from neve.engines.spark.probe import require_query
        from neve.flow import run

        if probe_query is not None:
            require_query(probe_query)
        state, planned = self.plan(table, request, progress, knobs)
        before = Condition.of(self._looking.examine(state))
        if not len(planned.groups):
            return run.nothing_to_do(planned, clock=self._clock).between(before, before)
        with self._store() as store:
            tools = self._tools(planned, state.specs, store, progress, verify=verify)
            record = self._probed(probe_query, planned, tools.writer, lambda: run.compact(planned, tools))
            return self._ended(store, record, planned, before)

    def work_orders(self, plan: Plan) -> list[WorkOrder]:
        """The plan as orders."""
        from neve.engines.spark.bridge import TableBridge
        from neve.flow.execute import work_orders

        self._place.check_commits(plan.table)
        bridge = TableBridge(self._place.spark, plan.table)
        live = {file.path: file for file in bridge.scan(plan.snapshot_id)}
        return work_orders(plan, plan.groups, live, bridge, self._specs(plan))

    def commit(self, plan: Plan, results: Sequence[WorkResult], progress: Progress | None) -> RunRecord:
        """Verifies and commits what orders of this plan wrote."""
        from neve.flow import run

        with self._store() as store:
            tools = self._tools(plan, self._specs(plan), store, progress)
            return self._ended(store, run.commit_results(plan, results, tools), plan)

    def resume(self, journalled: JournaledRun, progress: Progress | None) -> RunRecord:
        """Takes a run up where it stopped."""
        from neve.flow import run

        plan = journalled.plan
        with self._store() as store:
            tools = self._tools(plan, self._specs(plan), store, progress)
            return self._ended(store, run.resume(journalled, tools), plan)

    def roll_back(self, found: Run) -> RolledBack:
        """Takes back what a run committed."""
        from neve.core.manifest_plan import ManifestsRecord
        from neve.core.record import RunRecord
        from neve.core.upkeep import UpkeepRecord
        from neve.engines.spark.bridge import TableBridge
        from neve.flow.lease import leased
        from neve.flow.rollback import roll_back

        kinds: dict[str, type[Committed]] = {"compact": RunRecord, "deletes": UpkeepRecord, "manifests": ManifestsRecord}
        if not found.record or found.kind not in kinds:
            message = f"Cannot roll back run {found.run_id[:8]}: it has no record of commits"
            raise BadRequestError(message, hint="Try neve resume first.")
        record, started = kinds[found.kind].model_validate(found.record), self._clock.now_ms()
        name = self._place.name(record.table)
        self._place.check_commits(name)
        writer, run_id = TableBridge(self._place.spark, name), uuid4().hex
        with (
            self._store() as store,
            leased(record.table, record.table_uuid, run_id, leases=store, writer=writer, clock=self._clock),
        ):
            done = roll_back(record, writer)
            self._keep_rollback(store, run_id, record, done, started)
        return done

    def _keep_rollback(self, store: StateStore, run_id: str, record: Committed, done: RolledBack, started_ms: int) -> None:
        from neve.state.rows import Run

        store.start_run(Run(run_id, record.table_uuid, record.table, "rollback", started_ms))
        document = done.model_dump(mode="json")
        store.finish_run(run_id, finished_ms=self._clock.now_ms(), outcome="done", record=document)

    def _footers(self, reader: TableReader, state: TableState, remembered: Mapping[str, int]) -> Mapping[str, int]:
        """Row groups of a few files, where neither the metadata nor our records tell how the files are cut."""
        from neve.core.row_groups import untold

        wanted = untold(state.files, remembered) if state.files is not None else []
        size = self._place.settings.inspect.footer_sample
        return reader.sample_row_groups(wanted[:: max(1, len(wanted) // size)][:size]) if wanted and size else {}

    def _chosen(self, state: TableState, where: str) -> set[str]:
        """The files that a predicate chooses. Spark reads predicates, so this starts it."""
        from neve.engines.spark.bridge import TableBridge

        return TableBridge(self._place.spark, state.name).matching(state.snapshot_id, where) if state.snapshot_id else set()

    def _counted_again(self, planned: Plan, record: RunRecord) -> tuple[QueryGain, ...]:
        """What the plan's queries read now; as predicted only, where the table cannot be looked at any more."""
        from neve.core.files import FileColumns
        from neve.core.row_groups import with_row_groups
        from neve.engines.spark.bridge import TableBridge
        from neve.flow import inspect, queries

        cut = {output.path: output.row_groups for group in record.groups for output in group.outputs}
        try:
            state = inspect.read(self._looking.reader(str(planned.table), planned.branch), Depth.FILES)
            files = with_row_groups(state.files or FileColumns.empty(), {**self._looking.memory(state).row_groups, **cut})
            bridge = TableBridge(self._place.spark, planned.table)
            return queries.count_again(planned.queries, bridge, state.snapshot_id, files)
        except NeveError as error:  # the run is done, and must be remembered
            log.warning("the queries could not be counted again: %s", error)
            return planned.queries

    def _specs(self, plan: Plan) -> Sequence[PartitionSpec]:
        return self._looking.reader(str(plan.table)).state().specs

    def _store(self) -> StateStore:

        return self._place.store()

    def _tools(
        self,
        planned: Plan,
        specs: Sequence[PartitionSpec],
        store: StateStore,
        progress: Progress | None,
        *,
        verify: str = "metadata",
    ) -> Tools:
        """What the flow needs to carry a plan out on this table."""
        from neve.engines.spark.bridge import TableBridge
        from neve.engines.spark.rewrite import SparkEngine
        from neve.engines.spark.spark_kernel import SparkKernel
        from neve.flow.tools import Tools
        from neve.kernels.deletes.store import StoredDeletes
        from neve.storage import Storage

        place = self._place
        place.check_commits(planned.table)
        bridge = TableBridge(place.spark, planned.table)
        kernel = SparkKernel(place.spark, bridge, planned.snapshot_id or 0)
        policy = planned.policy
        engine = SparkEngine(
            place.spark,
            kernel,
            lambda: place.storage(planned.table),
            max_parallelism=policy.max_parallelism,
            inline_bytes=policy.inline_delete_bytes,
        )
        return Tools(
            writer=bridge,
            engine=engine,
            specs=specs,
            clock=self._clock,
            sleep=time.sleep,
            progress=progress,
            journal=store,
            leases=store,
            content=self._content_check(bridge, planned) if verify == "content" else None,
            deletes=StoredDeletes(lambda: Storage(place.storage(planned.table))),
        )

    def _content_check(self, bridge: TableBridge, planned: Plan) -> ContentVerifier:
        from neve.engines.spark.content import ContentCheck

        place = self._place
        return ContentCheck(place.spark, bridge, planned.snapshot_id or 0, lambda: place.storage(planned.table))

    def _probed(self, sql: str | None, planned: Plan, writer: TableWriter, carry_out: Callable[[], RunRecord]) -> RunRecord:
        """Carries a run out between two measurements of a query; without one, just carries it out."""
        if sql is None:
            return carry_out()
        from neve.core.content import probe_result
        from neve.core.model import RUN_ID
        from neve.engines.spark.probe import Probe

        probe = Probe(self._place.spark, sql, planned.table)
        before = probe.measure()
        record = carry_out()
        try:
            after = probe.measure()
            writer.refresh()
        except NeveError as error:  # the run is done, and must be remembered
            log.warning("the probe query could not be asked again: %s", error)
            return record
        head = writer.head(planned.branch)
        since = writer.ancestry(head, planned.snapshot_id) if head is not None else []
        others = any(ancestor.summary.get(RUN_ID) != record.run_id for ancestor in since)
        return record.model_copy(update={"probe": probe_result(before, after, others_committed=others)})

    def _ended(self, store: StateStore, record: RunRecord, planned: Plan, before: Condition | None = None) -> RunRecord:
        """Remembers the run, so that the next look knows what was compacted when, and how its files are cut."""
        from neve.flow.record import keep

        table, branch = str(planned.table), planned.branch
        before = before or self._looking.condition(table, branch, at=planned.snapshot_id)
        after = self._looking.condition(table, branch, wrote=record)
        if before is not None and after is not None:
            record = record.between(before, after)
        if planned.queries:
            record = record.model_copy(update={"queries": self._counted_again(planned, record)})
        keep(store, record, planned)
        if record.incident is not None:
            raise CommitIncidentError(record.incident)
        return record


def asked_layout(by: str | None, kind: str | None) -> Layout | None:
    """The layout that was asked for, None for the table's own. Raises BadRequestError for what is none."""
    from neve.core.layout import Layout

    if by is None and kind is not None:
        raise BadRequestError(f"Cannot cluster by {kind}: no columns were given", hint='Add them, such as --by "city, amount".')
    if by is None:
        return None
    try:
        return Layout.parse(f"{kind}({by})" if kind is not None else by)
    except ValueError as error:
        hint = 'Write columns, such as --by "city, amount"; --kind says how they are ordered.'
        raise BadRequestError(f"Cannot cluster by {by!r}: {error}", hint=hint) from None


def _rates(cost: CostSettings) -> Rates:
    """The settings' table as the plan takes it."""
    from neve.core.cost import Rates

    rates = Rates()
    speeds = {Kernel.COPY: cost.copy_throughput, Kernel.ARROW: cost.arrow_throughput, Kernel.SPARK: cost.spark_throughput}
    return rates.model_copy(
        update={
            **{f"{kernel}_kernel": rates.of(kernel).model_copy(update={"bytes_per_second": s}) for kernel, s in speeds.items()},
            "core_hour": cost.core_hour,
            "thousand_reads": cost.thousand_reads,
            "thousand_writes": cost.thousand_writes,
        }
    )
