"""A table that another process holds: every operation that would take its lease is refused before it starts Spark."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.commit.lease_terms import LEASE_MS
from neve.context.connection import Connection
from neve.context.table import TableContext
from neve.errors import LeaseHeldError
from neve.maintenance.quarantine import Candidate
from neve.operations import registry
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.planner import Request
from neve.settings import load_settings
from neve.state import StateStore
from tests.builders.stored_runs import make_record

TABLE = "db.floats"
HELD = r"^Cannot take local\.db\.floats: run theirs-0 \(otherhost:77\) is at work on it; its lease is valid until \d{4}-.* UTC$"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A state store of this test's own; Spark cannot be started."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    monkeypatch.setenv("NEVE_STATE__URL", url)
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    return url


@pytest.fixture
def opened(url: str, warehouse: Path) -> Iterator[Neve]:
    """The warehouse, with an interrupted run, a run to roll back and a file to restore, while another host holds the table."""
    now = int(time.time() * 1000)
    with Neve.open(load_settings(), warehouse=str(warehouse)) as neve:
        plan = neve.plan(TABLE, request=Request(force=True))
        group = JournaledGroup(group_id=0, output_prefix="/wh/neve-x")
        with StateStore.open(url) as store:
            run = JournaledRun(run_id="begun", owner="otherhost:1", started_ms=1, plan=plan, groups=(group,))
            store.begin(run)
            store.keep_run(
                make_record(run_id="ended", table_uuid=plan.table_uuid).model_copy(update={"table": f"local.{TABLE}"}), []
            )
            store.record_candidates(plan.table_uuid, "doomed", [Candidate(path="/wh/x", reason="test")], now)
            store.take_lease(plan.table_uuid, run_id="theirs-0123", owner="otherhost:77", now_ms=now, lease_ms=LEASE_MS)
        yield neve


OPERATIONS: dict[str, Callable[[Neve], Any]] = {
    "compact": lambda neve: neve.compact(TABLE, request=Request(force=True)),
    "compact where": lambda neve: neve.compact(TABLE, request=Request(where="id > 1")),
    "cluster": lambda neve: neve.cluster(TABLE, "id", request=Request()),
    "commit": lambda neve: neve.commit(neve.plan(TABLE, request=Request(force=True)), []),
    "resume": lambda neve: neve.resume(neve.unfinished()[0].run_id),
    "resume --dry-run": lambda neve: neve.resume(neve.unfinished()[0].run_id, dry_run=True),
    "rollback": lambda neve: neve.roll_back("ended"),
    "rollback --dry-run": lambda neve: neve.roll_back("ended", dry_run=True),
    "deletes": lambda neve: neve.deletes(TABLE, "prune"),
    "expire": lambda neve: neve.expire(TABLE),
    "manifests": lambda neve: neve.manifests(TABLE),
    "stats": lambda neve: neve.stats(TABLE),
    "tags": lambda neve: neve.tags(TABLE),
    "maintain": lambda neve: neve.maintain(TABLE),
    "ttl": lambda neve: neve.ttl(TABLE, enforce=True),
    "orphans": lambda neve: neve.orphans(TABLE),
    "settle": lambda neve: neve.settle(TABLE),
    "purge": lambda neve: neve.purge(TABLE),
    "restore": lambda neve: neve.restore("doomed", table=TABLE),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_a_held_table_is_refused_before_spark_is_started(
    operation: str, opened: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    if operation == "tags":
        monkeypatch.setattr(TableContext, "policy", lambda *_: load_settings().policy({"neve.auto-tags": "daily 7"})[0])
    with pytest.raises(LeaseHeldError, match=HELD):
        OPERATIONS[operation](opened)


def test_every_operation_is_tried_on_a_held_table() -> None:
    tried = {name.split()[0] for name in OPERATIONS}
    assert registry.OPERATIONS.keys() - tried == {"prevent"}  # it changes properties in one step, and takes no lease


def test_the_command_line_names_the_holder_immediately(neve: Any, opened: Neve, warehouse: Path) -> None:
    assert opened.unfinished()
    result = neve("compact", TABLE, "--force", "--warehouse", str(warehouse))
    assert result.exit_code == 1
    assert "run theirs-0 (otherhost:77) is at work on it" in result.stderr


def test_every_module_that_takes_a_lease_is_called_by_one_that_checks_it_first() -> None:
    """A new operation that takes a lease belongs into OPERATIONS."""
    root = Path(str(package.__file__)).parent
    takers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("leased", "leased_run")
    }
    assert takers == {
        "operations/delete_files.py",
        "operations/results.py",
        "operations/resume.py",
        "operations/rollback.py",
        "operations/rewrite_run.py",
        "commit/takeover.py",
        "operations/tags.py",
        "operations/ttl.py",
        "operations/expire_snapshots.py",
        "operations/quarantine_moves.py",  # settle, purge, restore
        "operations/remove_orphans.py",
        "operations/rewrite_manifests.py",
        "operations/statistics.py",
    }
