"""What a look at the rows themselves comes to: fingerprints, the proof by content, and the answer of a probe query.

Made by the engine, compared by the flow, kept in the run record. Pure values: whoever computed a fingerprint, two are equal
exactly when the same rows went in, whatever their order (save by chance, about once in 2^128).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from neve.rewrite.proof import Check
from neve.table.frozen import Frozen

_MASK = 2**64 - 1
SLOWER_AT = 1.2
"""A probe query that takes this many times as long as before is reported."""


def _from_hex(value: Any) -> Any:
    return int(value, 16) if isinstance(value, str) else value


Word = Annotated[int, BeforeValidator(_from_hex), PlainSerializer(lambda value: f"{value:016x}", when_used="json")]
"""64 bits; hexadecimal in JSON, whose numbers end at 53."""


class Fingerprint(Frozen):
    """Rows without their order: how many, and the sum and exclusive-or of two independent hashes of each.

    An exclusive-or alone would take a row that is there twice for one that is not there at all.
    """

    rows: int = 0
    sums: tuple[Word, Word] = (0, 0)
    xors: tuple[Word, Word] = (0, 0)

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """The fingerprint of both sets of rows together."""
        sums = tuple((a + b) & _MASK for a, b in zip(self.sums, other.sums, strict=True))
        xors = tuple(a ^ b for a, b in zip(self.xors, other.xors, strict=True))
        return Fingerprint(rows=self.rows + other.rows, sums=sums, xors=xors)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, hash {self.sums[0]:016x}{self.sums[1]:016x}"


def total(parts: Iterable[Fingerprint]) -> Fingerprint:
    """The fingerprint of all parts together."""
    return sum(parts, start=Fingerprint())


class ContentProof(Frozen):
    """The rows of one group before and after its rewrite, and who read them.

    `engine` names the reader, or both where each side had its own; `note` says why the reader was also the writer.
    """

    group_id: int
    before: Fingerprint
    after: Fingerprint
    engine: str
    note: str | None = None
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the group may be committed."""
        return self.before == self.after

    @property
    def check(self) -> Check:
        """As one more equation of the group's proof."""
        found = f"{self.after}" if self.holds else f"{self.after}, expected {self.before}"
        note = f" ({self.note})" if self.note else ""
        return Check(name="content", holds=self.holds, detail=f"{found}, read by {self.engine}{note}")


class Measured(Frozen):
    """One measurement of a probe query: what it answered, and how long it took when warm."""

    sql: str
    answer: Fingerprint
    seconds: float
    runs: int


class ProbeResult(Frozen):
    """A probe query before and after a run. `equal` is None where the answers cannot be compared; `note` then says why."""

    sql: str
    rows: int
    seconds_before: float
    seconds_after: float
    equal: bool | None
    slower: bool
    note: str | None = None


def probe_result(before: Measured, after: Measured, *, others_committed: bool) -> ProbeResult:
    """What a probe shows. Where others wrote meanwhile, an answer that changed says nothing about the run."""
    equal, note = before.answer == after.answer, None
    if not equal:
        note = f"answered {before.answer} before, {after.answer} after"
        if others_committed:
            note = f"not comparable, since others committed meanwhile: {note}"
    return ProbeResult(
        sql=before.sql,
        rows=after.answer.rows,
        seconds_before=before.seconds,
        seconds_after=after.seconds,
        equal=None if others_committed and not equal else equal,
        slower=after.seconds > SLOWER_AT * before.seconds,
        note=note,
    )
