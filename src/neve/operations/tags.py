"""tags: creates and drops the tags that `maintenance.tags` plans, in one commit of metadata. Main only.

Each attempt plans from the table as it is, and its commit fails if anything at all has changed since: a tag is dropped only
while it names the snapshot that it was seen to name. A lost answer is settled by the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from neve.commit.lease import Held, leased
from neve.commit.protocol import Change, Retry, Settled, Terms, commit_or_raise
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitConflictError
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.maintenance.steps import Judgement
from neve.maintenance.tags import TagPlan, TagsRecord, plan_tags
from neve.operations.due import judged_by
from neve.operations.requests import TagsRequest
from neve.policy.auto_tags import Keep, parse_keep
from neve.ports import Tagger
from neve.rewrite.record import RunOutcome
from neve.table.state import TableState

ATTEMPTS = 20
"""Unless the table sets a number of retries: every commit of others costs one attempt, and attempts are cheap."""


def run(context: TableContext, request: TagsRequest) -> TagsRecord:
    """Makes the table's tags those that the policy's `auto-tags` asks for."""
    keep, prefix = _asked(context), context.policy().auto_tag_prefix
    if request.dry_run:
        return preview(context, keep, prefix=prefix)
    context.require_free()
    from neve.spark.maintenance.tags import SparkTags

    return context.recorded(keep_tags(context, SparkTags(context.writer), keep, prefix=prefix))


def is_due(context: TableContext) -> Judgement:
    """Whether a tag is missing or one is too many."""
    if context.policy().auto_tags is None:
        return Judgement.unmet(NotDue(rule="auto-tags", what="auto-tags is not set", knob="auto-tags", until="it is set"))
    return judged_by(run(context, TagsRequest(dry_run=True)))


def _asked(context: TableContext) -> Keep:
    auto_tags = context.policy().auto_tags
    if auto_tags is None:
        raise BadRequestError(
            f"Cannot keep tags of {context.name}: auto-tags does not say which",
            hint="Set it in neve.yaml, as the table property neve.auto-tags, or with --auto-tags 'daily 7, weekly 4'.",
        )
    return parse_keep(auto_tags)


def preview(context: TableContext, keep: Keep, *, prefix: str) -> TagsRecord:
    """What would be done. Nothing is changed."""
    now, state = context.clock.now_ms(), context.state
    return _record(state, plan_tags(state, keep, prefix=prefix, now_ms=now), None, now, now, dry_run=True)


def keep_tags(context: TableContext, tagger: Tagger, keep: Keep, *, prefix: str) -> TagsRecord:
    """Makes the table's tags those that `keep` asks for."""
    run_id, started = uuid4().hex, context.clock.now_ms()
    table = (str(context.name), context.uuid)
    with leased(*table, run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        state, plan, failure = _changed(context, tagger, keep, prefix, lease)
    record = _record(state, plan, run_id, started, context.clock.now_ms())
    return record if failure is None else record.model_copy(update={"outcome": RunOutcome.FAILED, "reason": failure})


class _Tagging(Change[TagPlan, TagPlan]):
    """Creates and drops tags in one exchange of metadata, which fails if anything has changed since it was planned."""

    def __init__(self, context: TableContext, tagger: Tagger, keep: Keep, prefix: str) -> None:
        super().__init__()
        self._context, self._tagger, self._keep, self._prefix = context, tagger, keep, prefix
        self.state: TableState | None = None

    def refresh(self) -> None:
        self.state = self._context.reader().state()

    def prepare(self) -> TagPlan | Settled[TagPlan]:
        assert self.state is not None  # noqa: S101 - refreshed before
        plan = plan_tags(self.state, self._keep, prefix=self._prefix, now_ms=self._context.clock.now_ms())
        if plan.is_empty:
            return Settled(plan)
        self._context.report("tag")
        return plan

    def send(self, plan: TagPlan) -> Settled[TagPlan]:
        if not self._tagger.change_tags(plan.created, plan.dropped):
            raise CommitConflictError("another writer changed the table at the same moment")
        return Settled(plan)

    def landed(self) -> Settled[TagPlan] | None:
        state = self.state
        return next((Settled(sent) for sent in self.open if state is not None and _is_there(state, sent)), None)


def _changed(
    context: TableContext, tagger: Tagger, keep: Keep, prefix: str, lease: Held
) -> tuple[TableState, TagPlan, str | None]:
    """The table as it was, what was done to it, and why nothing was, if it failed."""
    change, retry = _Tagging(context, tagger, keep, prefix), Retry.of(context.writer.properties(), attempts=ATTEMPTS)
    what = f"tags of {context.name}"
    ended = commit_or_raise(change, Terms(what, retry, context.clock, context.sleep, lease.assert_held))
    state = change.state or context.reader().state()
    if ended.settled is not None:
        return state, ended.settled.result, None
    return state, TagPlan(), f"no attempt to change the tags succeeded; the last one: {ended.failure}"


def _is_there(state: TableState, plan: TagPlan) -> bool:
    """Whether a change whose answer was lost is in the table."""
    refs = {ref.name: ref.snapshot_id for ref in state.refs}
    made = all(refs.get(tag.name) == tag.snapshot_id for tag in plan.created)
    return made and not any(tag.name in refs for tag in plan.dropped)


def _record(
    state: TableState, plan: TagPlan, run_id: str | None, started: int, finished: int, *, dry_run: bool = False
) -> TagsRecord:
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
