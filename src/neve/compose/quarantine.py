"""The quarantine of a table: the operations on it, with the adapters of a place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from shlex import quote
from typing import TYPE_CHECKING

from neve.compose.file_index import open_index, trust_of
from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record
from neve.errors import BadRequestError, NeveError, TableNotFoundError
from neve.maintenance.record import Operation
from neve.rewrite.record import RunOutcome

if TYPE_CHECKING:
    from neve.maintenance.quarantine import Quarantined, QuarantinedRun, QuarantineRecord
    from neve.operations.quarantine_moves import QuarantineRequest, QuarantineTools
    from neve.ports import Clock, Progress
    from neve.state import StateStore
    from neve.state.rows import Run
    from neve.table.state import TableName, TableState

KIND = "quarantine"
"""What such a run is called in the state store."""
EXPIRED_STAYS = (
    "the expired snapshots are not restored, only their files. To read them, register an older metadata file of the table "
    "under another name"
)


class QuarantineKeeping:
    """Looks at files again, purges them, brings them back."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock
        self._runs: dict[str, Run | None] = {}
        self._gone: dict[str, bool] = {}

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
        from neve.operations.quarantine import settle

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
        from neve.operations.quarantine import purge

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
        from neve.operations.quarantine import restore

        found = find(run) if table is None else None
        state = self._state(table or (found.table_name if found else ""))
        if found is not None and found.table_uuid != state.uuid:
            message = f"Cannot restore run {found.run_id[:8]}: {state.name} is another table than it was then"
            raise BadRequestError(message, hint=_hint_for_another_table(found, str(state.name)))
        run_id = found.run_id if found is not None else self._chosen(str(table), run)
        request = self._request(state, run_id, None, dry_run=dry_run)
        note = EXPIRED_STAYS if self._is_expiry(run_id) else None
        return self._run(request, lambda tools: restore(request, tools).model_copy(update={"note": note}), progress)

    def _is_expiry(self, run_id: str) -> bool:
        records = self._place.records()
        run = records.run(run_id) if records is not None else None
        return run is not None and run.kind == Operation.EXPIRE.value

    def _state(self, table: str) -> TableState:
        return self._looking.reader(table).state()

    def _chosen(self, table: str, run: str) -> str:
        """The run whose id begins so, of those that have files of the table in the quarantine."""
        found = sorted({row.run_id for row in self.runs(table) if row.run_id.startswith(run)})
        if len(found) == 1:
            return found[0]
        message = f"Cannot choose run {run!r}: {len(found) or 'no'} runs with files of {table} in the quarantine begin so"
        raise BadRequestError(message, hint=f"`neve quarantine list {quote(table)}` names them.")

    def _request(self, state: TableState, run_id: str | None, limit: int | None, *, dry_run: bool) -> QuarantineRequest:
        from neve.operations.quarantine_moves import QuarantineRequest

        if not dry_run:
            self._looking.require_free(state)
        return QuarantineRequest(state.name, state.uuid, state.location, run_id, limit, dry_run)

    def _run(
        self, request: QuarantineRequest, carry_out: Callable[[QuarantineTools], QuarantineRecord], progress: Progress | None
    ) -> QuarantineRecord:
        """Carries an operation out, and remembers it unless there was nothing to do."""

        place = self._place
        with place.store() as store, ExitStack() as resources:
            record = carry_out(self._tools(request.table, store, progress, resources))
            if not record.dry_run and record.outcome is not RunOutcome.NOTHING_TO_DO:
                keep_record(store, record, KIND)
            return record

    def _tools(self, name: TableName, store: StateStore, progress: Progress | None, resources: ExitStack) -> QuarantineTools:
        from neve.operations.file_index import EveryTable
        from neve.operations.quarantine_moves import QuarantineTools
        from neve.spark.maintenance.reachable import SparkReachability
        from neve.spark.table.bridge import TableBridge
        from neve.storage.files import RealDirectories
        from neve.storage.moves import StoredFiles

        place = self._place
        self._runs, self._gone = {}, {}  # asked once per operation: a name that was free may be a table by the next one
        place.check_commits(name)
        bridge = TableBridge(place.spark, name)
        location = str(bridge.table.location())
        reach, index = SparkReachability(place.spark, bridge), open_index(place, store, self._clock, resources)
        return QuarantineTools(
            store=store,
            files=StoredFiles(place.storage(name)),
            reach=EveryTable(name, reach, index, RealDirectories, trust_of(place)),
            writer=bridge,
            clock=self._clock,
            sleep=time.sleep,
            leases=store,
            progress=progress,
            recorded_for=lambda file: self._recorded_for(file, name, location, store),
        )

    def _recorded_for(self, file: Quarantined, name: TableName, location: str, store: StateStore) -> str | None:
        """Returns the name of the other table that a file was recorded for, None for a file of this table.

        A copy of a table has the same uuid, and this table's metadata does not name what the copy needs. A file outside of this
        table's location is this table's only if it was recorded under the same name, or under one that no table has any more.
        """
        if _is_inside(file.path, location):
            return None
        run = self._run_of(file.run_id, store)
        if run is None:
            return "an unknown table"
        return None if run.table_name == str(name) or self._is_gone(run) else run.table_name

    def _run_of(self, run_id: str, store: StateStore) -> Run | None:
        if run_id not in self._runs:
            self._runs[run_id] = store.run(run_id)
        return self._runs[run_id]

    def _is_gone(self, run: Run) -> bool:
        """Whether a configured catalog says that the run's table is not under that name any more."""
        if run.table_name not in self._gone:
            self._gone[run.table_name] = self._has_no(run.table_name, run.table_uuid)
        return self._gone[run.table_name]

    def _has_no(self, table: str, uuid: str) -> bool:
        try:
            if str(self._place.name(table)) != table:
                return False  # its catalog is not configured, so that the name would be looked up in another one
            return self._state(table).uuid != uuid
        except TableNotFoundError:
            return True
        except NeveError:
            return False  # a catalog that does not answer says nothing


def _is_inside(path: str, location: str) -> bool:
    from neve.table.location import Spellings

    spellings = Spellings.of()
    return spellings.parse(location.rstrip("/")).holds(spellings.parse(path))


def _hint_for_another_table(run: Run, table: str) -> str:
    return (
        "If its table was renamed, add --table with the new name. If it was dropped and created again, "
        f"`neve orphans {quote(table)} --dropped-table {run.table_uuid}` takes over what it left, and then "
        f"`neve restore {run.run_id[:8]} --table {quote(table)}` brings the files back."
    )
