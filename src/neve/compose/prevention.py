"""Prevention: the proposal from a look at a table, and the one commit that sets it or takes it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record
from neve.table.depth import Depth

if TYPE_CHECKING:
    from neve.maintenance.prevention import PreventionRecord, PropertyProposal
    from neve.operations.prevent import Prevention
    from neve.ports import Clock, Progress
    from neve.table.state import TableState

KIND = "prevent"
"""What such a run is called in the state store."""


class Preventing:
    """Reads metadata to propose, and starts Spark only to commit."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def run(self, table: str, *, apply: bool, undo: bool, progress: Progress | None) -> PreventionRecord:
        """Proposes; with `apply` sets what is proposed, with `undo` takes back what was set."""
        from neve.errors import BadRequestError
        from neve.operations import inspect
        from neve.operations.prevent import Prevention

        if apply and undo:
            raise BadRequestError(f"Cannot set properties of {table} and take them back at once: leave one of them out")
        state = inspect.read(self._looking.reader(table), Depth.SUMMARY if undo else Depth.FILES, progress)
        prevention = Prevention(state.name, state.uuid, state.properties, self._clock)
        if not apply and not undo:
            return prevention.tell(self._proposal(state))
        record = self._carry_out(state, prevention, undo=undo)
        self._keep(record)
        return record

    def _proposal(self, state: TableState) -> PropertyProposal:
        from neve.maintenance.prevention import propose

        return propose(state, self._looking.examine(state), self._looking.policy(state), self._looking.stated(state))

    def _carry_out(self, state: TableState, prevention: Prevention, *, undo: bool) -> PreventionRecord:
        from neve.spark.table.bridge import TableBridge

        self._place.check_commits(state.name)
        proposal = None if undo else self._proposal(state)
        writer = TableBridge(self._place.spark, state.name)
        return prevention.undo(writer) if proposal is None else prevention.apply(proposal, writer)

    def _keep(self, record: PreventionRecord) -> None:
        from neve.rewrite.record import RunOutcome

        if record.outcome is RunOutcome.NOTHING_TO_DO:
            return
        with self._place.store() as store:
            keep_record(store, record, KIND)
