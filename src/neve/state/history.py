"""What the store knows of tables over time: their health, their runs, and what these did and cost. Read by `neve history`.

Sums come from the view `v_runs`, which people query as well. Nothing here writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import ColumnElement, Engine, case, column, func, or_, select, table

from neve.state import schema
from neve.state.database import guarded
from neve.state.fleet import HealthEntry
from neve.state.rows import Run
from neve.state.statements import matches_glob

_RUN = [schema.runs.c[one.name] for one in fields(Run)]
_health = schema.health_history.c
_SUMMED = ("files_compacted", "files_written", "bytes_read", "bytes_written")
_CPU = ("python_cpu_seconds", "jvm_cpu_seconds", "workers_cpu_seconds")
_NAMES = ("table_name", "outcome", "started_ms", "finished_ms", "part_of_another", "prices", "money", *_SUMMED, *_CPU)
_v_runs = table("v_runs", *(column(name) for name in _NAMES))


@dataclass(frozen=True)
class RunTotals:
    """Sums over runs that have ended. What a step of another run used is counted with that run."""

    runs: int = 0
    """Without steps of other runs."""
    failed: int = 0
    files_compacted: int = 0
    files_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    cpu_seconds: float = 0.0
    """Of the runs whose CPU time was measured."""
    money: dict[str, float] = field(default_factory=dict)
    """By the version of the price sheet; of the runs whose money is known."""
    runs_without_money: int = 0


@dataclass(frozen=True)
class TableHistory:
    """What is known of one table since a moment."""

    table: str
    health: tuple[HealthEntry, ...] = ()
    """Oldest first; of several tables, only the first and the last of each."""
    totals: RunTotals = RunTotals()


@dataclass(frozen=True)
class History:
    """What is known of the tables that were asked for, by name, and their newest runs, newest first."""

    tables: tuple[TableHistory, ...]
    runs: tuple[Run, ...]


def read_history(engine: Engine, wanted: str, *, since_ms: int, runs: int) -> History:
    """Returns the history of the tables whose full name matches a glob, or is this name, with or without its catalog.

    `runs` is how many runs are returned at most.
    """
    names = _TableFilter(engine, wanted)
    with guarded(engine, "read"), engine.connect() as connection:
        totals = _totals(connection.execute(_totals_query(names, since_ms)).all())
        tables = set(connection.execute(select(_health.table_name).where(*_inspected(names, since_ms)).distinct()).scalars())
        entries = connection.execute(_health_query(names, since_ms, ends_only=len(tables | totals.keys()) > 1)).all()
        found = connection.execute(_runs_query(names, since_ms).limit(runs)).all()
    health: dict[str, list[HealthEntry]] = defaultdict(list)
    for row in entries:
        health[row.table_name].append(_health_entry(row))
    # A table whose only runs are still at work has no sums yet.
    everything = sorted(tables | totals.keys() | {row.table_name for row in found})
    histories = (TableHistory(name, tuple(health[name]), totals.get(name, RunTotals())) for name in everything)
    return History(tuple(histories), tuple(Run(**row._mapping) for row in found))


@dataclass(frozen=True)
class _TableFilter:
    engine: Engine
    wanted: str

    def matches(self, name: ColumnElement[Any]) -> ColumnElement[bool]:
        is_glob = any(sign in self.wanted for sign in "*?")
        patterns = [self.wanted] if is_glob else [self.wanted, f"*.{self.wanted}"]
        return or_(*(matches_glob(self.engine, name, pattern) for pattern in patterns))


def _inspected(names: _TableFilter, since_ms: int) -> tuple[ColumnElement[bool], ...]:
    return names.matches(_health.table_name), _health.inspected_ms >= since_ms


def _health_query(names: _TableFilter, since_ms: int, *, ends_only: bool) -> Any:
    by_table, moment, number = _health.table_name, _health.inspected_ms, func.row_number()
    first = number.over(partition_by=by_table, order_by=moment).label("first")
    last = number.over(partition_by=by_table, order_by=moment.desc()).label("last")
    ranked = select(schema.health_history, first, last).where(*_inspected(names, since_ms)).subquery()
    query = select(ranked).order_by(ranked.c.inspected_ms)
    return query.where(or_(ranked.c.first == 1, ranked.c.last == 1)) if ends_only else query


def _runs_query(names: _TableFilter, since_ms: int) -> Any:
    run = schema.runs.c
    recent = func.coalesce(run.finished_ms, run.started_ms) >= since_ms
    return select(*_RUN).where(names.matches(run.table_name), recent).order_by(run.started_ms.desc(), run.run_id)


def _totals_query(names: _TableFilter, since_ms: int) -> Any:
    c = _v_runs.c
    whole = c.part_of_another == 0
    cpu = c.python_cpu_seconds + c.jvm_cpu_seconds + c.workers_cpu_seconds
    sums = [func.sum(c[name]).label(name) for name in _SUMMED]
    counted = {"runs": whole, "failed": whole & (c.outcome == "failed"), "runs_without_money": whole & c.money.is_(None)}
    counts = [func.sum(case((condition, 1), else_=0)).label(name) for name, condition in counted.items()]
    used = [func.sum(case((whole, value))).label(name) for name, value in {"cpu_seconds": cpu, "money": c.money}.items()]
    query = select(c.table_name, c.prices, *sums, *counts, *used)
    return query.where(names.matches(c.table_name), c.finished_ms >= since_ms).group_by(c.table_name, c.prices)


def _totals(rows: Iterable[Any]) -> dict[str, RunTotals]:
    """One value for each table, whose runs may have had several price sheets."""
    by_table: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_table[row.table_name].append(row)
    integers = ("runs", "failed", "runs_without_money", *_SUMMED)
    return {
        name: RunTotals(
            **{each: sum(int(getattr(row, each) or 0) for row in some) for each in integers},
            cpu_seconds=sum(float(row.cpu_seconds or 0) for row in some),
            money={row.prices or "": float(row.money) for row in some if row.money is not None},
        )
        for name, some in by_table.items()
    }


def _health_entry(row: Any) -> HealthEntry:
    names = HealthEntry.model_fields.keys() - {"table"}
    return HealthEntry(table=row.table_name, **{name: getattr(row, name) for name in names})
