"""Carries out one job on an open connection: what was interrupted on its table is finished first.

Called by `worker` in its own process, and by the program that `spark-submit` runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from neve.errors import LeaseHeldError, NeveError, TableGoneError, TableNotFoundError
from neve.rewrite.record import RunOutcome
from neve.scheduling.job import Job
from neve.service.job_end import JobEnd, used

if TYPE_CHECKING:
    from neve.api import Neve

log = logging.getLogger(__name__)


def carry_out(neve: Neve, job: Job) -> JobEnd:
    """Returns how the operation ended. Raises what it raises."""
    _require_same_table(neve, job)
    for run in _interrupted_runs(neve, job.table_uuid):
        _resume(neve, job.table, run)
    with _limited(neve, job.knobs):
        record = getattr(neve, job.operation)(job.table, **job.options)
    cost = neve.connection.settings.cost
    return JobEnd.of_record(record, used(record, core_hour=cost.core_hour, prices=cost.version), job.knobs)


@contextmanager
def _limited(neve: Neve, knobs: Mapping[str, Any]) -> Iterator[None]:
    neve.connection.limits = knobs
    try:
        yield
    finally:
        neve.connection.limits = {}


def _require_same_table(neve: Neve, job: Job) -> None:
    with neve.table(job.table) as table:
        if table.uuid != job.table_uuid:
            raise TableGoneError(f"Cannot work on {job.table}: another table was created under its name")


def _interrupted_runs(neve: Neve, table_uuid: str) -> Iterator[str]:
    return (run.run_id for run in neve.unfinished() if run.plan.table_uuid == table_uuid)


def _resume(neve: Neve, table: str, run: str) -> None:
    """Finishes what a worker that died left of this table. If it cannot be finished, the job itself reports the trouble."""
    log.info("%s: run %s was interrupted and is resumed", table, run[:8])
    try:
        record = neve.resume(run)
    except (LeaseHeldError, TableNotFoundError, TableGoneError):
        raise
    except NeveError as error:
        log.warning("%s: run %s was not resumed: %s", table, run[:8], error)
    else:
        if record.outcome is RunOutcome.FAILED:
            log.warning("%s: run %s was resumed and failed", table, run[:8])
