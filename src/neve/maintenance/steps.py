"""The whole upkeep of a table: its steps in the order in which they are safe, when each is due, and what came of them. Pure.

First what only protects or takes little, then rewrites, then what removes files, so that nothing is removed by a view that a
later step would change. `operations.maintain` goes through the steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Self

from neve.errors import BadRequestError
from neve.health.not_due import NotDue, Unit, after_interval
from neve.maintenance.record import MaintenanceRecord
from neve.policy.model import Policy
from neve.rewrite.record import RunOutcome
from neve.table.frozen import Frozen
from neve.table.units import format_seconds


class Step(StrEnum):
    """In their order."""

    RESUME = "resume"  # a compaction that was interrupted is ended first
    TAGS = "tags"  # before snapshots go: a tag holds its snapshot
    EXPIRE = "expire"
    TTL = "ttl"  # before the rewrite: what goes needs none
    COMPACT = "compact"
    CONVERT = "deletes convert"  # what no rewrite has applied
    REWRITE = "deletes rewrite"
    PRUNE = "deletes prune"
    MANIFESTS = "manifests"
    STATS = "stats"
    ORPHANS = "orphans"  # never while a rewrite of ours is open
    SETTLE = "settle"
    PURGE = "purge"


class StepOutcome(StrEnum):
    """How a step ended, or why it was none."""

    DONE = "done"
    NOTHING = "nothing to do"  # it looked, and found nothing
    PARTLY = "partly done"
    FAILED = "failed"
    NOT_DUE = "not due"
    DUE = "due"  # in a dry run
    LEFT_OUT = "left out"  # by whoever asked, or by the policy
    NOT_TRIED = "not tried"  # for what came of a step before


RAN = frozenset({StepOutcome.DONE, StepOutcome.NOTHING, StepOutcome.PARTLY, StepOutcome.FAILED})
BAD = frozenset({StepOutcome.PARTLY, StepOutcome.FAILED, StepOutcome.NOT_TRIED})


class Judgement(Frozen):
    """Whether a step is due, and why or why not; if it is not, `not_due` has the rules that were checked."""

    due: bool
    why: str
    not_due: tuple[NotDue, ...] = ()

    @classmethod
    def unmet(cls, *rules: NotDue) -> Self:
        """A step that is not due by these rules; the first of them is shown."""
        return cls(due=False, why=str(rules[0]), not_due=rules)


class StepRecord(Frozen):
    """One step. `why` says why it was due, or was not; `told` is the operation's own account in a line."""

    step: Step
    outcome: StepOutcome
    why: str
    not_due: tuple[NotDue, ...] = ()
    told: str | None = None
    run_id: str | None = None
    """Of the operation, which has a record of its own."""
    seconds: float = 0.0
    traceback: str | None = None
    """Of an unexpected exception that ended the step."""


class MaintainRecord(MaintenanceRecord):
    """The upkeep of one table; scores are those of `neve inspect`, None where nothing was done or nobody could look."""

    steps: tuple[StepRecord, ...] = ()
    health_before: int | None = None
    health_after: int | None = None

    @property
    def done(self) -> tuple[StepRecord, ...]:
        """The steps that changed something."""
        return tuple(step for step in self.steps if step.outcome in (StepOutcome.DONE, StepOutcome.PARTLY))


_SWITCHES = {
    Step.EXPIRE: "maintain_expire",
    Step.COMPACT: "maintain_compact",
    Step.CONVERT: "maintain_deletes",
    Step.REWRITE: "maintain_deletes",
    Step.PRUNE: "maintain_deletes",
    Step.MANIFESTS: "maintain_manifests",
    Step.ORPHANS: "maintain_orphans",
}
"""The knobs that turn steps off. The others are asked for by knobs of their own, or end what was begun."""


def left_out(policy: Policy, only: Sequence[str], skip: Sequence[str]) -> dict[Step, str]:
    """The steps that are not wanted, and who said so. `deletes` stands for its three steps."""
    chosen, skipped = _named(only), _named(skip)
    found = {step: "--only names others" for step in Step if only and step not in chosen}
    off = ((step, field) for step, field in _SWITCHES.items() if not getattr(policy, field) and step not in chosen)
    found |= {step: f"{field.replace('_', '-')} is off" for step, field in off if step not in found}
    return found | dict.fromkeys(skipped, "--skip")


def _named(words: Iterable[str]) -> set[Step]:
    found = set[Step]()
    for word in words:
        steps = [step for step in Step if word in (step.value, step.value.partition(" ")[0])]
        if not steps:
            raise BadRequestError(f"Cannot find step {word!r}", hint=f"There are {', '.join(step_words())}.")
        found.update(steps)
    return found


def step_words() -> list[str]:
    """What `only` and `skip` may say."""
    return list(dict.fromkeys(step.value.partition(" ")[0] for step in Step))


def by_interval(last_ms: int | None, now_ms: int, interval_seconds: float, knob: str) -> Judgement:
    """Due if it was not done for so long."""
    if last_ms is None:
        return Judgement(due=True, why="never searched yet")
    ago = max((now_ms - last_ms) / 1000, 0.0)
    if ago >= interval_seconds:
        return Judgement(due=True, why=f"the last search was {format_seconds(ago)} ago")
    return Judgement.unmet(
        NotDue(
            rule=knob,
            what="time since the last search",
            measured=ago,
            threshold=interval_seconds,
            unit=Unit.SECONDS,
            knob=knob,
            due_ms=after_interval(ago, interval_seconds, now_ms),
        )
    )


def outcome_of(steps: Collection[StepRecord], *, dry_run: bool) -> RunOutcome:
    """Of the whole."""
    outcomes = {step.outcome for step in steps}
    if dry_run:
        return RunOutcome.DONE if StepOutcome.DUE in outcomes else RunOutcome.NOTHING_TO_DO
    good = bool(outcomes & {StepOutcome.DONE, StepOutcome.PARTLY})
    if outcomes & BAD:
        return RunOutcome.PARTLY_DONE if good or StepOutcome.NOTHING in outcomes else RunOutcome.FAILED
    return RunOutcome.DONE if good else RunOutcome.NOTHING_TO_DO
