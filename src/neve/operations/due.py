"""Judges whether an operation is due by its own dry run. Called by `is_due` of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from neve.health.not_due import NotDue
from neve.maintenance.steps import Judgement
from neve.render.records import line_of
from neve.rewrite.record import RunOutcome


class EndedRecord(Protocol):
    """The record of any operation."""

    @property
    def run_id(self) -> str:
        """Identifies it in the state store."""
        ...

    @property
    def outcome(self) -> RunOutcome:
        """How it ended."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time."""
        ...

    @property
    def not_due(self) -> tuple[NotDue, ...]:
        """Why there was nothing to do."""
        ...


def judged_by(record: EndedRecord) -> Judgement:
    """By an operation's own dry run."""
    return judged(due=record.outcome is not RunOutcome.NOTHING_TO_DO, line=line_of(record), rules=record.not_due)


def judged(*, due: bool, line: str, rules: Sequence[NotDue]) -> Judgement:
    """By the rules that are not met, else by a line of text."""
    if not due and rules:
        return Judgement.unmet(*rules)
    return Judgement(due=due, why=line.removeprefix("Nothing to do: "))
