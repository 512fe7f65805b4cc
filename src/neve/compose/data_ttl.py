"""Rows past their time: the operation that removes them, with the adapters of a place and what was previewed before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record

if TYPE_CHECKING:
    from neve.core.maintain import Judgement
    from neve.core.model import TableState
    from neve.core.ttl import TtlRecord, TtlRule
    from neve.flow.tools import Tools
    from neve.maintenance.data_ttl import TtlRequest
    from neve.ports import Clock, PastRows, Progress
    from neve.state import StateStore

KIND = "ttl"
"""What such a run is called in the state store."""

_SEARCHED = 1_000
"""How many runs of this kind are searched for one by the same rule."""


class DataTtl:
    """Calls the operation. What it told or did is kept, so that the first enforcement of a rule can ask for a preview."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def run(self, table: str, *, enforce: bool, dry_run: bool, branch: str, progress: Progress | None) -> TtlRecord:
        """Previews, and keeps that unless it is a dry run; or enforces what was previewed."""
        from neve.errors import BadRequestError
        from neve.maintenance.data_ttl import expire_rows

        if enforce and dry_run:
            raise BadRequestError(f"Cannot enforce the limit of {table} and only tell of it: leave one of them out")
        state, place = self._looking.reader(table, branch).state(), self._place
        if dry_run:
            return expire_rows(self._request(state, branch, None, enforce=False), *self._tools(state, None, progress))
        with place.store() as store:
            request = self._request(state, branch, store, enforce=enforce)
            record = expire_rows(request, *self._tools(state, store, progress))
            keep_record(store, record, KIND)
        return record

    def due(self, table: str) -> Judgement:
        """Whether a limit is set whose removals somebody has seen; how many rows there are only Spark can count."""
        from neve.core.maintain import Judgement
        from neve.core.model import MAIN
        from neve.core.ttl import rule_of
        from neve.core.units import exact_seconds

        state = self._looking.reader(table).state()
        policy, records = self._looking.policy(state), self._place.records()
        if policy.ttl_seconds is None:
            return Judgement(due=False, why="ttl is not set")
        rule = rule_of(state, policy)
        if records is None or _last(records, state.uuid, rule, MAIN) is None:
            return Judgement(due=False, why=f"it was never previewed: neve ttl {state.name} shows what would go")
        return Judgement(due=True, why=f"rows are kept for {exact_seconds(rule.keep_seconds)}")

    def _request(self, state: TableState, branch: str, store: StateStore | None, *, enforce: bool) -> TtlRequest:
        from neve.core.ttl import cutoff_ms, rule_of
        from neve.maintenance.data_ttl import TtlRequest

        policy = self._looking.policy(state)
        rule = rule_of(state, policy)
        last = _last(store, state.uuid, rule, branch) if store is not None and enforce else None
        cutoff = cutoff_ms(rule, self._clock.now_ms(), state.snapshots)
        request = TtlRequest(state.name, state.uuid, rule, cutoff, policy.max_files, branch, dry_run=not enforce)
        return _as_previewed(request, last) if enforce else request

    def _tools(self, state: TableState, store: StateStore | None, progress: Progress | None) -> tuple[Tools, PastRows]:
        from neve.engines.spark.bridge import TableBridge
        from neve.engines.spark.rewrite import SparkEngine
        from neve.engines.spark.spark_kernel import SparkKernel
        from neve.engines.spark.ttl import SparkPastRows
        from neve.flow.tools import Tools

        place, name = self._place, state.name
        place.check_commits(name)
        spark = place.spark
        bridge = TableBridge(spark, name)
        # Rewrites nothing here.
        engine = SparkEngine(spark, SparkKernel(spark, bridge, 0), lambda: place.storage(name), max_parallelism=1)
        tools = Tools(bridge, engine, state.specs, self._clock, time.sleep, progress=progress, leases=store)
        return tools, SparkPastRows(spark, bridge)


def _last(store: StateStore, table_uuid: str, rule: TtlRule, branch: str) -> TtlRecord | None:
    """The newest preview or enforcement by the same rule."""
    from neve.core.ttl import TtlRecord

    records = (TtlRecord.model_validate(run.record) for run in store.runs(table_uuid, kind=KIND, limit=_SEARCHED) if run.record)
    return next((record for record in records if (record.rule, record.branch) == (rule, branch)), None)


def _as_previewed(request: TtlRequest, last: TtlRecord | None) -> TtlRequest:
    """An enforcement right after a preview removes what that showed: it has its cutoff. Later ones go by the clock.

    Raises BadRequestError if nobody has seen what this rule removes.
    """
    from dataclasses import replace

    from neve.errors import BadRequestError

    if last is None:
        hint = f"Look at it first: neve ttl {request.table}, with the same limit and column."
        raise BadRequestError(f"Cannot enforce the limit of {request.table}: it was never previewed", hint=hint)
    if not last.dry_run:
        return request
    seen = (last.snapshot_before, last.counts)
    return replace(request, cutoff_ms=last.cutoff_ms, previewed_by=last.run_id, previewed=seen)
