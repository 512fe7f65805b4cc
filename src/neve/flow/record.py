"""record: what a run leaves in the state store, for the next plan and for people.

Called by `compose` at the end of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from neve.core.files import Partition
from neve.core.plan import Plan
from neve.core.record import GroupState, RunRecord


class RunKeeper(Protocol):
    """The writing side of the state store, as far as a run needs it."""

    def keep_run(self, record: RunRecord, partitions: Iterable[Partition]) -> None:
        """Stores a finished run with the partitions that it compacted."""
        ...


def keep(store: RunKeeper, record: RunRecord, plan: Plan) -> None:
    """Stores the run."""
    homes = {group.group_id: Partition(group.spec_id, group.partition) for group in plan.groups}
    compacted = {homes[group.group_id] for group in record.groups if group.state is GroupState.COMMITTED}
    store.keep_run(record, sorted(compacted, key=lambda partition: (partition.spec_id, partition.path)))
