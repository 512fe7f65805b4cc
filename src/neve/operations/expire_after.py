"""The expiry that `compact --expire-snapshots` ends with: under the compaction's lease, and part of its record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitIncidentError
from neve.health.not_due import NotDue
from neve.maintenance.expiry import ExpiryRecord
from neve.operations.expire_snapshots import due_next, expire_and_record, reasons_to_expire, terms_of
from neve.operations.requests import ExpireRequest
from neve.rewrite.record import GroupState, RunOutcome, RunRecord, SnapshotExpiry
from neve.table.state import MAIN
from neve.table.units import counted

log = logging.getLogger(__name__)

Held = Callable[[], None]
"""Raises if the table's lease was lost."""


@dataclass(frozen=True)
class ExpireAfter:
    """The expiry of one table after its compaction."""

    expire: Callable[[str | None, Held | None], ExpiryRecord | NotDue]
    """Expires snapshots after the run with this id; takes the lease itself unless it is held. NotDue if it had nothing
    to do."""

    @classmethod
    def of(cls, context: TableContext, retention_hours: float | None) -> ExpireAfter:
        """By the table's own retention unless hours are given."""
        if retention_hours is not None and retention_hours <= 0:
            raise BadRequestError(f"Cannot keep snapshots for {retention_hours:g} hours: that is not in the past")
        request = ExpireRequest(older_than=f"{retention_hours} h" if retention_hours is not None else None)

        def expire(after_run: str | None, assert_held: Held | None) -> ExpiryRecord | NotDue:
            # Where there was nothing to compact, the record of the compaction is not stored.
            with context.fresh(MAIN, part_of_another=assert_held is not None) as now:
                terms = replace(terms_of(now, request, flag="--snapshot-retention-hours"), after_run=after_run)
                if assert_held is None and not reasons_to_expire(now, terms):
                    return due_next(now, terms)  # found without Spark
                return expire_and_record(now, terms, assert_held)

        return cls(expire)

    def under_lease(self, record: RunRecord, assert_held: Held) -> RunRecord:
        """Expires snapshots after a run that holds the lease. The run has committed, so a failure of this is in its record."""
        if (why := _unfit(record)) is not None:
            return _with(record, SnapshotExpiry(outcome=RunOutcome.FAILED, reason=why))
        try:
            return _with(record, _outcome(self.expire(record.run_id, assert_held)))
        except CommitIncidentError as error:
            return record.model_copy(update={"incident": f"{error}. {error.hint}"})
        except Exception as error:
            log.warning("snapshots were not expired after run %s", record.run_id, exc_info=error)
            return _with(record, SnapshotExpiry(outcome=RunOutcome.FAILED, reason=str(error)))

    def alone(self, record: RunRecord) -> RunRecord:
        """Expires snapshots where there was nothing to compact."""
        return _with(record, _outcome(self.expire(record.run_id, None)))


def _unfit(record: RunRecord) -> str | None:
    """Why no snapshot is expired after this run: a person, or a resume, may need them to find out what became of it."""
    if record.outcome is RunOutcome.FAILED or record.incident is not None or record.table_gone is not None:
        return "the compaction failed"
    in_doubt = sum(group.state is GroupState.IN_DOUBT for group in record.groups)
    return f"the commit outcome of {counted(in_doubt, 'group')} is unknown" if in_doubt else None


def _outcome(done: ExpiryRecord | NotDue) -> SnapshotExpiry:
    if isinstance(done, NotDue) or done.outcome is RunOutcome.NOTHING_TO_DO:
        rules = (done,) if isinstance(done, NotDue) else done.not_due
        return SnapshotExpiry(outcome=RunOutcome.NOTHING_TO_DO, reason="every snapshot is kept", not_due=rules)
    return SnapshotExpiry(
        run_id=done.run_id,
        outcome=done.outcome,
        reason=done.reason,
        snapshots=len(done.expired),
        files=sum(done.files.values()),
        size_bytes=done.size_bytes,
        files_without_size=done.files_without_size,
    )


def _with(record: RunRecord, expiry: SnapshotExpiry) -> RunRecord:
    return record.model_copy(update={"expiry": expiry})
