"""Rewriting tables: plans, runs, their continuation and their undoing, with the adapters of a place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from neve.compose.looking import Looking, rates_of
from neve.compose.place import Place, withdraw_compactions
from neve.errors import BadRequestError, CommitIncidentError, NeveError, RunInterrupted, TableGoneError
from neve.rewrite.group import Kernel, RunKind
from neve.table.depth import Depth

if TYPE_CHECKING:
    from neve.commit.tools import Tools
    from neve.compose.expire_after import ExpireAfter
    from neve.health.condition import Condition
    from neve.health.queries import QueryGain
    from neve.operations.rollback import Committed, RolledBack
    from neve.policy.model import Policy
    from neve.ports import Clock, ContentVerifier, Progress, TableReader, TableWriter
    from neve.rewrite.advice import Advice
    from neve.rewrite.kernel_options import RewriteOption
    from neve.rewrite.plan import Plan
    from neve.rewrite.planner import Request
    from neve.rewrite.record import RunRecord
    from neve.settings import Loaded
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore
    from neve.state.rows import Run
    from neve.table.layout import Layout
    from neve.table.state import PartitionSpec, TableState


log = logging.getLogger(__name__)

Knobs = Mapping[str, Any]
"""Fields of the policy by name."""


class _Planned(NamedTuple):
    """A plan, and the table that it was made from."""

    state: TableState
    plan: Plan
    before: Condition


class Rewriting:
    """Calls the flow that changes tables."""

    def __init__(self, place: Place, loaded: Loaded, looking: Looking, clock: Clock) -> None:
        self._place, self._loaded, self._looking, self._clock = place, loaded, looking, clock

    def plan(
        self, table: str, request: Request | None, progress: Progress | None, knobs: Knobs | None = None
    ) -> tuple[TableState, Plan]:
        """What a run would do, and the state that it was planned from; `knobs` override the policy, by the fields' names."""
        from neve.operations import inspect
        from neve.rewrite import planner as plan

        request = replace(request or plan.Request(), rates=rates_of(self._place.settings.cost))
        reader = self._looking.reader(table, request.branch)
        state = inspect.read(reader, Depth.MANIFESTS)
        (policy, options), memory = self._policy(state, knobs or {}), self._looking.memory(state)
        request = replace(request, options=options)
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
        from neve.operations.queries import predict
        from neve.spark.table.bridge import TableBridge

        bridge = TableBridge(self._place.spark, state.name)
        return planned.model_copy(update={"queries": predict(planned, state, bridge, row_groups)})

    def _policy(self, state: TableState, knobs: Knobs) -> tuple[Policy, tuple[RewriteOption, ...]]:
        """The table's policy, and its options that shape output files with their origins.

        A layout that names no column of the table is an error only if this very call asked for it. Elsewhere it may have been
        right when it was written down, and files can be merged without it.
        """
        from neve.rewrite.table_layout import layout_of
        from neve.settings.origins import OriginKind
        from neve.settings.table_policy import rewrite_options

        told, origins = self._loaded.policy(state.properties)
        policy = told.model_copy(update=knobs)
        options = rewrite_options(policy, origins, state.properties)
        try:
            layout_of(state, policy)
        except BadRequestError as error:
            if "strategy" in knobs or origins["cluster-by"].kind is OriginKind.FLAG:
                raise
            log.warning("the layout is left aside: %s", error)
            return policy.model_copy(update={"cluster_by": None}), options
        return policy, options

    def advise(self, table: str, every: int | None) -> Advice:
        """Whether a compaction is worth it: the files are looked at only after every so many commits, else one catalog call."""
        from neve.health.not_due import NotDue
        from neve.rewrite.advice import advise, between_looks, is_due, not_looked

        state = self._looking.reader(table).state()
        policy = self._looking.policy(state)
        interval = every or policy.check_interval_writes
        if not policy.advise:
            rule = NotDue(rule="advise", what="advise is off", knob="advise", until="it is on")
            return not_looked(str(state.name), "advise is off", rule=rule)
        if not is_due(state, interval):
            return not_looked(str(state.name), f"looked at every {interval} commits", rule=between_looks(state, interval))
        state, planned = self.plan(table, None, None)
        return advise(planned, self._looking.examine(state).small_files or 0)

    def cluster_plan(self, table: str, by: str | None, kind: str | None, request: Request, progress: Progress | None) -> Plan:
        """What `cluster` would do; nothing is stored."""
        knobs = self._clustering(table, asked_layout(by, kind))
        return self.plan(table, replace(request, kind=RunKind.CLUSTER), progress, knobs)[1]

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
        from neve.commit.lease import require_history
        from neve.spark.table.bridge import TableBridge
        from neve.table.layout import CLUSTER_BY

        layout = asked_layout(by, kind)
        knobs = self._clustering(table, layout)
        state = self._looking.reader(table).state()
        self._looking.require_free(state)
        kept = state.properties.get(CLUSTER_BY)
        if layout is not None and kept != str(layout):
            self._place.check_commits(state.name)
            require_history(str(state.name), state.properties)
            if not TableBridge(self._place.spark, state.name).swap_property(CLUSTER_BY, kept, str(layout)):
                message = f"Cannot keep the layout of {state.name}: somebody else has just changed it"
                raise BadRequestError(message, hint="Look at the table property neve.cluster-by, and try again.")
        request = replace(request, kind=RunKind.CLUSTER)
        return self.compact(table, request, verify=verify, probe_query=probe_query, progress=progress, knobs=knobs)

    def _clustering(self, table: str, by: Layout | None) -> Knobs:
        """The knobs of a clustering run. Raises BadRequestError where there is no layout, or none that the table can have."""
        from neve.rewrite.table_layout import layout_of

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
        expiry: ExpireAfter | None = None,
    ) -> RunRecord:
        """Plans and carries out a compaction, then the expiry if one is given.

        A table that another process holds is refused before it is planned.
        """
        from neve.operations import rewrite_run as run
        from neve.spark.tasks.probe import require_query

        if probe_query is not None:
            require_query(probe_query)
        self._looking.require_free(self._looking.reader(table).state())
        current = self._planned(table, request, progress, knobs)
        planned = current.plan
        if not len(planned.groups):
            return self._nothing_to_do(planned, expiry).between(current.before, current.before)
        writer = self.writer(planned)
        with self.store() as store:
            withdraw_compactions(store, current.state)

            def tools() -> Tools:
                made = self.tools(current.plan, current.state.specs, writer, store, progress, verify=verify)
                if expiry is None:
                    return made
                return replace(made, afterwards=lambda record, held: expiry.under_lease(record, held, store))

            def plan_again() -> tuple[Plan, Tools]:
                nonlocal current
                current = self._planned(table, request, progress, knobs)
                return current.plan, tools()

            def carry_out() -> RunRecord:
                return run.compact(planned, tools(), plan_again=plan_again)

            record = self._probed(probe_query, planned, writer, carry_out)
            if not record.groups and record.incident is None:  # others did the work before this process got the lease
                return record.between(current.before, current.before)
            return self.ended(store, record, current.plan, current.before)

    def _nothing_to_do(self, planned: Plan, expiry: ExpireAfter | None) -> RunRecord:
        from neve.operations import rewrite_run as run

        record = run.nothing_to_do(planned, clock=self._clock)
        if expiry is None:
            return record
        with self.store() as store:
            return expiry.alone(record, store)

    def _planned(self, table: str, request: Request | None, progress: Progress | None, knobs: Knobs | None) -> _Planned:
        from neve.health.condition import Condition

        state, planned = self.plan(table, request, progress, knobs)
        before = Condition.of(self._looking.examine(state)).model_copy(update={"clustering": planned.clustering})
        return _Planned(state, planned, before)

    def roll_back(self, found: Run, *, dry_run: bool = False) -> RolledBack:
        """Takes back what a run committed, or shows what that would do."""
        from neve.commit.lease import leased
        from neve.maintenance.delete_files import UpkeepRecord
        from neve.maintenance.manifests import ManifestsRecord
        from neve.operations.rollback import preview, roll_back
        from neve.rewrite.record import RunRecord
        from neve.spark.table.bridge import TableBridge

        kinds: dict[str, type[Committed]] = {
            **dict.fromkeys(RunKind, RunRecord),
            "deletes": UpkeepRecord,
            "manifests": ManifestsRecord,
        }
        if not found.record or found.kind not in kinds:
            message = f"Cannot roll back run {found.run_id[:8]}: it has no record of commits"
            raise BadRequestError(message, hint="Try `neve resume` first.")
        record, started = kinds[found.kind].model_validate(found.record), self._clock.now_ms()
        name = self._place.name(record.table)
        self._looking.require_free(self._looking.reader(record.table).state())
        self._place.check_commits(name)
        if dry_run:
            return preview(record, self._looking.view(record.table))
        writer, run_id = TableBridge(self._place.spark, name), uuid4().hex
        with (
            self.store() as store,
            leased(record.table, record.table_uuid, run_id, leases=store, writer=writer, clock=self._clock) as lease,
        ):
            done = roll_back(record, writer, lease.assert_held)
            commits = store.compaction_commits(record.table_uuid)
            store.withdraw_compactions(commit for commit in commits if commit.run_id == record.run_id)
            self._keep_rollback(store, run_id, record, done, started)
        return done

    def _keep_rollback(self, store: StateStore, run_id: str, record: Committed, done: RolledBack, started_ms: int) -> None:
        from neve.state.rows import Run

        store.start_run(Run(run_id, record.table_uuid, record.table, "rollback", started_ms))
        document = done.model_dump(mode="json")
        store.finish_run(run_id, finished_ms=self._clock.now_ms(), outcome="done", record=document)

    def _footers(self, reader: TableReader, state: TableState, remembered: Mapping[str, int]) -> Mapping[str, int]:
        """Row groups of a few files, where neither the metadata nor our records tell how the files are cut."""
        from neve.health.row_groups import untold

        wanted = untold(state.files, remembered) if state.files is not None else []
        size = self._place.settings.inspect.footer_sample
        return reader.sample_row_groups(wanted[:: max(1, len(wanted) // size)][:size]) if wanted and size else {}

    def _chosen(self, state: TableState, where: str) -> set[str]:
        """The files that a predicate chooses. Spark reads predicates, so this starts it."""
        from neve.spark.table.bridge import TableBridge

        return TableBridge(self._place.spark, state.name).matching(state.snapshot_id, where) if state.snapshot_id else set()

    def _counted_again(self, planned: Plan, record: RunRecord) -> tuple[QueryGain, ...]:
        """What the plan's queries read now; as predicted only, where the table cannot be looked at any more."""
        from neve.health.row_groups import with_row_groups
        from neve.operations import inspect, queries
        from neve.spark.table.bridge import TableBridge
        from neve.table.files import FileColumns

        cut = {output.path: output.row_groups for group in record.groups for output in group.outputs}
        try:
            state = inspect.read(self._looking.reader(str(planned.table), planned.branch), Depth.FILES)
            files = with_row_groups(state.files or FileColumns.empty(), {**self._looking.memory(state).row_groups, **cut})
            bridge = TableBridge(self._place.spark, planned.table)
            return queries.count_again(planned.queries, bridge, state.snapshot_id, files)
        except Exception as error:  # the run is done, and must be remembered
            log.warning("the queries could not be counted again: %s", error)
            return planned.queries

    def writer(self, plan: Plan) -> TableBridge:
        """The table as Spark commits to it. Refuses tables where commits could be lost before it starts Spark."""
        from neve.spark.table.bridge import TableBridge

        self._place.check_commits(plan.table)
        return TableBridge(self._place.spark, plan.table)

    @contextmanager
    def store(self) -> Iterator[StateStore]:
        """The state store, made if there is none. Raises RunInterrupted if Ctrl-C leaves a run that can be resumed."""
        from neve.commit.failure import was_interrupted

        with self._place.store() as store:
            try:
                yield store
            except BaseException as error:
                if was_interrupted(error) and (runs := store.pause_all()):
                    raise RunInterrupted(runs[-1]) from error
                raise

    def tools(
        self,
        planned: Plan,
        specs: Sequence[PartitionSpec],
        bridge: TableBridge,
        store: StateStore,
        progress: Progress | None,
        *,
        verify: str = "metadata",
    ) -> Tools:
        """What the flow needs to carry a plan out on this table."""
        from neve.commit.tools import Tools
        from neve.kernels.deletes.store import StoredDeletes
        from neve.rewrite.kernel_options import declines
        from neve.spark.tasks.rewrite import SparkEngine
        from neve.spark.tasks.spark_kernel import SparkKernel
        from neve.storage.files import Storage

        place = self._place
        kernel = SparkKernel(place.spark, bridge, planned.snapshot_id or 0)
        policy = planned.policy
        engine = SparkEngine(
            place.spark,
            kernel,
            lambda: place.storage(planned.table),
            max_parallelism=policy.max_parallelism,
            inline_bytes=policy.inline_delete_bytes,
            spark_declines=declines(planned.options).get(Kernel.SPARK),
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
            quarantine=store,
        )

    def _content_check(self, bridge: TableBridge, planned: Plan) -> ContentVerifier:
        from neve.spark.tasks.content import ContentCheck

        place = self._place
        return ContentCheck(place.spark, bridge, planned.snapshot_id or 0, lambda: place.storage(planned.table))

    def _probed(self, sql: str | None, planned: Plan, writer: TableWriter, carry_out: Callable[[], RunRecord]) -> RunRecord:
        """Carries a run out between two measurements of a query; without one, just carries it out."""
        if sql is None:
            return carry_out()
        from neve.rewrite.content import probe_result
        from neve.spark.tasks.probe import Probe
        from neve.table.state import RUN_ID

        probe = Probe(self._place.spark, sql, planned.table)
        writer.refresh()
        measured_at, before = writer.head(planned.branch), probe.measure()
        record = carry_out()
        try:
            after = probe.measure()
            writer.refresh()
            head = writer.head(planned.branch)
            since = writer.ancestry(head, measured_at) if head is not None else []
        except Exception as error:  # the run is done, and must be remembered
            log.warning("the probe query could not be asked again: %s", error)
            return record
        others = any(ancestor.summary.get(RUN_ID) != record.run_id for ancestor in since)
        return record.model_copy(update={"probe": probe_result(before, after, others_committed=others)})

    def ended(self, store: StateStore, record: RunRecord, planned: Plan, before: Condition | None = None) -> RunRecord:
        """Remembers the run, so that the next look knows what was compacted when, and how its files are cut."""
        from neve.commit.failure import Failure
        from neve.rewrite.run_summary import keep

        table, branch = str(planned.table), planned.branch
        before = before or self._looking.condition(table, branch, at=planned.snapshot_id)
        after = self._looking.condition(table, branch, wrote=record, layout=planned.layout if planned.clustering else None)
        if before is not None and after is not None:
            record = record.between(before.model_copy(update={"clustering": planned.clustering}), after)
        if planned.queries:
            record = record.model_copy(update={"queries": self._counted_again(planned, record)})
        try:
            keep(store, record, planned)
        except NeveError:
            raise
        except Exception as error:  # the run has ended, whatever its record holds, and must not look as if it were at work
            log.exception("the record of run %s cannot be stored whole", record.run_id)
            failure = Failure.of(error)
            short = {"reason": f"its record cannot be stored: {failure.reason}", "traceback": failure.traceback}
            store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=short)
        if record.incident is not None:
            raise CommitIncidentError(record.incident)
        if record.table_gone is not None:
            raise TableGoneError(
                record.table_gone,
                hint=f"Run {record.run_id[:8]} has ended. Nothing more was committed and no file was removed; `neve runs show "
                f"{record.run_id[:8]}` lists what it wrote. `neve orphans TABLE` finds files that no table needs.",
            )
        return record


def asked_layout(by: str | None, kind: str | None) -> Layout | None:
    """The layout that was asked for, None for the table's own. Raises BadRequestError for what is none."""
    from neve.table.layout import Layout

    if by is None and kind is not None:
        raise BadRequestError(f"Cannot cluster by {kind}: no columns were given", hint='Add them, such as --by "city, amount".')
    if by is None:
        return None
    try:
        return Layout.parse(f"{kind}({by})" if kind is not None else by)
    except ValueError as error:
        hint = 'Write columns, such as --by "city, amount"; --kind says how they are ordered.'
        raise BadRequestError(f"Cannot cluster by {by!r}: {error}", hint=hint) from None
