"""Makes and drops the tags that `maintenance.tags` plans, in one commit of metadata. Called by `compose`; main only.

Each attempt plans anew from the table as it is, and its commit fails if anything at all has changed since: so a tag is dropped
only while it names what it was seen to name. An answer that was lost is settled by the next look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from neve.commit.lease import Held, leased
from neve.commit.protocol import Change, Retry, Settled, Terms, commit_or_raise
from neve.errors import CommitConflictError
from neve.maintenance.record import Operation
from neve.maintenance.tags import TagPlan, TagsRecord, plan_tags
from neve.operations.means import Means
from neve.policy.auto_tags import Keep
from neve.ports import Clock, Tagger
from neve.rewrite.record import RunOutcome
from neve.table.state import TableState

ATTEMPTS = 20
"""Unless the table sets a number of retries: every commit of others costs one attempt, and attempts are cheap."""


def foretell(state: TableState, keep: Keep, *, prefix: str, clock: Clock) -> TagsRecord:
    """What would be done. Nothing is changed."""
    now = clock.now_ms()
    plan = plan_tags(state, keep, prefix=prefix, now_ms=now)
    return _record(state, plan, uuid4().hex, now, now, dry_run=True)


def keep_tags(means: Means, tagger: Tagger, keep: Keep, *, prefix: str) -> TagsRecord:
    """Makes the table's tags those that `keep` asks for."""
    run_id, started = uuid4().hex, means.clock.now_ms()
    table = (str(means.table), means.table_uuid)
    with leased(*table, run_id, leases=means.leases, writer=means.writer, clock=means.clock) as lease:
        state, plan, failure = _changed(means, tagger, keep, prefix, lease)
    record = _record(state, plan, run_id, started, means.clock.now_ms())
    return record if failure is None else record.model_copy(update={"outcome": RunOutcome.FAILED, "reason": failure})


class _Tagging(Change[TagPlan, TagPlan]):
    """Creates and drops tags in one exchange of metadata, which fails if anything has changed since it was planned."""

    def __init__(self, means: Means, tagger: Tagger, keep: Keep, prefix: str) -> None:
        super().__init__()
        self._means, self._tagger, self._keep, self._prefix = means, tagger, keep, prefix
        self.state: TableState | None = None

    def refresh(self) -> None:
        self.state = self._means.look().state()

    def prepare(self) -> TagPlan | Settled[TagPlan]:
        assert self.state is not None  # noqa: S101 - refreshed before
        plan = plan_tags(self.state, self._keep, prefix=self._prefix, now_ms=self._means.clock.now_ms())
        if plan.is_empty:
            return Settled(plan)
        self._means.tell("tag")
        return plan

    def send(self, plan: TagPlan) -> Settled[TagPlan]:
        if not self._tagger.change_tags(plan.created, plan.dropped):
            raise CommitConflictError("another writer changed the table at the same moment")
        return Settled(plan)

    def landed(self) -> Settled[TagPlan] | None:
        state = self.state
        return next((Settled(sent) for sent in self.open if state is not None and _is_there(state, sent)), None)


def _changed(means: Means, tagger: Tagger, keep: Keep, prefix: str, lease: Held) -> tuple[TableState, TagPlan, str | None]:
    """The table as it was, what was done to it, and why nothing was, if it failed."""
    change, retry = _Tagging(means, tagger, keep, prefix), Retry.of(means.writer.properties(), attempts=ATTEMPTS)
    what = f"tags of {means.table}"
    ended = commit_or_raise(change, Terms(what, retry, means.clock, means.sleep, lease.assert_held))
    state = change.state or means.look().state()
    if ended.settled is not None:
        return state, ended.settled.result, None
    return state, TagPlan(), f"no attempt to change the tags succeeded; the last one: {ended.failure}"


def _is_there(state: TableState, plan: TagPlan) -> bool:
    """Whether a change whose answer was lost is in the table."""
    refs = {ref.name: ref.snapshot_id for ref in state.refs}
    made = all(refs.get(tag.name) == tag.snapshot_id for tag in plan.created)
    return made and not any(tag.name in refs for tag in plan.dropped)


def _record(state: TableState, plan: TagPlan, run_id: str, started: int, finished: int, *, dry_run: bool = False) -> TagsRecord:
    nothing = "every tag that the policy asks for is there, and none too many"
    facts: Mapping[str, Any] = plan.model_dump()
    return TagsRecord(
        run_id=run_id,
        table=str(state.name),
        table_uuid=state.uuid,
        operation=Operation.TAGS,
        dry_run=dry_run,
        outcome=RunOutcome.NOTHING_TO_DO if plan.is_empty else RunOutcome.DONE,
        reason=nothing if plan.is_empty else None,
        started_ms=started,
        finished_ms=finished,
        snapshot_before=state.snapshot_id,
        **facts,
    )
