"""`neve history`: the health of tables over time, and what runs did, gained and cost. Asks the state store alone."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command

_RUNS = 20


@command
def history(
    call: Call,
    table: Annotated[
        str, typer.Argument(metavar="TABLE|PATTERN", help="A table, or a pattern over full names such as 'lake.sales.*'.")
    ],
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, metavar="N", help="The last so many days.")] = 30,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The newest so many runs.")] = _RUNS,
) -> None:
    """Show how healthy tables were over time, and what runs did, gained and cost.

    Tables that no longer exist have a history as well. Health is recorded by the inspections of `neve serve`.
    """
    from neve.context import runs
    from neve.context.connection import SystemClock
    from neve.render.history import history_text
    from neve.state import StateStore

    clock = SystemClock()
    with StateStore.open_existing(call.loaded.settings.state.database.reveal(os.environ)) or nullcontext() as store:
        found = runs.history(store, clock, table, days=days, limit=limit)
    if call.wants_json:
        sys.stdout.write(json.dumps(_document(found, runs.since_ms(clock, days))) + "\n")
    else:
        call.stdout.print(history_text(found, wanted=table, days=days))


def _document(found: Any, since_ms: int) -> dict[str, Any]:
    """Without the records of runs, which may be long: `neve runs show` has them."""
    from neve.render.history import run_figures

    tables = [
        {
            "table": one.table,
            "health": [entry.model_dump(mode="json", exclude={"table"}) for entry in one.health],
            "totals": asdict(one.totals),
        }
        for one in found.tables
    ]
    return {"schema_version": 1, "since_ms": since_ms, "tables": tables, "runs": [run_figures(run) for run in found.runs]}
