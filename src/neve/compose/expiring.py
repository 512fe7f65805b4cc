"""Expiring snapshots: the operation, with the adapters of a place, by the policy of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from neve.compose.expire_after import ExpireAfter
from neve.compose.looking import Looking, pinned
from neve.compose.place import Place, withdraw_compactions
from neve.errors import BadRequestError
from neve.table.units import whole_number

if TYPE_CHECKING:
    from neve.maintenance.expiry import ExpiryRecord, Setting
    from neve.maintenance.retention import Rules
    from neve.maintenance.steps import Judgement
    from neve.operations.expire_snapshots import ExpiryRequest, ExpiryTools
    from neve.ports import Clock, Progress
    from neve.settings import Loaded
    from neve.state import StateStore
    from neve.table.state import TableState

KIND = "expire"
"""What such a run is called in the state store."""
_BEFORE = "metadata_before"
_DECIDING = (
    "snapshot-keep",
    "snapshot-min-count",
    "snapshot-consumers",
    "snapshot-consumer-keep",
    "snapshot-refs",
    "snapshot-limit",
    "metadata-keep",
)
_RUNS_SEARCHED = 1_000
"""How far back a run is found that was killed."""


class Expiring:
    """Calls the operation that expires snapshots."""

    def __init__(self, place: Place, loaded: Loaded, looking: Looking, clock: Clock) -> None:
        self._place, self._loaded, self._looking, self._clock = place, loaded, looking, clock

    def run(
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
        """Expires snapshots, or tells which; remembered unless there was nothing to do."""
        from neve.operations.expire_snapshots import ExpiryRequest, expire

        if snapshot_ids and (older_than is not None or keep is not None):
            raise BadRequestError("Cannot expire by id and by age or count at once", hint="Ask for one after the other.")
        state, place = self._looking.reader(table).state(), self._place
        rules, settings, metadata_keep = self._rules(state, older_than, keep)
        request = ExpiryRequest(
            table=state.name,
            table_uuid=state.uuid,
            rules=rules,
            settings=settings,
            snapshots=tuple(snapshot_ids),
            metadata_keep=None if snapshot_ids else metadata_keep,
            metadata_only=metadata_only,
            dry_run=dry_run,
        )
        if dry_run:
            return expire(request, self._tools(state, place.records(), progress))
        self._looking.require_free(state)
        with place.store() as store:
            return self._remembered(request, state, store, progress)

    def after_compaction(self, table: str, retention_hours: float | None, progress: Progress | None) -> ExpireAfter:
        """The expiry that a compaction of the table ends with; by the table's own retention unless hours are given."""
        from neve.operations.expire_snapshots import ExpiryRequest

        if retention_hours is not None and retention_hours <= 0:
            raise BadRequestError(f"Cannot keep snapshots for {retention_hours:g} hours: that is not in the past")
        older_than = f"{retention_hours} h" if retention_hours is not None else None

        def expire(store: StateStore, after_run: str, assert_held: Callable[[], None] | None) -> ExpiryRecord | None:
            state = self._looking.reader(table).state()
            rules, settings, keep = self._rules(state, older_than, None, flag="--snapshot-retention-hours")
            request = ExpiryRequest(state.name, state.uuid, rules, settings=settings, metadata_keep=keep)
            if assert_held is None and not self._reasons(state, rules, keep, store):
                return None  # found without Spark
            return self._remembered(request, state, store, progress, after_run=after_run, assert_held=assert_held)

        return ExpireAfter(expire)

    def due(self, table: str) -> Judgement:
        """Whether `run` would do anything, by metadata and our own records alone."""
        from neve.maintenance.retention import SnapshotHistory, next_expiry
        from neve.maintenance.steps import Judgement

        state, records = self._looking.reader(table).state(), self._place.records()
        rules, _, keep = self._rules(state, None, None)
        if reasons := self._reasons(state, rules, keep, records):
            return Judgement(due=True, why="; ".join(reasons))
        held = pinned(records, state.uuid)
        return Judgement.unmet(next_expiry(SnapshotHistory.of(state), rules, now_ms=self._clock.now_ms(), pinned=held))

    def _reasons(self, state: TableState, rules: Rules, keep: int | None, records: StateStore | None) -> list[str]:
        """Why an expiry has something to do, by metadata and our own records alone."""
        from neve.maintenance.retention import SnapshotHistory, retain
        from neve.operations.expire_snapshots import METADATA_MAX
        from neve.table.units import counted

        found = retain(SnapshotHistory.of(state), rules, now_ms=self._clock.now_ms(), pinned=pinned(records, state.uuid))
        reasons = [f"{counted(len(found.expired), 'snapshot')} past their time"] if found.expired else []
        reasons += [f"{', '.join(found.refs)} past the age of their own"] if found.refs else []
        reasons += [f"{METADATA_MAX} is to be {keep}"] if keep not in (None, _whole(state.properties.get(METADATA_MAX))) else []
        reasons += ["an expiry was interrupted"] if records is not None and _killed(records, state.uuid) else []
        return reasons

    def _remembered(
        self,
        request: ExpiryRequest,
        state: TableState,
        store: StateStore,
        progress: Progress | None,
        *,
        after_run: str | None = None,
        assert_held: Callable[[], None] | None = None,
    ) -> ExpiryRecord:
        """`after_run` is a run that has ended and holds the lease, and whose check of it is `assert_held`."""
        from neve.operations.expire_snapshots import expire
        from neve.rewrite.record import RunOutcome

        withdraw_compactions(store, state)  # once its snapshot has been expired, one that was rolled back looks like others
        record = expire(request, self._tools(state, store, progress, writes=True, after_run=after_run), assert_held)
        if record.outcome is RunOutcome.NOTHING_TO_DO:
            return record
        ended = [(record.run_id, record)]
        if record.outcome is not RunOutcome.FAILED and not request.metadata_only:  # which writes none of their files down
            ended += [
                (run.run_id, _taken_over(run, record)) for run in _killed(store, state.uuid) if run.run_id != record.run_id
            ]
        for run_id, told in ended:
            document = told.model_dump(mode="json")
            store.finish_run(run_id, finished_ms=record.finished_ms, outcome=told.outcome.value, record=document)
        return record

    def _rules(
        self, state: TableState, older_than: str | None, keep: int | None, *, flag: str = "--older-than"
    ) -> tuple[Rules, tuple[Setting, ...], int | None]:
        """By table property, policy and default; by the call itself before all of them."""
        from neve.maintenance.expiry import Setting
        from neve.maintenance.retention import Rules
        from neve.settings.origins import OriginKind
        from neve.settings.table_policy import show
        from neve.table.units import exact_seconds

        policy, origins = self._loaded.policy(state.properties)
        rules, values = Rules.of(policy), policy.model_dump(by_alias=True)
        told = {key: Setting(key=key, value=show(key, values[key]), origin=str(origins[key])) for key in _DECIDING}
        if older_than is not None:
            now = self._clock.now_ms()
            age = _age_ms(older_than, now)
            rules, text = replace(rules, keep_ms=age, since_ms=now - age), exact_seconds(age / 1000)
            told["snapshot-keep"] = Setting(key="snapshot-keep", value=text, origin=f"flag {flag}")
        if keep is not None:
            if keep < 1:
                raise BadRequestError(f"Cannot keep {keep} snapshots: a branch keeps at least one")
            rules = replace(rules, min_count=keep)
            told["snapshot-min-count"] = Setting(key="snapshot-min-count", value=str(keep), origin="flag --keep")
        is_default = origins["metadata-keep"].kind is OriginKind.DEFAULT
        return rules, tuple(told.values()), None if is_default else policy.metadata_keep

    def _tools(
        self,
        state: TableState,
        store: StateStore | None,
        progress: Progress | None,
        *,
        writes: bool = False,
        after_run: str | None = None,
    ) -> ExpiryTools:
        from neve.operations.expire_snapshots import ExpiryTools
        from neve.spark.maintenance.expiry import SparkPast
        from neve.spark.maintenance.reachable import SparkReachability
        from neve.spark.table.bridge import TableBridge

        place, uuid = self._place, state.uuid
        if writes:
            place.check_commits(state.name)
        bridge = TableBridge(place.spark, state.name)
        tools = ExpiryTools(
            writer=bridge,
            past=SparkPast(bridge),
            files=SparkReachability(place.spark, bridge),
            clock=self._clock,
            sleep=time.sleep,
            progress=progress,
            pinned=lambda: pinned(store, uuid, after_run),
        )
        if store is None or not writes:
            return tools
        return replace(
            tools,
            leases=store,
            quarantine=store,
            begun=lambda run_id, location: self._begin(store, state, run_id, location),
            interrupted=lambda: [run.record[_BEFORE] for run in _killed(store, uuid)],
        )

    def _begin(self, store: StateStore, state: TableState, run_id: str, location: str) -> None:
        from neve.state.rows import Run

        started, record = self._clock.now_ms(), {_BEFORE: location}
        store.start_run(Run(run_id, state.uuid, str(state.name), KIND, started, record=record))


def _killed(store: StateStore, table_uuid: str) -> list[Any]:
    """Expiries that began and never ended, oldest first; asked under the lease, so that none of them is at work."""
    runs = store.runs(table_uuid, kind=KIND, limit=_RUNS_SEARCHED)
    return [run for run in reversed(runs) if run.finished_ms is None and _BEFORE in run.record]


def _taken_over(run: Any, by: ExpiryRecord) -> ExpiryRecord:
    from neve.maintenance.expiry import ExpiryRecord
    from neve.maintenance.record import Operation
    from neve.rewrite.record import RunOutcome

    return ExpiryRecord(
        run_id=run.run_id,
        table=by.table,
        table_uuid=by.table_uuid,
        operation=Operation.EXPIRE,
        outcome=RunOutcome.FAILED,
        reason=f"it was interrupted; run {by.run_id[:8]} went on with it",
        interrupted=True,
        started_ms=run.started_ms,
        finished_ms=by.finished_ms,
    )


def _whole(text: str | None) -> int | None:
    return whole_number(text or "")


def _age_ms(text: str, now_ms: int) -> int:
    """How long to keep: a duration such as `7 days`, or up to a moment such as `2025-01-31` (UTC unless it says otherwise)."""
    from neve.table.units import parse_seconds

    try:
        age = int(parse_seconds(text) * 1000)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            hint = "Write a duration, such as '7 days', or a moment, such as 2025-01-31T12:00:00."
            raise BadRequestError(f"Cannot read {text!r}: neither a duration nor a moment", hint=hint) from None
        age = now_ms - int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if age <= 0:
        raise BadRequestError(f"Cannot expire what is older than {text}: that is not in the past")
    return age
