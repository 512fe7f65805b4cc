"""The quarantine of a table: the operations on it, with the adapters of a place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record
from neve.core.record import RunOutcome
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.core.model import TableName, TableState
    from neve.core.quarantine import Quarantined, QuarantinedRun, QuarantineRecord
    from neve.maintenance.moving import QuarantineRequest, QuarantineTools
    from neve.ports import Clock, Progress
    from neve.state import StateStore
    from neve.state.rows import Run

KIND = "quarantine"
"""What such a run is called in the state store."""


class QuarantineKeeping:
    """Looks at files again, purges them, brings them back."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def runs(self, table: str) -> tuple[QuarantinedRun, ...]:
        """How many files each run put there, by reason and fate."""
        state, records = self._state(table), self._place.records()
        return () if records is None else records.quarantined_runs(state.uuid)

    def files(self, table: str, run: str | None) -> Iterator[Quarantined]:
        """The files of all runs or of one, oldest first, as they are read."""
        state, records = self._state(table), self._place.records()
        run_id = self._chosen(table, run) if run is not None else None
        return iter(()) if records is None else records.quarantined(state.uuid, run_id=run_id)

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
        """The second look."""
        from neve.maintenance.quarantine import settle

        state = self._state(table)
        request = self._request(state, self._chosen(table, run) if run is not None else None, limit, dry_run=dry_run)
        grace = self._looking.policy(state).quarantine_grace_seconds

        def look(tools: QuarantineTools) -> QuarantineRecord:
            return settle(request, tools, grace_seconds=grace, at_once=at_once, delete=delete)

        return self._run(request, look, progress)

    def purge(
        self, table: str, *, limit: int | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> QuarantineRecord:
        """What was in the trash long enough goes for good."""
        from neve.maintenance.quarantine import purge

        state = self._state(table)
        request, policy = self._request(state, None, limit, dry_run=dry_run), self._looking.policy(state)

        def clear(tools: QuarantineTools) -> QuarantineRecord:
            return purge(request, tools, keep_seconds=policy.trash_keep_seconds, rate=policy.purge_rate)

        return self._run(request, clear, progress)

    def restore(
        self,
        run: str,
        table: str | None,
        find: Callable[[str], Run],
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> QuarantineRecord:
        """Brings the files of a run back. `find` knows runs by how their ids begin; where a run was killed before it was
        recorded, the table tells."""
        from neve.maintenance.quarantine import restore

        found = find(run) if table is None else None
        state = self._state(table or (found.table_name if found else ""))
        if found is not None and found.table_uuid != state.uuid:
            message = f"Cannot restore run {found.run_id[:8]}: {state.name} is another table than it was then"
            raise BadRequestError(message, hint="The table was dropped and made anew, or renamed: name it with --table.")
        run_id = found.run_id if found is not None else self._chosen(str(table), run)
        request = self._request(state, run_id, None, dry_run=dry_run)
        return self._run(request, lambda tools: restore(request, tools), progress)

    def _state(self, table: str) -> TableState:
        return self._looking.reader(table).state()

    def _chosen(self, table: str, run: str) -> str:
        """The run whose id begins so, of those that have files of the table in the quarantine."""
        found = sorted({row.run_id for row in self.runs(table) if row.run_id.startswith(run)})
        if len(found) == 1:
            return found[0]
        message = f"Cannot choose run {run!r}: {len(found) or 'no'} runs with files of {table} in the quarantine begin so"
        raise BadRequestError(message, hint="neve quarantine list TABLE names them.")

    def _request(self, state: TableState, run_id: str | None, limit: int | None, *, dry_run: bool) -> QuarantineRequest:
        from neve.maintenance.moving import QuarantineRequest

        return QuarantineRequest(state.name, state.uuid, state.location, run_id, limit, dry_run)

    def _run(
        self, request: QuarantineRequest, carry_out: Callable[[QuarantineTools], QuarantineRecord], progress: Progress | None
    ) -> QuarantineRecord:
        """Carries an operation out, and remembers it unless there was nothing to do."""

        place = self._place
        with place.store() as store:
            record = carry_out(self._tools(request.table, store, progress))
            if not record.dry_run and record.outcome is not RunOutcome.NOTHING_TO_DO:
                keep_record(store, record, KIND)
            return record

    def _tools(self, name: TableName, store: StateStore, progress: Progress | None) -> QuarantineTools:
        from neve.engines.spark.bridge import TableBridge
        from neve.engines.spark.reachable import SparkReachability
        from neve.maintenance.moving import QuarantineTools
        from neve.storage_moves import StoredFiles

        place = self._place
        place.check_commits(name)
        bridge = TableBridge(place.spark, name)
        return QuarantineTools(
            store=store,
            files=StoredFiles(place.storage(name)),
            reach=SparkReachability(place.spark, bridge),
            writer=bridge,
            clock=self._clock,
            sleep=time.sleep,
            leases=store,
            progress=progress,
        )
