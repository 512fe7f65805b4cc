"""Why an operation has nothing to do: the rules that were checked, what each measured, and when it would be due. Pure.

Planners and maintenance operations return these records. Text shows them as a table or as sentences, JSON as they are. Every
record says when the operation would be due: at a moment, after more files (or rows, or commits), or after an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import ceil, inf
from typing import Literal, Self

from pydantic import model_validator

from neve.table.calendar import iso_moment
from neve.table.frozen import Frozen
from neve.table.units import counted, exact_seconds, format_bytes, format_seconds


class Unit(StrEnum):
    """The unit of a measured value and of its threshold."""

    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    RATIO = "ratio"


class NotDue(Frozen):
    """A rule that does not call for the operation now.

    `threshold` is the value of the setting `knob`, if it has one. A rule without a threshold says in `what` what is in the way.
    """

    rule: str
    what: str
    """What is measured, such as `files below 16 MB`."""
    where: str | None = None
    """The partition that is measured, if the rule looks at partitions."""
    measured: float | None = None
    threshold: float | None = None
    unit: Unit = Unit.COUNT
    comparison: Literal["from", "above", "below", "up to"] = "from"
    """On which side of the threshold the rule calls for the operation; `from` and `up to` include the threshold."""
    knob: str | None = None
    due_ms: int | None = None
    """When it is due if nothing is written until then; with `more`, the earliest moment."""
    more: float | None = None
    """How much more makes it due: bytes, or a number of `more_of`."""
    more_of: str = "file"
    until: str | None = None
    """The event that makes it due."""

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if self.due_ms is None and self.more is None and self.until is None:
            raise ValueError(f"{self.rule} does not say when it would be due")
        return self

    def not_before(self, moment_ms: int) -> Self:
        """Returns the rule for an operation that cannot start before a moment, whatever is written until then."""
        if self.until is not None:
            return self
        return self.model_copy(update={"due_ms": max(moment_ms, self.due_ms or moment_ms)})

    @property
    def measured_text(self) -> str:
        """The measured value with its unit; empty for a rule without a threshold."""
        return "" if self.measured is None else _shown(self.measured, self.unit)

    @property
    def threshold_text(self) -> str:
        """`from 5 (min-input-files)`; empty for a rule without a threshold."""
        knob = f" ({self.knob})" if self.knob else ""
        if self.threshold is None:
            return knob.strip()
        word = "after" if self.unit is Unit.SECONDS and self.comparison in ("from", "above") else self.comparison
        value = exact_seconds(self.threshold) if self.unit is Unit.SECONDS else _shown(self.threshold, self.unit)
        return f"{word} {value}{knob}"

    @property
    def when_text(self) -> str:
        """`with 2 more files`, `at 2025-01-17 12:30:05 UTC`, `once the table is written again`."""
        parts = [f"with {self._more_text}"] if self.more is not None else []
        if self.due_ms is not None:
            parts.append(f"{'not before' if parts else 'at'} {iso_moment(ceil(self.due_ms / 1000)).replace('T', ' ')} UTC")
        parts += [f"once {self.until}"] if self.until is not None else []
        return ", ".join(parts)

    @property
    def _more_text(self) -> str:
        more = self.more or 0
        if self.unit is Unit.BYTES:
            return f"{format_bytes(more)} more"
        number, _, noun = counted(ceil(more), self.more_of).partition(" ")
        return f"{number} more {noun}"

    def __str__(self) -> str:
        place = f" in {self.where}" if self.where else ""
        if self.threshold is None:
            return f"{self.what}{place}, due {self.when_text}"
        return f"{self.what}{place}: {self.measured_text}, due {self.threshold_text}, {self.when_text}"


def sentences(rules: Iterable[NotDue]) -> str:
    """Returns the rules as sentences that begin with a capital letter, for the end of a message."""
    return ". ".join(text[0].upper() + text[1:] for text in map(str, rules))


def _shown(value: float, unit: Unit) -> str:
    if unit is Unit.BYTES:
        return format_bytes(value)
    if unit is Unit.SECONDS:
        return format_seconds(value)
    if unit is Unit.RATIO:
        return f"{value:.3g}"
    return f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def nearest(rules: Iterable[NotDue]) -> tuple[NotDue, ...]:
    """Returns of each rule the record that is closest to being due, the closest rule first."""
    closest: dict[tuple[str, str | None], NotDue] = {}
    for one in rules:
        key = one.rule, one.knob
        if key not in closest or _distance(one) < _distance(closest[key]):
            closest[key] = one
    return tuple(sorted(closest.values(), key=_distance))


def _distance(one: NotDue) -> tuple[bool, float, float]:
    """What needs an event is the furthest away; of the others, what needs fewer files comes first, then what comes sooner."""
    return one.until is not None and one.due_ms is None and one.more is None, one.more or 0.0, one.due_ms or inf


def after_interval(since_seconds: float, interval_seconds: float, now_ms: int) -> int:
    """Returns the moment at which an interval that began `since_seconds` ago is over."""
    return now_ms + max(0, ceil(round((interval_seconds - since_seconds) * 1000, 3)))
