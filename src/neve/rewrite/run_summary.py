"""record: what a run came to, in numbers, and what of it stays in the state store, for the next plan and for people.

Called by `operations.rewrite_run` and `operations.compact` at the end of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from neve.rewrite.compactions import Compacted
from neve.rewrite.group import Group
from neve.rewrite.kernel_options import not_applied
from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupRecord, GroupState, RunOutcome, RunRecord
from neve.table.files import Partition


class RunKeeper(Protocol):
    """The writing side of the state store, as far as a run needs it."""

    def keep_run(self, record: RunRecord, compacted: Iterable[Compacted]) -> None:
        """Stores a finished run with the partitions that it compacted, each once."""
        ...


def keep(store: RunKeeper, record: RunRecord, plan: Plan) -> None:
    """Stores the run."""
    homes = {group.group_id: Partition(group.spec_id, group.partition) for group in plan.groups}
    last = record.snapshots[-1] if record.snapshots else None
    commits = [
        Compacted(homes[group.group_id], group.snapshot_id or last, group.committed_ms or record.finished_ms)
        for group in record.groups
        if group.state is GroupState.COMMITTED
    ]
    # A partition counts as compacted by the last of its groups: should only that be rolled back, it is planned again.
    newest = {commit.partition: commit for commit in sorted(commits, key=lambda commit: commit.committed_ms)}
    store.keep_run(record, sorted(newest.values(), key=lambda commit: (commit.partition.spec_id, commit.partition.path)))


def record_of(
    plan: Plan,
    records: Mapping[int, GroupRecord],
    snapshots: Sequence[int],
    *,
    run_id: str | None,
    started_ms: int,
    finished_ms: int,
    resumed_ms: int | None = None,
) -> RunRecord:
    """The run in numbers, from what became of its groups."""
    groups = tuple(records[i] for i in sorted(records))
    # Results of work orders may have been committed by another run before: that run counted them.
    ours = (None, *snapshots)
    committed = [group for group in groups if group.state is GroupState.COMMITTED and group.snapshot_id in ours]
    planned: list[Group] = [plan.groups[group.group_id] for group in committed]
    written = [output for group in committed for output in group.outputs]
    kernels = Counter(group.kernel for group in groups if group.kernel is not None)
    return RunRecord(
        kind=plan.kind,
        run_id=run_id,
        table=str(plan.table),
        table_uuid=plan.table_uuid,
        branch=plan.branch,
        outcome=_outcome({group.state for group in groups}),
        empty_reason=plan.empty_reason,
        not_due=() if len(plan.groups) else plan.not_due,
        started_ms=started_ms,
        resumed_ms=resumed_ms,
        finished_ms=finished_ms,
        snapshot_before=plan.snapshot_id,
        snapshots=tuple(snapshots),
        groups=groups,
        files_compacted=sum(len(group.files) for group in planned),
        files_written=len(written),
        bytes_read=sum(group.input_bytes for group in planned),
        bytes_written=sum(output.size_bytes for output in written),
        rows=sum(output.records for output in written),
        kernels=kernels,
        not_applied=not_applied(plan.options, kernels),
    )


def _outcome(states: set[GroupState]) -> RunOutcome:
    good = {GroupState.COMMITTED, GroupState.SUPERSEDED}
    if not states:
        return RunOutcome.NOTHING_TO_DO
    if states <= good:
        return RunOutcome.DONE
    return RunOutcome.PARTLY_DONE if states & good else RunOutcome.FAILED
