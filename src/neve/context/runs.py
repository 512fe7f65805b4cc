"""Runs in the state store: how they begin and end, and which were interrupted, since no process works on them any more.

The one place for killed runs. An operation that goes on with what a killed run of its kind had begun ends that run's record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, RunInterrupted
from neve.maintenance.record import Operation

if TYPE_CHECKING:
    from neve.ports import Clock
    from neve.rewrite.journal import JournaledRun
    from neve.state import StateStore
    from neve.state.history import History
    from neve.state.rows import Run

INTERRUPTED = "interrupted"
OWNER = "owner"
"""The key under which a maintain run stores its process: its steps have leases and heartbeats, the whole has none."""
_DAY_MS = 86_400_000
_SEARCHED = 1_000
"""How far back a run is found that was killed, or by the beginning of its id; a whole id is always found."""


def history(store: StateStore | None, clock: Clock, wanted: str, *, days: int, limit: int) -> History:
    """What is known of the tables that a name or a glob matches, in the last so many days, with their newest runs."""
    from neve.state.history import History

    if store is None:
        return History((), ())
    found = store.history(wanted, since_ms=since_ms(clock, days), runs=limit)
    return History(found.tables, with_interrupted(found.runs, store, clock))


def since_ms(clock: Clock, days: int) -> int:
    """The moment so many days ago."""
    return max(0, clock.now_ms() - days * _DAY_MS)


def find_run(store: StateStore | None, clock: Clock, run_id: str) -> Run:
    """One run, by its id or by how that begins."""
    exact = store.run(run_id) if store is not None else None
    known = store.runs(limit=_SEARCHED) if store is not None and exact is None else ()
    found = [exact] if exact else [run for run in known if run.run_id.startswith(run_id)]
    if len(found) == 1 and store is not None:
        return with_interrupted(found, store, clock)[0]
    if not found:
        hint = "`neve runs` lists them. Dry runs, and runs that had nothing to do, are not recorded."
        raise BadRequestError(f"Cannot find run {run_id!r}: no run's id begins so", hint=hint)
    some = ", ".join(run.run_id for run in found[:3])
    message = f"Cannot choose run {run_id!r}: {len(found)} runs begin so ({some})"
    raise BadRequestError(message, hint="Write more of the id.")


def unfinished(store: StateStore | None, run: str | None = None) -> tuple[JournaledRun, ...]:
    """Runs that were begun and never ended; if one is named, those whose id begins so, of which there must be one."""
    found = store.unfinished(run or "") if store is not None else ()
    if run is not None and not found:
        raise BadRequestError(f"Cannot resume {run}: no interrupted run begins so", hint="`neve runs` lists all runs.")
    return found


def unended(store: StateStore, table_uuid: str, kind: str) -> list[Run]:
    """Runs of one kind that began and never ended, oldest first. Under the table's lease, none of them is at work."""
    return [run for run in reversed(store.runs(table_uuid, kind=kind, limit=_SEARCHED)) if run.finished_ms is None]


def end_run(store: StateStore, record: Any, run_id: str | None = None) -> None:
    """Stores how a run ended."""
    document = record.model_dump(mode="json")
    ended = {"finished_ms": record.finished_ms, "outcome": record.outcome.value, "record": document}
    store.finish_run(run_id or record.run_id, **ended)


def keep_record(store: StateStore, record: Any, kind: str) -> None:
    """Stores a run that has ended."""
    from neve.state.rows import Run

    store.start_run(Run(record.run_id, record.table_uuid, record.table, kind, record.started_ms))
    end_run(store, record)


@contextmanager
def pausing(store: StateStore) -> Iterator[None]:
    """Raises RunInterrupted if Ctrl-C leaves a run that can be resumed."""
    from neve.commit.failure import was_interrupted

    try:
        yield
    except BaseException as error:
        if was_interrupted(error) and (runs := store.pause_all()):
            raise RunInterrupted(runs[-1]) from error
        raise


def with_interrupted(runs: Sequence[Run], store: StateStore, clock: Clock) -> tuple[Run, ...]:
    """The runs, with the outcome `interrupted` for those that were."""
    now = clock.now_ms()
    open_ones = any(run.finished_ms is None for run in runs)
    holders = store.holders(now) if open_ones else {}
    return tuple(replace(run, outcome=INTERRUPTED) if _is_interrupted(run, holders, now) else run for run in runs)


def _is_interrupted(run: Run, holders: Mapping[str, str], now_ms: int) -> bool:
    from neve.commit.lease import is_over

    if run.finished_ms is not None:
        return False
    if run.kind == Operation.MAINTAIN.value:
        return is_maintenance_over(run, now_ms)
    return run.run_id not in holders or is_over(holders[run.run_id], run.run_id)


def is_maintenance_over(run: Run, now_ms: int) -> bool:
    """Whether a maintain run that has not ended is not at work. On another host it may be, for a day at most."""
    from neve.commit.lease import is_over

    return now_ms - run.started_ms > _DAY_MS or is_over(run.record.get(OWNER, ""), run.run_id)
