"""Which runs were interrupted: they have not ended, and no process works on them any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from neve.maintenance.record import Operation

if TYPE_CHECKING:
    from neve.ports import Clock
    from neve.state import StateStore
    from neve.state.rows import Run

INTERRUPTED = "interrupted"
OWNER = "owner"
"""The key under which a maintain run stores its process: its steps have leases and heartbeats, the whole has none."""
_DAY_MS = 86_400_000


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
