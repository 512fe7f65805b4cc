"""Jobs as rows of `jobs` and back. The columns hold what queries ask for; the rest of a decision is one JSON document."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_

from neve.scheduling.job import ENDED_STATES, Decision, Job, JobState, Spent
from neve.scheduling.observation import LastRun
from neve.state import schema
from neve.state.statements import storable, storable_document

WAITING, CLAIMED = JobState.WAITING.value, JobState.CLAIMED.value
_SEPARATOR = "\n"
_COLUMNS = frozenset(schema.jobs.c.keys())
_IN_DOCUMENT = frozenset(Decision.model_fields) - _COLUMNS - {"table"}
_AS_THEY_ARE = tuple(name for name in Job.model_fields if name in _COLUMNS and name != "scopes")
_DECIDED = tuple(name for name in Decision.model_fields if name in _AS_THEY_ARE)
DECISION_COLUMNS = frozenset({*_DECIDED, "table_name", "scopes", "decision"})
"""The columns that a decision fills."""


def decision_row(decision: Decision) -> dict[str, Any]:
    """The columns that a decision fills."""
    return {
        **{name: getattr(decision, name) for name in _DECIDED},
        "table_name": decision.table,
        "scopes": _SEPARATOR.join(_scopes(decision)),
        "decision": storable_document(decision.model_dump(mode="json", include=set(_IN_DOCUMENT))),
    }


def _scopes(decision: Decision) -> tuple[str, ...]:
    owns = {"policy": decision.policy, "team": decision.owner}
    return decision.scopes or tuple(f"{kind} {name}" for kind, name in owns.items() if name)


def scopes_of(column: str) -> tuple[str, ...]:
    """The scopes in a row's column."""
    return tuple(column.split(_SEPARATOR)) if column else ()


def job(row: Any) -> Job:
    """The job in a row; what a newer release added to its document is left out."""
    values = {name: getattr(row, name) for name in _AS_THEY_ARE}
    document = {name: value for name, value in row.decision.items() if name in _IN_DOCUMENT}
    document |= {"table": row.table_name, "scopes": scopes_of(row.scopes)}
    return Job.model_validate({"reason": "", **values, **document}, extra="ignore")


def last_run(row: Any) -> LastRun:
    """The last run in a row of `table_operations`."""
    return LastRun.model_validate({name: getattr(row, name) for name in LastRun.model_fields}, extra="ignore")


def spent_document(spent: Spent | None) -> dict[str, Any] | None:
    """What a run used, as it is stored."""
    return None if spent is None else spent.model_dump(mode="json")


def end_values(state: JobState, *, outcome: str, message: str, now: int) -> dict[str, Any]:
    """The columns that change when a job ends."""
    values = {"state": state.value, "outcome": outcome[:32], "message": storable(message), "finished_ms": now}
    return {**values, "until_ms": None}


def ended_before(before_ms: int) -> ColumnElement[bool]:
    """Jobs that ended before a moment: those that may be forgotten."""
    states = [state.value for state in ENDED_STATES]
    return and_(schema.jobs.c.state.in_(states), schema.jobs.c.finished_ms < before_ms)
