"""compact: plans a compaction of one table, has it carried out, and records it.

The stages are inspect and plan (here and in `rewrite.planner`), execute, verify and commit (`operations.rewrite_run`), and
record. `cluster`, `resume` and results of work orders share the last ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from neve.commit.failure import Failure
from neve.commit.tools import Tools
from neve.context.runs import pausing
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitIncidentError, NeveError, TableGoneError
from neve.health.condition import Condition
from neve.health.not_due import NotDue
from neve.health.queries import QueryGain
from neve.health.row_groups import untold, with_row_groups
from neve.maintenance.steps import Judgement
from neve.operations import inspect, queries, rewrite_run
from neve.operations.due import judged
from neve.operations.expire_after import ExpireAfter
from neve.policy.model import Policy
from neve.ports import TableReader
from neve.render.plan import plan_line
from neve.rewrite import advice, planner
from neve.rewrite.content import probe_result
from neve.rewrite.group import Kernel
from neve.rewrite.kernel_options import RewriteOption, declines
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request
from neve.rewrite.record import RunRecord
from neve.rewrite.run_summary import keep
from neve.rewrite.table_layout import layout_of
from neve.settings.origins import OriginKind
from neve.settings.table_policy import rewrite_options
from neve.table.depth import Depth
from neve.table.files import FileColumns
from neve.table.state import RUN_ID, TableState

log = logging.getLogger(__name__)

Knobs = Mapping[str, Any]
"""Fields of the policy by name."""


class _Planned(NamedTuple):
    """A plan, and the table that it was made from."""

    state: TableState
    plan: Plan
    before: Condition


def run(
    context: TableContext,
    request: Request,
    *,
    verify: str = "metadata",
    probe_query: str | None = None,
    expire_snapshots: bool = False,
    snapshot_retention_hours: float | None = None,
) -> RunRecord:
    """Plans and carries out a compaction, then expires snapshots under the same lease if asked."""
    if snapshot_retention_hours is not None and not expire_snapshots:
        message = f"Cannot keep snapshots for {snapshot_retention_hours:g} hours: the compaction is not asked to expire any"
        raise BadRequestError(message, hint="Add --expire-snapshots (in Python, expire_snapshots=True).")
    expiry = ExpireAfter.of(context, snapshot_retention_hours) if expire_snapshots else None
    return rewrite(context, request, verify=verify, probe_query=probe_query, expiry=expiry)


def is_due(context: TableContext) -> Judgement:
    """Whether the plan has a group."""
    _, found = plan(context, Request())
    return judged(due=bool(found.groups), line=plan_line(found), rules=() if found.groups else found.not_due)


def plan(context: TableContext, request: Request, knobs: Knobs | None = None) -> tuple[TableState, Plan]:
    """What a run would do, and the state that it was planned from; `knobs` override the policy, by the fields' names."""
    request = replace(request, rates=inspect.rates_of(context.connection.settings.cost))
    reader = context.reader()
    state = inspect.read(reader, Depth.MANIFESTS)
    (policy, options), memory = _policy(context, state, knobs or {}), inspect.remembered(context.records, state)
    request = replace(request, options=options)
    files = reader.files(state.manifests or (), context.progress, bounds=planner.bounds_wanted(state, policy))
    state = state.model_copy(update={"files": files})
    if request.where is not None:
        request = replace(request, paths=_matching(context, state, request.where))
    footers = _footers(context, reader, state, memory.row_groups)
    now = context.clock.now_ms()
    planned = planner.plan(state, policy, now_ms=now, memory=memory, footers=footers, request=request)
    return state, _with_queries(context, planned, state, {**memory.row_groups, **footers})


def _with_queries(context: TableContext, planned: Plan, state: TableState, row_groups: Mapping[str, int]) -> Plan:
    """The plan with what stated queries read. Spark reads predicates, so where there are some this starts it."""
    if not planned.policy.queries:
        return planned
    return planned.model_copy(update={"queries": queries.predict(planned, state, context.bridge, row_groups)})


def _policy(context: TableContext, state: TableState, knobs: Knobs) -> tuple[Policy, tuple[RewriteOption, ...]]:
    """The table's policy, and its options that shape output files with their origins.

    A layout that names no column of the table is an error only if this very call asked for it. Elsewhere it may have been
    right when it was stored, and files can be merged without it.
    """
    told, origins = context.connection.loaded.policy(state.properties)
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


def _footers(context: TableContext, reader: TableReader, state: TableState, remembered: Mapping[str, int]) -> Mapping[str, int]:
    """Row groups of a few files, where neither the metadata nor our records tell how the files are cut."""
    wanted = untold(state.files, remembered) if state.files is not None else []
    size = context.connection.settings.inspect.footer_sample
    return reader.sample_row_groups(wanted[:: max(1, len(wanted) // size)][:size]) if wanted and size else {}


def _matching(context: TableContext, state: TableState, where: str) -> set[str]:
    """The files that a predicate chooses. Spark reads predicates, so this starts it."""
    return context.bridge.matching(state.snapshot_id, where) if state.snapshot_id else set()


def advise(context: TableContext, every: int | None) -> advice.Advice:
    """Whether a compaction is worth it: the files are inspected only after every so many commits, else one catalog call."""
    state, policy = context.state, context.policy()
    interval = every or policy.check_interval_writes
    if not policy.advise:
        rule = NotDue(rule="advise", what="advise is off", knob="advise", until="it is on")
        return advice.not_looked(str(state.name), "advise is off", rule=rule)
    if not advice.is_due(state, interval):
        rule = advice.between_looks(state, interval)
        return advice.not_looked(str(state.name), f"looked at every {interval} commits", rule=rule)
    state, planned = plan(context, Request())
    return advice.advise(planned, inspect.examine(context, state).small_files or 0)


def rewrite(
    context: TableContext,
    request: Request,
    *,
    verify: str = "metadata",
    probe_query: str | None = None,
    knobs: Knobs | None = None,
    expiry: ExpireAfter | None = None,
) -> RunRecord:
    """Plans and carries out a compaction, then the expiry if one is given.

    A table that another process holds is refused before it is planned.
    """
    from neve.spark.tasks.probe import require_query

    if probe_query is not None:
        require_query(probe_query)
    context.require_free()
    current = _planned(context, request, knobs)
    planned = current.plan
    if not len(planned.groups):
        return _nothing_to_do(context, planned, expiry).between(current.before, current.before)
    _ = context.writer  # refuses and starts before the state store is opened
    with pausing(context.store):
        context.withdraw_compactions(current.state)

        def tools() -> Tools:
            made = tools_of(context, current.plan, current.state, verify=verify)
            return made if expiry is None else replace(made, afterwards=expiry.under_lease)

        def plan_again() -> tuple[Plan, Tools]:
            nonlocal current
            current = _planned(context, request, knobs)
            return current.plan, tools()

        def carry_out() -> RunRecord:
            return rewrite_run.compact(planned, tools(), plan_again=plan_again)

        record = _probed(context, probe_query, planned, carry_out)
        if not record.groups and record.incident is None:  # others did the work before this process got the lease
            return record.between(current.before, current.before)
        return ended(context, record, current.plan, current.before)


def _nothing_to_do(context: TableContext, planned: Plan, expiry: ExpireAfter | None) -> RunRecord:
    record = rewrite_run.nothing_to_do(planned, clock=context.clock)
    if expiry is None:
        return record
    with pausing(context.store):
        return expiry.alone(record)


def _planned(context: TableContext, request: Request, knobs: Knobs | None) -> _Planned:
    state, planned = plan(context, request, knobs)
    before = Condition.of(inspect.examine(context, state)).model_copy(update={"clustering": planned.clustering})
    return _Planned(state, planned, before)


def tools_of(context: TableContext, planned: Plan, state: TableState, *, verify: str = "metadata") -> Tools:
    """What carries a plan out on this table."""
    from neve.spark.tasks.content import ContentCheck
    from neve.spark.tasks.rewrite import SparkEngine
    from neve.spark.tasks.spark_kernel import SparkKernel

    writer, spark, policy, at = context.writer, context.spark, planned.policy, planned.snapshot_id or 0
    engine = SparkEngine(
        spark,
        SparkKernel(spark, writer, at),
        context.storage_properties,
        max_parallelism=policy.max_parallelism,
        inline_bytes=policy.inline_delete_bytes,
        spark_declines=declines(planned.options).get(Kernel.SPARK),
    )
    return Tools(
        writer=writer,
        engine=engine,
        specs=state.specs,
        clock=context.clock,
        sleep=context.sleep,
        progress=context.progress,
        journal=context.store,
        leases=context.store,
        content=ContentCheck(spark, writer, at, context.storage_properties) if verify == "content" else None,
        deletes=context.deletes,
        quarantine=context.store,
    )


def _probed(context: TableContext, sql: str | None, planned: Plan, carry_out: Callable[[], RunRecord]) -> RunRecord:
    """Carries a run out between two measurements of a query; without one, just carries it out."""
    if sql is None:
        return carry_out()
    from neve.spark.tasks.probe import Probe

    probe, writer = Probe(context.spark, sql, planned.table), context.writer
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


def ended(context: TableContext, record: RunRecord, planned: Plan, before: Condition | None = None) -> RunRecord:
    """Records the run, so that the next inspection knows what was compacted when, and how its files are cut."""
    table = context.fresh(planned.branch)
    before = before or inspect.condition(table, at=planned.snapshot_id)
    after = inspect.condition(table, wrote=record, layout=planned.layout if planned.clustering else None)
    if before is not None and after is not None:
        record = record.between(before.model_copy(update={"clustering": planned.clustering}), after)
    if planned.queries:
        record = record.model_copy(update={"queries": _counted_again(table, planned, record)})
    try:
        keep(context.store, record, planned)
    except NeveError:
        raise
    except Exception as error:  # the run has ended, whatever its record holds, and must not look as if it were at work
        log.exception("the record of run %s cannot be stored whole", record.run_id)
        failure = Failure.of(error)
        short = {"reason": f"its record cannot be stored: {failure.reason}", "traceback": failure.traceback}
        context.store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=short)
    if record.incident is not None:
        raise CommitIncidentError(record.incident)
    if record.table_gone is not None:
        raise TableGoneError(
            record.table_gone,
            hint=f"Run {record.run_id[:8]} has ended. Nothing more was committed and no file was removed; `neve runs show "
            f"{record.run_id[:8]}` lists what it wrote. `neve orphans TABLE` finds files that no table needs.",
        )
    return record


def _counted_again(context: TableContext, planned: Plan, record: RunRecord) -> tuple[QueryGain, ...]:
    """What the plan's queries read now; as predicted only, where the table cannot be read any more."""
    cut = {output.path: output.row_groups for group in record.groups for output in group.outputs}
    try:
        state = inspect.read(context.reader(), Depth.FILES)
        known = inspect.remembered(context.records, state).row_groups
        files = with_row_groups(state.files or FileColumns.empty(), {**known, **cut})
        return queries.count_again(planned.queries, context.bridge, state.snapshot_id, files)
    except Exception as error:  # the run is done, and must be remembered
        log.warning("the queries could not be counted again: %s", error)
        return planned.queries
