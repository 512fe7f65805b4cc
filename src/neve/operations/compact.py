"""compact: inspects a table, plans a compaction, has it carried out, and records it.

`run` is the whole story. Planning itself is in `rewrite.planner`; execute, verify and commit are in `operations.rewrite_run`,
which `cluster`, `resume` and results of work orders share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from neve.commit.failure import Failure
from neve.context.runs import pausing
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitIncidentError, NeveError, TableGoneError
from neve.health.condition import Condition
from neve.health.not_due import NotDue
from neve.health.queries import QueryGain
from neve.health.row_groups import untold, with_row_groups
from neve.maintenance.steps import Judgement
from neve.operations import inspect, queries
from neve.operations.due import judged
from neve.operations.expire_after import ExpireAfter
from neve.operations.requests import CompactRequest
from neve.operations.rewrite_run import PlannedRun, begun, nothing_to_do
from neve.policy.model import Policy
from neve.ports import TableReader
from neve.render.plan import plan_line
from neve.rewrite import advice, planner
from neve.rewrite.content import probe_result
from neve.rewrite.group import Kernel, RunKind, Tier
from neve.rewrite.kernel_options import RewriteOption
from neve.rewrite.memory import Memory
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


@dataclass(frozen=True)
class _Inspected:
    """A table as it is planned, and what is asked of it."""

    state: TableState
    policy: Policy
    memory: Memory
    footers: Mapping[str, int]
    asked: Request


def run(
    context: TableContext, request: CompactRequest, knobs: Knobs | None = None, kind: RunKind = RunKind.COMPACT
) -> RunRecord | Plan:
    """Carries a compaction out, then expires snapshots under the same lease if asked. A dry run is the plan.

    A table that another process holds is refused before it is inspected. `knobs` override the policy, by the fields' names.
    """
    expiry = _expiry(context, request)
    if not request.dry_run:
        _require_possible(context, request)
    asked = _asked(request, kind)
    with context.planning():
        table = _inspect(context, asked, knobs)
        plan = _plan(context, table)
    if request.dry_run:
        return plan
    found = _planned(context, table, plan)
    if not len(plan.groups):
        return _nothing_to_do(context, found, expiry)
    with _resumable(context, table.state):
        probed = _probed(context, request.probe_query, plan)
        with begun(found, context, verify=request.verify, plan_again=lambda: _plan_again(context, asked, knobs)) as run:
            with run.settling():
                results = run.execute()
                groups = run.verify(results)
                run.commit(groups)
            record = run.record() if expiry is None else expiry.under_lease(run.record(), run.assert_held)
        return _record(context, probed(record), run.planned)


def is_due(context: TableContext) -> Judgement:
    """Whether the plan has a group."""
    found = _plan(context, _inspect(context, Request()))
    return judged(due=bool(found.groups), line=plan_line(found), rules=() if found.groups else found.not_due)


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
    table = _inspect(context, Request())
    return advice.advise(_plan(context, table), inspect.examine(context, table.state).small_files or 0)


def _asked(request: CompactRequest, kind: RunKind) -> Request:
    """The request as the planner takes it."""
    return Request(
        tier=Tier(request.tier) if request.tier else None,
        kernel=Kernel(request.kernel) if request.kernel else None,
        force=request.force,
        partitions=request.partitions,
        branch=request.branch,
        where=request.where,
        kind=kind,
    )


def _expiry(context: TableContext, request: CompactRequest) -> ExpireAfter | None:
    """The expiry that ends the run, if one is asked for."""
    hours = request.snapshot_retention_hours
    if request.dry_run and (request.expire_snapshots or hours is not None):
        age = f" --older-than '{hours} h'" if hours is not None else ""
        raise BadRequestError(
            "Cannot show what --expire-snapshots would do in a dry run of a compaction",
            hint=f"Leave the option out, and run `neve expire {quote(context.table)}{age} --dry-run`.",
        )
    if hours is not None and not request.expire_snapshots:
        message = f"Cannot keep snapshots for {hours:g} hours: the compaction is not asked to expire any"
        raise BadRequestError(message, hint="Add --expire-snapshots (in Python, expire_snapshots=True).")
    return ExpireAfter.of(context, hours) if request.expire_snapshots else None


def _require_possible(context: TableContext, request: CompactRequest) -> None:
    from neve.spark.tasks.probe import require_query

    if request.probe_query is not None:
        require_query(request.probe_query)
    context.require_free()


def _inspect(context: TableContext, asked: Request, knobs: Knobs | None = None) -> _Inspected:
    """The table with its files, the policy, and what earlier runs know of it."""
    reader = context.reader()
    state = inspect.read(reader, Depth.MANIFESTS)
    (policy, options), memory = _policy(context, state, knobs or {}), inspect.remembered(context.records, state)
    files = reader.files(state.manifests or (), context.progress, bounds=planner.bounds_wanted(state, policy))
    state = state.model_copy(update={"files": files})
    asked = replace(asked, rates=inspect.rates_of(context.connection.settings.cost), options=options)
    if asked.where is not None:
        asked = replace(asked, paths=_matching(context, state, asked.where))
    footers = _footers(context, reader, state, memory.row_groups)
    return _Inspected(inspect.with_source(state, reader), policy, memory, footers, asked)


def _policy(context: TableContext, state: TableState, knobs: Knobs) -> tuple[Policy, tuple[RewriteOption, ...]]:
    """The table's policy, and its options that shape output files with their origins.

    A layout that names no column of the table is an error only if this very call asked for it. Elsewhere it may have been
    right when it was stored, and files can be merged without it.
    """
    told, origins = context.policy_origins(state)
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


def _plan(context: TableContext, table: _Inspected) -> Plan:
    """What a run would do, with reasons and prices."""
    now, asked = context.clock.now_ms(), table.asked
    memory, footers = table.memory, table.footers
    planned = planner.plan(table.state, table.policy, now_ms=now, memory=memory, footers=footers, request=asked)
    return _with_queries(context, planned, table.state, {**memory.row_groups, **footers})


def _with_queries(context: TableContext, planned: Plan, state: TableState, row_groups: Mapping[str, int]) -> Plan:
    """The plan with what stated queries read. Spark reads predicates, so where there are some this starts it."""
    if not planned.policy.queries:
        return planned
    return planned.model_copy(update={"queries": queries.predict(planned, state, context.bridge, row_groups)})


def _planned(context: TableContext, table: _Inspected, plan: Plan) -> PlannedRun:
    """The plan with the table's condition before it is carried out."""
    before = Condition.of(inspect.examine(context, table.state)).model_copy(update={"clustering": plan.clustering})
    return PlannedRun(plan, table.state.specs, before)


def _plan_again(context: TableContext, asked: Request, knobs: Knobs | None) -> PlannedRun:
    with context.planning():
        table = _inspect(context, asked, knobs)
        plan = _plan(context, table)
    return _planned(context, table, plan)


def _nothing_to_do(context: TableContext, found: PlannedRun, expiry: ExpireAfter | None) -> RunRecord:
    record = nothing_to_do(found.plan, clock=context.clock)
    if expiry is not None:
        with pausing(context.store):
            record = expiry.alone(record)
    return found.unchanged(record)


@contextmanager
def _resumable(context: TableContext, state: TableState) -> Iterator[None]:
    """A run that Ctrl-C leaves can be resumed."""
    _ = context.writer  # refuses and starts before the state store is opened
    with pausing(context.store):
        context.withdraw_compactions(state)
        yield


def _probed(context: TableContext, sql: str | None, planned: Plan) -> Callable[[RunRecord], RunRecord]:
    """Measures a query now, and again when it is called with the record of the run."""
    if sql is None:
        return lambda record: record
    from neve.spark.tasks.probe import Probe

    probe, writer = Probe(context.spark, sql, planned.table), context.writer
    writer.refresh()
    measured_at, before = writer.head(planned.branch), probe.measure()

    def completed(record: RunRecord) -> RunRecord:
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

    return completed


def _record(context: TableContext, record: RunRecord, planned: PlannedRun) -> RunRecord:
    """Stores the run, unless others did the work before this process got the lease."""
    if not record.groups and record.incident is None:
        return planned.unchanged(record)
    return ended(context, record, planned.plan, planned.before)


def ended(context: TableContext, record: RunRecord, planned: Plan, before: Condition | None = None) -> RunRecord:
    """Records the run, so that the next inspection knows what was compacted when, and how its files are cut."""
    table = context.fresh(planned.branch)
    before = before or inspect.condition(table, at=planned.snapshot_id)
    after = inspect.condition(table, wrote=record, layout=planned.layout if planned.clustering else None)
    if before is not None and after is not None:
        record = record.between(before.model_copy(update={"clustering": planned.clustering}), after)
    if planned.queries:
        record = record.model_copy(update={"queries": _counted_again(table, planned, record)})
    record = context.timed(record, predicted_money=planned.price.money)
    try:
        keep(context.store, record, planned)
    except NeveError:
        raise
    except Exception as error:  # the run has ended, whatever its record holds, and must not look as if it were at work
        log.exception("the record of run %s cannot be stored whole", record.run_id)
        failure = Failure.of(error)
        short = {"reason": f"its record cannot be stored: {failure.reason}", "traceback": failure.traceback}
        context.store.finish_run(record.recorded_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=short)
    if record.incident is not None:
        raise CommitIncidentError(record.incident)
    if record.table_gone is not None:
        raise TableGoneError(
            record.table_gone,
            hint=f"Run {record.recorded_id[:8]} has ended. Nothing more was committed and no file was removed; `neve runs show "
            f"{record.recorded_id[:8]}` lists what it wrote. `neve orphans TABLE` finds files that no table needs.",
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
