"""Rows past their time: the operation that removes them, with the adapters of a place and what was previewed before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record

if TYPE_CHECKING:
    from neve.commit.tools import Tools
    from neve.errors import BadRequestError
    from neve.maintenance.steps import Judgement
    from neve.maintenance.ttl import TtlRecord, TtlRule
    from neve.operations.ttl import TtlRequest
    from neve.ports import Clock, PastRows, Progress
    from neve.state import StateStore
    from neve.table.state import TableState

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
        from neve.operations.ttl import expire_rows, keep_all

        if enforce and dry_run:
            raise BadRequestError(f"Cannot enforce the limit of {table} and only tell of it: leave one of them out")
        state, place = self._looking.reader(table, branch).state(), self._place
        if dry_run:
            request = self._request(state, branch, None, enforce=False)
            if request.cutoff_ms is None:
                return keep_all(request, self._clock)
            return self._with_next(expire_rows(request, *self._tools(state, None, progress)))
        if enforce:
            self._looking.require_free(state)
        with place.store() as store:

            def request_again() -> TtlRequest:
                return self._request(self._looking.reader(table, branch).state(), branch, store, enforce=enforce)

            request = self._request(state, branch, store, enforce=enforce)
            if request.cutoff_ms is None:
                record = keep_all(request, self._clock)
            else:
                record = expire_rows(request, *self._tools(state, store, progress), request_again=request_again)
                record = self._with_next(record)
            keep_record(store, record, KIND)
        return record

    def _with_next(self, record: TtlRecord) -> TtlRecord:
        """The record, with when the next row is past its time if none is now."""
        from neve.maintenance.ttl import next_past
        from neve.operations.inspect import read
        from neve.rewrite.record import RunOutcome
        from neve.table.depth import Depth

        if record.outcome is not RunOutcome.NOTHING_TO_DO or record.cutoff_ms is None or record.not_due:
            return record
        field_id = record.rule.field_id
        files = read(self._looking.reader(record.table, record.branch), Depth.FILES, bounds=[field_id]).files
        lowers = files.bounds.column(f"{field_id}.lower").to_pylist() if files is not None and files.bounds is not None else []
        rule = next_past(record.rule, lowers, record.cutoff_ms, self._clock.now_ms())
        return record.model_copy(update={"not_due": (rule,)})

    def due(self, table: str) -> Judgement:
        """Whether a limit is set whose removals somebody has seen; how many rows there are only Spark can count."""
        from neve.health.not_due import NotDue
        from neve.maintenance.steps import Judgement
        from neve.maintenance.ttl import rule_of
        from neve.table.state import MAIN
        from neve.table.units import exact_seconds

        state = self._looking.reader(table).state()
        policy, records = self._looking.policy(state), self._place.records()
        if policy.ttl_seconds is None:
            return Judgement.unmet(NotDue(rule="ttl", what="ttl is not set", knob="ttl", until="it is set"))
        rule = rule_of(state, policy)
        cutoff, unknown = self._cutoff(state, rule, MAIN)
        if cutoff is None:
            what, until = f"every row is kept: {unknown}", "the last write is known"
            return Judgement.unmet(NotDue(rule="ttl-since", what=what, knob="ttl-since", until=until))
        if records is None or _last(_records(records, state, MAIN), rule) is None:
            until = f"`neve ttl {quote(str(state.name))}` has shown what would go"
            return Judgement.unmet(NotDue(rule="preview", what="the limit was never previewed", knob="ttl", until=until))
        return Judgement(due=True, why=f"rows are kept for {exact_seconds(rule.keep_seconds)}")

    def _request(self, state: TableState, branch: str, store: StateStore | None, *, enforce: bool) -> TtlRequest:
        from dataclasses import replace

        from neve.maintenance.ttl import rule_of
        from neve.operations.ttl import TtlRequest

        policy = self._looking.policy(state)
        rule = rule_of(state, policy)
        records = _records(store, state, branch) if store is not None and enforce else []
        cutoff, unknown = self._cutoff(state, rule, branch)
        asked = TtlRequest(state.name, state.uuid, rule, cutoff, policy.max_files, branch, dry_run=not enforce)
        request = replace(asked, unknown=unknown, requested_at=state.snapshot_id)
        return _as_previewed(request, records) if enforce else request

    def _cutoff(self, state: TableState, rule: TtlRule, branch: str) -> tuple[int | None, str | None]:
        """The cutoff, or why it is unknown."""
        from neve.maintenance.last_write import last_write
        from neve.maintenance.ttl import cutoff_ms

        now = self._clock.now_ms()
        last = last_write(state.snapshots, state.snapshot_id, state.properties, now_ms=now, branch=branch)
        cutoff = cutoff_ms(rule, now, last.ms)
        return cutoff, last.why_unknown if cutoff is None else None

    def _tools(self, state: TableState, store: StateStore | None, progress: Progress | None) -> tuple[Tools, PastRows]:
        from neve.commit.tools import Tools
        from neve.spark.maintenance.ttl import SparkPastRows
        from neve.spark.table.bridge import TableBridge
        from neve.spark.tasks.rewrite import SparkEngine
        from neve.spark.tasks.spark_kernel import SparkKernel

        place, name = self._place, state.name
        place.check_commits(name)
        spark = place.spark
        bridge = TableBridge(spark, name)
        # Rewrites nothing here.
        engine = SparkEngine(spark, SparkKernel(spark, bridge, 0), lambda: place.storage(name), max_parallelism=1)
        tools = Tools(bridge, engine, state.specs, self._clock, time.sleep, progress=progress, leases=store)
        return tools, SparkPastRows(spark, bridge)


def _records(store: StateStore, state: TableState, branch: str) -> list[TtlRecord]:
    """Returns previews and enforcements on a branch, newest first, without those that kept every row for lack of a cutoff.

    A copy of a table has the same uuid, so only records under the same name count. A renamed table needs a new preview.
    """
    from neve.maintenance.ttl import TtlRecord

    runs = (
        run for run in store.runs(state.uuid, kind=KIND, limit=_SEARCHED) if run.record and run.table_name == str(state.name)
    )
    found = map(TtlRecord.model_validate, (run.record for run in runs))
    return [record for record in found if record.branch == branch and record.cutoff_ms is not None]


def _last(records: Sequence[TtlRecord], rule: TtlRule) -> TtlRecord | None:
    """The newest by the same rule. A rule names its column by field id: by another column of the same name it is another."""
    return next((record for record in records if record.rule == rule), None)


def _as_previewed(request: TtlRequest, records: Sequence[TtlRecord]) -> TtlRequest:
    """An enforcement right after a preview removes what that showed: it has its cutoff. Later ones go by the clock. The earlier
    of both cutoffs counts: a preview may have gone by a clock that was ahead, or by a write that was rolled back since.

    Raises BadRequestError if nobody has seen what this rule removes.
    """
    from dataclasses import replace

    last = _last(records, request.rule)
    if last is None:
        raise _never_previewed(request, records)
    if not last.dry_run or request.cutoff_ms is None or last.cutoff_ms is None:
        return request
    if last.cutoff_ms > request.cutoff_ms:
        return replace(request, previewed_by=last.run_id)
    seen = (last.snapshot_before, last.counts)
    return replace(request, cutoff_ms=last.cutoff_ms, previewed_by=last.run_id, previewed=seen)


def _never_previewed(request: TtlRequest, records: Sequence[TtlRecord]) -> BadRequestError:
    from neve.errors import BadRequestError
    from neve.table.state import MAIN

    rule, table = request.rule, quote(str(request.table))
    preview = f"`neve ttl {table}`" if request.branch == MAIN else f"`neve ttl {table} --branch {quote(request.branch)}`"
    hint = f"Preview it first with the same limit and column: {preview}."
    why = "it was never previewed"
    before = next((record.rule for record in records if record.rule.column == rule.column), None)
    if before is not None and before.field_id != rule.field_id:
        why += f" for this column: {rule.column} is now field {rule.field_id} and was field {before.field_id}"
        hint = f"Name the right column with --ttl-column, or preview this one: {preview}."
    return BadRequestError(f"Cannot enforce the limit of {request.table}: {why}", hint=hint)
