"""Looking for orphans: the operation that does it, with the adapters of a place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.compose.file_index import open_index, trust_of
from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.maintenance.orphans import OrphanRecord
    from neve.operations.remove_orphans import OrphanRequest, OrphanTools
    from neve.ports import Clock, Progress
    from neve.state import StateStore
    from neve.table.state import TableState

LIMIT = 100_000
_RUNS_SEARCHED = 1_000
"""How far back a search is found that was killed."""


@dataclass(frozen=True)
class OrphansAsked:
    """What can be asked of a search, as people say it. `older_than` is a duration; the policy's unless given."""

    older_than: str | float | None = None
    location: str | None = None
    inventory: str | None = None
    equal_schemes: Sequence[str] = ()
    equal_authorities: Sequence[str] = ()
    limit: int = LIMIT
    dry_run: bool = False
    writers_may_be_running: bool = False
    no_other_table_is_here: bool = False
    ignore_tables: Sequence[str] = ()
    dropped_tables: Sequence[str] = ()
    """Uuids."""


class Orphans:
    """Calls the operation that finds orphans."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def run(self, table: str, asked: OrphansAsked, progress: Progress | None = None) -> OrphanRecord:
        """Records orphans, or tells which there are; remembered unless it is a dry run."""

        place, state = self._place, self._looking.reader(table).state()
        request = self._request(state, asked)
        if asked.dry_run:
            return self._carry_out(request, None, progress)
        self._looking.require_free(state)
        with place.store() as store:
            return self._carry_out(request, store, progress)

    def _request(self, state: TableState, asked: OrphansAsked) -> OrphanRequest:
        from neve.maintenance.orphans import chosen_root, hidden_partitions, required_age
        from neve.operations.remove_orphans import OrphanRequest
        from neve.table.location import Spellings

        if asked.limit < 1:
            raise BadRequestError(f"Cannot take {asked.limit} orphans: at least 1 is needed")
        spellings = Spellings.of(asked.equal_schemes, asked.equal_authorities)
        age = self._looking.policy(state).orphan_age_seconds if asked.older_than is None else _seconds(asked.older_than)
        return OrphanRequest(
            state.name,
            state.uuid,
            chosen_root(asked.location, state, spellings),
            required_age(age, writers_may_be_running=asked.writers_may_be_running),
            asked.limit,
            spellings,
            hidden_partitions(state.specs),
            asked.inventory,
            trust_of(self._place, *asked.ignore_tables),
            asked.no_other_table_is_here,
            frozenset(uuid.lower() for uuid in (*self._place.settings.orphans.dropped_tables, *asked.dropped_tables)),
            asked.dry_run,
        )

    def _carry_out(self, request: OrphanRequest, store: StateStore | None, progress: Progress | None) -> OrphanRecord:
        from neve.operations.remove_orphans import remove_orphans
        from neve.rewrite.record import RunOutcome

        with ExitStack() as resources:
            record = remove_orphans(request, self._tools(request, store, progress, resources))
        if store is not None and record.outcome is RunOutcome.NOTHING_TO_DO:
            keep_record(store, record, record.operation.value)  # that somebody looked decides when it is due again
        elif store is not None:
            document = record.model_dump(mode="json")
            store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)
        if store is not None:
            _end_killed(store, record)
        return record

    def _tools(
        self, request: OrphanRequest, store: StateStore | None, progress: Progress | None, resources: ExitStack
    ) -> OrphanTools:
        from neve.operations.file_index import OptionalStore
        from neve.operations.remove_orphans import OrphanTools
        from neve.spark.maintenance.orphans import SparkOrphanSearch
        from neve.spark.table.bridge import TableBridge
        from neve.storage.files import RealDirectories
        from neve.storage.rules import deleting_rules

        place, name = self._place, request.table
        place.check_commits(name)
        bridge, records = TableBridge(place.spark, name), store or place.records()
        index = open_index(place, store or OptionalStore(records), self._clock, resources, progress)
        return OrphanTools(
            writer=bridge,
            search=SparkOrphanSearch(place.spark, bridge, lambda: place.storage(name)),
            neighbours=index.refresh,
            needed=lambda comparison: index.needed(comparison, name),
            real=RealDirectories(),
            unfinished=lambda: records.unfinished() if records is not None else (),
            clock=self._clock,
            begin=lambda run_id: self._begin(request, store, run_id),
            adopt_trash=lambda uuid: store.adopt_trash(uuid, request.table_uuid) if store is not None else 0,
            deleting_rules=lambda: deleting_rules(place.storage(name), request.root),
            quarantine=records,
            leases=store,
            progress=progress,
        )

    def _begin(self, request: OrphanRequest, store: StateStore | None, run_id: str) -> None:
        from neve.maintenance.record import Operation
        from neve.state.rows import Run

        if store is not None:
            table = (request.table_uuid, str(request.table))
            store.start_run(Run(run_id, *table, Operation.ORPHANS.value, self._clock.now_ms()))


def _end_killed(store: StateStore, by: OrphanRecord) -> None:
    """Searches that began before this one and never ended: it had the lease, so that none of them is at work."""
    from neve.maintenance.orphans import OrphanRecord
    from neve.rewrite.record import RunOutcome

    for run in store.runs(by.table_uuid, kind=by.operation.value, limit=_RUNS_SEARCHED):
        if run.finished_ms is None and run.started_ms < by.started_ms:
            ended = OrphanRecord(
                run_id=run.run_id,
                table=by.table,
                table_uuid=by.table_uuid,
                operation=by.operation,
                outcome=RunOutcome.FAILED,
                reason="it was interrupted; what it had recorded by then waits in the quarantine",
                interrupted=True,
                started_ms=run.started_ms,
                finished_ms=by.finished_ms,
                location=by.location,
                older_than_seconds=by.older_than_seconds,
            )
            document = ended.model_dump(mode="json")
            store.finish_run(run.run_id, finished_ms=by.finished_ms, outcome=ended.outcome.value, record=document)


def _seconds(text: Any) -> float:
    from neve.table.units import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadRequestError(f"Cannot read the age of orphans: {error}") from None
