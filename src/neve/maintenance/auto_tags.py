"""Makes and drops the tags that `core.auto_tags` plans, in one commit of metadata. Called by `compose`; main only.

Each attempt plans anew from the table as it is, and its commit fails if anything at all has changed since: so a tag is dropped
only while it names what it was seen to name. An answer that was lost is settled by the next look.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from neve.core.auto_tags import Keep, TagPlan, TagsRecord, plan_tags
from neve.core.maintenance import Operation
from neve.core.model import TableState
from neve.core.record import RunOutcome
from neve.errors import CommitUnknownError
from neve.flow.commit import Retry
from neve.flow.lease import leased
from neve.maintenance.means import Means
from neve.ports import Clock, Tagger

ATTEMPTS = 20
"""Every commit of others costs one, and they are cheap."""


def foretell(state: TableState, keep: Keep, *, prefix: str, clock: Clock) -> TagsRecord:
    """What would be done. Nothing is changed."""
    now = clock.now_ms()
    plan = plan_tags(state, keep, prefix=prefix, now_ms=now)
    return _record(state, plan, uuid4().hex, now, now, dry_run=True)


def keep_tags(means: Means, tagger: Tagger, keep: Keep, *, prefix: str) -> TagsRecord:
    """Makes the table's tags those that `keep` asks for."""
    run_id, started = uuid4().hex, means.clock.now_ms()
    table = (str(means.table), means.table_uuid)
    with leased(*table, run_id, leases=means.leases, writer=means.writer, clock=means.clock):
        state, plan, failure = _changed(means, tagger, keep, prefix)
    record = _record(state, plan, run_id, started, means.clock.now_ms())
    return record if failure is None else record.model_copy(update={"outcome": RunOutcome.FAILED, "reason": failure})


def _changed(means: Means, tagger: Tagger, keep: Keep, prefix: str) -> tuple[TableState, TagPlan, str | None]:
    """The table as it was, what was done to it, and why nothing was, if it failed."""
    retry, sent = Retry.of(means.writer.properties()), TagPlan()
    for attempt in range(ATTEMPTS):
        if attempt:
            means.sleep(retry.wait_seconds(min(attempt - 1, 5), random.random()))  # noqa: S311
        state = means.look().state()
        plan = plan_tags(state, keep, prefix=prefix, now_ms=means.clock.now_ms())
        if plan.is_empty:
            return state, sent if _is_there(state, sent) else plan, None
        means.tell("tag")
        try:
            if tagger.change_tags(plan.created, plan.dropped):
                return state, plan, None
        except CommitUnknownError:
            sent = plan
    return state, TagPlan(), f"others changed the table {ATTEMPTS} times meanwhile, or the catalog does not answer"


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
