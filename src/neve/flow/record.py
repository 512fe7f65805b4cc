"""record: what a run came to, in numbers, and what of it stays in the state store, for the next plan and for people.

Called by `flow.run` and `compose` at the end of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from neve.core.files import Partition
from neve.core.plan import Plan
from neve.core.plan_words import Group
from neve.core.record import GroupRecord, GroupState, RunOutcome, RunRecord


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


def record_of(
    plan: Plan,
    records: Mapping[int, GroupRecord],
    snapshots: Sequence[int],
    *,
    run_id: str,
    started_ms: int,
    finished_ms: int,
) -> RunRecord:
    """The run in numbers, from what became of its groups."""
    groups = tuple(records[i] for i in sorted(records))
    committed = [group for group in groups if group.state is GroupState.COMMITTED]
    planned: list[Group] = [plan.groups[group.group_id] for group in committed]
    written = [output for group in committed for output in group.outputs]
    return RunRecord(
        run_id=run_id,
        table=str(plan.table),
        table_uuid=plan.table_uuid,
        branch=plan.branch,
        outcome=_outcome({group.state for group in groups}),
        empty_reason=plan.empty_reason,
        started_ms=started_ms,
        finished_ms=finished_ms,
        snapshot_before=plan.snapshot_id,
        snapshots=tuple(snapshots),
        groups=groups,
        files_compacted=sum(len(group.files) for group in planned),
        files_written=len(written),
        bytes_read=sum(group.input_bytes for group in planned),
        bytes_written=sum(output.size_bytes for output in written),
        rows=sum(output.records for output in written),
        kernels=Counter(group.kernel for group in groups if group.kernel is not None),
    )


def _outcome(states: set[GroupState]) -> RunOutcome:
    good = {GroupState.COMMITTED, GroupState.SUPERSEDED}
    if not states:
        return RunOutcome.NOTHING_TO_DO
    if states <= good:
        return RunOutcome.DONE
    return RunOutcome.PARTLY_DONE if states & good else RunOutcome.FAILED
