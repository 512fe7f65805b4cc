"""Which runs are recorded: a record has the id of its run only if the state store has the run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.context.connection import Connection
from neve.context.table import TableContext
from neve.maintenance.manifests import ManifestsRecord
from neve.maintenance.record import Operation
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings


def record(**changes: Any) -> ManifestsRecord:
    known = {"run_id": "a", "table": "l.db.t", "table_uuid": "u", "operation": Operation.MANIFESTS, "outcome": RunOutcome.DONE}
    return ManifestsRecord(**known | {"started_ms": 0, "finished_ms": 900} | changes)


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    loaded = load_settings(environ={}, flags={"state.url": f"sqlite:///{tmp_path}/state.db"})
    return TableContext(Connection(loaded, {}, None, environ={}, clock=SimpleNamespace(now_ms=lambda: 0)), "db.t")


@pytest.mark.parametrize("changes", [{}, {"outcome": RunOutcome.FAILED}, {"outcome": RunOutcome.NOTHING_TO_DO, "set_aside": 2}])
def test_a_run_that_leaves_traces_is_recorded_under_its_id(context: TableContext, changes: dict[str, Any]) -> None:
    with context:
        assert context.recorded(record(**changes)).recorded_id == "a"
        assert [run.run_id for run in context.store.runs()] == ["a"]


def test_a_run_that_had_nothing_to_do_is_not_recorded_and_has_no_id(context: TableContext) -> None:
    with context:
        kept = context.recorded(record(outcome=RunOutcome.NOTHING_TO_DO))
        assert kept.run_id is None
        assert context.store.runs() == ()
    with pytest.raises(ValueError, match=r"the run over l\.db\.t is not recorded"):
        _ = kept.recorded_id
