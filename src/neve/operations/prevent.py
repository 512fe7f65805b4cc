"""prevent: sets the properties that keep files from becoming bad, in one commit, and takes them back.

No lease is taken: only properties change, and only if those that the proposal looked at are as they were,
in the very step that changes them. What was there before is kept in the table itself, so that it is never lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from uuid import uuid4

from neve.commit.lease import require_same_table
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitConflictError
from neve.health.not_due import NotDue
from neve.maintenance.prevention import KeptProperty, PreventionRecord, PropertyChange, PropertyProposal, propose
from neve.maintenance.record import Operation
from neve.operations import inspect
from neve.operations.requests import PreventRequest
from neve.ports import Clock, TableWriter
from neve.rewrite.record import RunOutcome
from neve.table.depth import Depth
from neve.table.properties import PREVENTION
from neve.table.state import TableName, TableState

_NOTHING = "the table's properties are as they should be"
_NOTHING_KEPT = "nothing was set that could be taken back"
_UNDO = NotDue(rule="undo", what=_NOTHING_KEPT, until="`neve prevent TABLE --apply` has set something")


def run(context: TableContext, request: PreventRequest) -> PreventionRecord:
    """Proposes; with `apply` sets what is proposed, with `undo` takes back what was set."""
    if request.apply and request.undo:
        raise BadRequestError(f"Cannot set properties of {context.table} and take them back at once: leave one of them out")
    state = inspect.read(context.reader(), Depth.SUMMARY if request.undo else Depth.FILES, context.progress)
    prevention = Prevention(state.name, state.uuid, state.properties, context.clock)
    if request.undo:
        return context.recorded(prevention.undo(context.writer))
    if request.apply:
        return context.recorded(prevention.apply(_proposal(context, state), context.writer))
    return prevention.tell(_proposal(context, state))


def _proposal(context: TableContext, state: TableState) -> PropertyProposal:
    return propose(state, inspect.examine(context, state), context.policy(state), context.stated(state))


@dataclass(frozen=True)
class Prevention:
    """One table, and the properties that it was looked at with."""

    table: TableName
    table_uuid: str
    properties: Mapping[str, str]
    clock: Clock

    def tell(self, proposal: PropertyProposal) -> PreventionRecord:
        """What `apply` would do."""
        nothing = None if proposal.changes else _NOTHING
        return self._record(proposal=proposal, nothing=nothing, rules=proposal.not_due, dry_run=True)

    def apply(self, proposal: PropertyProposal, writer: TableWriter) -> PreventionRecord:
        """Sets every property of the proposal at once."""
        if not proposal.changes:
            return self._record(proposal=proposal, nothing=_NOTHING, rules=proposal.not_due)
        kept = KeptProperty.of(self.properties).with_changes(proposal.changes)
        self._swap(writer, {change.key: change.value for change in proposal.changes} | {PREVENTION: kept.text})
        return self._record(proposal=proposal)

    def undo(self, writer: TableWriter) -> PreventionRecord:
        """Takes back what was set, save what others have changed since: that is theirs."""
        kept = KeptProperty.of(self.properties).values
        if not kept:
            return self._record(nothing=_NOTHING_KEPT, rules=(_UNDO,))
        ours = {key: before for key, (value, before) in kept.items() if self.properties.get(key) == value}
        self._swap(writer, {**ours, PREVENTION: None})
        undone = [
            PropertyChange(key=key, before=self.properties.get(key), value=before or "", reason="as it was before")
            for key, before in ours.items()
        ]
        return self._record(undone=tuple(undone), left=tuple(sorted(kept.keys() - ours.keys())))

    def _swap(self, writer: TableWriter, values: Mapping[str, str | None]) -> None:
        require_same_table(str(self.table), self.table_uuid, writer)
        if not writer.swap_properties({key: self.properties.get(key) for key in values}, values):
            raise CommitConflictError(
                f"Cannot set the properties of {self.table}: somebody else has just changed them",
                hint=f"Check the proposal again: `neve prevent {quote(str(self.table))}`.",
            )

    def _record(
        self,
        *,
        proposal: PropertyProposal | None = None,
        undone: tuple[PropertyChange, ...] = (),
        left: tuple[str, ...] = (),
        nothing: str | None = None,
        rules: tuple[NotDue, ...] = (),
        dry_run: bool = False,
    ) -> PreventionRecord:
        now = self.clock.now_ms()
        return PreventionRecord(
            run_id=None if dry_run else uuid4().hex,
            table=str(self.table),
            table_uuid=self.table_uuid,
            operation=Operation.PREVENT,
            dry_run=dry_run,
            outcome=RunOutcome.NOTHING_TO_DO if nothing else RunOutcome.DONE,
            reason=nothing,
            not_due=rules if nothing else (),
            started_ms=now,
            finished_ms=now,
            proposal=proposal or PropertyProposal(),
            undone=undone,
            left=left,
        )
