"""The terms of one TTL run: the rule, its cutoff, and what a preview has shown. Called by `operations.ttl`.

The first enforcement of a rule needs a preview that was recorded, and removes what that showed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from pydantic import ValidationError

from neve.context.table import TableContext
from neve.errors import BadRequestError
from neve.maintenance.last_write import last_write
from neve.maintenance.record import Operation
from neve.maintenance.ttl import TtlCounts, TtlRecord, TtlRule, TtlTarget, cutoff_ms, rule_of
from neve.rewrite.versions import NEWER, unknown_parts
from neve.table.state import MAIN, TableName

log = logging.getLogger(__name__)

_SEARCHED = 1_000
"""How many runs of this kind are searched for one by the same rule."""


@dataclass(frozen=True)
class TtlTerms:
    """What is asked for. `previewed` are the counts that a preview with the same cutoff told of a snapshot."""

    table: TableName
    table_uuid: str
    rule: TtlRule
    cutoff_ms: int | None
    """None if it is unknown from when the limit counts; then nothing is removed, for the reason in `unknown`."""
    max_files: int
    branch: str = MAIN
    dry_run: bool = False
    previewed_by: str | None = None
    previewed: tuple[int | None, TtlCounts] | None = None
    unknown: str | None = None

    @property
    def target(self) -> TtlTarget:
        """What every destructive statement of this run is aimed at."""
        return TtlTarget(self.table_uuid, self.branch, self.rule.field_id, self.rule.column, self.rule.type)


def terms_of(context: TableContext, *, enforce: bool) -> TtlTerms:
    """By the table's policy; an enforcement removes what was previewed."""
    state, branch, policy = context.state, context.branch, context.policy()
    rule, now = rule_of(state, policy), context.clock.now_ms()
    last = last_write(state.snapshots, state.snapshot_id, state.properties, now_ms=now, branch=branch)
    cutoff = cutoff_ms(rule, now, last.ms)
    terms = TtlTerms(
        state.name,
        state.uuid,
        rule,
        cutoff,
        policy.max_files,
        branch,
        dry_run=not enforce,
        unknown=last.why_unknown if cutoff is None else None,
    )
    return as_previewed(terms, previews(context)) if enforce else terms


def previews(context: TableContext) -> list[TtlRecord]:
    """Returns previews and enforcements on the branch, newest first, without those that kept every row for lack of a cutoff.

    A copy of a table has the same uuid, so only records under the same name count. A renamed table needs a new preview.
    """
    store, name = context.records, str(context.name)
    runs = store.runs(context.uuid, kind=Operation.TTL.value, limit=_SEARCHED) if store is not None else ()
    found = [_record(run.record) for run in runs if run.record and run.table_name == name]
    return [record for record in found if record and record.branch == context.branch and record.cutoff_ms is not None]


def _record(document: Mapping[str, Any]) -> TtlRecord | None:
    """A stored record; None if a newer release wrote it with more than this one knows: what it showed may not be what this one
    would remove."""
    try:
        return TtlRecord.model_validate(document)
    except ValidationError as error:
        if not unknown_parts(error):
            raise
        log.warning("a TTL record does not count as a preview: it was %s", NEWER)
        return None


def newest(records: Sequence[TtlRecord], rule: TtlRule) -> TtlRecord | None:
    """The newest by the same rule. A rule names its column by field id: by another column of the same name it is another."""
    return next((record for record in records if record.rule == rule), None)


def as_previewed(terms: TtlTerms, records: Sequence[TtlRecord]) -> TtlTerms:
    """An enforcement right after a preview removes what that showed: it has its cutoff. Later ones go by the clock. The earlier
    of both cutoffs counts: a preview may have gone by a clock that was ahead, or by a write that was rolled back since.

    Raises BadRequestError if nobody has seen what this rule removes.
    """
    last = newest(records, terms.rule)
    if last is None:
        raise _never_previewed(terms, records)
    if not last.dry_run or terms.cutoff_ms is None or last.cutoff_ms is None:
        return terms
    if last.cutoff_ms > terms.cutoff_ms:
        return replace(terms, previewed_by=last.run_id)
    seen = (last.snapshot_before, last.counts)
    return replace(terms, cutoff_ms=last.cutoff_ms, previewed_by=last.run_id, previewed=seen)


def _never_previewed(terms: TtlTerms, records: Sequence[TtlRecord]) -> BadRequestError:
    rule, table = terms.rule, quote(str(terms.table))
    preview = f"`neve ttl {table}`" if terms.branch == MAIN else f"`neve ttl {table} --branch {quote(terms.branch)}`"
    hint = f"Preview it first with the same limit and column: {preview}."
    why = "it was never previewed"
    before = next((record.rule for record in records if record.rule.column == rule.column), None)
    if before is not None and before.field_id != rule.field_id:
        why += f" for this column: {rule.column} is now field {rule.field_id} and was field {before.field_id}"
        hint = f"Name the right column with --ttl-column, or preview this one: {preview}."
    return BadRequestError(f"Cannot enforce the limit of {terms.table}: {why}", hint=hint)
