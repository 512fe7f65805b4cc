"""Judges whether an operation is due by its own dry run. Called by `is_due` of operations."""

from __future__ import annotations

from collections.abc import Sequence

from neve.health.not_due import NotDue
from neve.maintenance.steps import Judgement
from neve.render.records import line_of
from neve.rewrite.record import Record, RunOutcome


def judged_by(record: Record) -> Judgement:
    """By an operation's own dry run."""
    return judged(due=record.outcome is not RunOutcome.NOTHING_TO_DO, line=line_of(record), rules=record.not_due)


def judged(*, due: bool, line: str, rules: Sequence[NotDue]) -> Judgement:
    """By the rules that are not met, else by a line of text."""
    if not due and rules:
        return Judgement.unmet(*rules)
    return Judgement(due=due, why=line.removeprefix("Nothing to do: "))
