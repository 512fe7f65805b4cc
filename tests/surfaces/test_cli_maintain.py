"""`neve maintain`: what is asked for, how the report reads, exit codes, and a dry run that starts no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.context.connection import Connection
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.maintenance.steps import MaintainRecord, Step, StepOutcome, StepRecord
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.run_records import RUN_ID

STEPS = (
    StepRecord(step=Step.TAGS, outcome=StepOutcome.NOT_DUE, why="auto-tags is not set"),
    StepRecord(
        step=Step.EXPIRE,
        outcome=StepOutcome.DONE,
        why="7 snapshots",
        told="Expired 7 snapshots in 2 s",
        run_id="ab" * 16,
    ),
    StepRecord(
        step=Step.TTL,
        outcome=StepOutcome.NOTHING,
        why="90 days",
        told="Nothing to do: no row is past",
        run_id="c" * 32,
    ),
    StepRecord(step=Step.ORPHANS, outcome=StepOutcome.FAILED, why="nobody has looked yet", told="Cannot tell orphans"),
)
RECORD = MaintainRecord(
    run_id=RUN_ID,
    table="local.db.events",
    table_uuid="u",
    operation=Operation.MAINTAIN,
    outcome=RunOutcome.PARTLY_DONE,
    started_ms=NOW_MS,
    finished_ms=NOW_MS + 2400,
    steps=STEPS,
    health_before=41,
    health_after=96,
)
PAGE = [
    "local.db.events",
    "Did 1 step in 2.4 s; 1 step not or not wholly; health 41 → 96 of 100",
    "",
    "  tags     not due        auto-tags is not set",
    "  expire   done           Expired 7 snapshots in 2 s (run abababab)",
    "  ttl      nothing to do  no row is past",
    "  orphans  failed         Cannot tell orphans",
    "",
    f"  run {RUN_ID}, started 2025-06-15 15:06:40 UTC",
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    found: list[Any] = []

    def arm(**changes: Any) -> list[Any]:
        def answer(_: Neve, *args: str, progress: Any = None, **words: Any) -> MaintainRecord:  # noqa: ARG001
            found.append((*args, words))
            return RECORD.model_copy(update=changes)

        monkeypatch.setattr(Neve, "maintain", answer)
        return found

    return arm


def test_the_report_has_a_line_for_each_step(neve: Any, warehouse: Path, asked: Any) -> None:
    asked()
    result = neve("maintain", "db.events", "--warehouse", str(warehouse))
    assert result.exit_code == 3
    assert result.stdout.splitlines()[: len(PAGE)] == PAGE
    assert f"  neve quarantine list local.db.events --warehouse {warehouse}" in result.stdout.splitlines()


def test_the_quarantine_is_not_shown_after_steps_that_put_no_file_into_it(neve: Any, warehouse: Path, asked: Any) -> None:
    compacted = StepRecord(step=Step.COMPACT, outcome=StepOutcome.DONE, why="", told="Compacted 11 files into 2 in 5 s")
    asked(outcome=RunOutcome.DONE, steps=(compacted,))
    result = neve("maintain", "db.events", "--warehouse", str(warehouse))
    assert [line for line in result.stdout.splitlines() if line.startswith("  neve ")] == [
        f"  neve inspect local.db.events --warehouse {warehouse}"
    ]


def test_where_nothing_is_due_the_headline_names_the_next_step_and_its_moment(neve: Any, warehouse: Path, asked: Any) -> None:
    rules = (
        NotDue(rule="purge", what="age", knob="trash-keep", due_ms=NOW_MS),
        NotDue(rule="compact", what="files", measured=1, threshold=5, more=4, due_ms=1),
    )
    asked(outcome=RunOutcome.NOTHING_TO_DO, not_due=rules, dry_run=True, steps=())
    lines = neve("maintain", "db.events", "--dry-run", "--warehouse", str(warehouse)).stdout.splitlines()
    assert lines[1] == "Nothing to do: no step is due; next is purge, at 2025-06-15 15:06:40 UTC"
    asked(outcome=RunOutcome.NOTHING_TO_DO, not_due=rules[1:], steps=())
    lines = neve("maintain", "db.events", "--warehouse", str(warehouse)).stdout.splitlines()
    assert lines[1] == "Nothing to do: no step is due, or found anything"


@pytest.mark.parametrize(("outcome", "code"), [("done", 0), ("nothing-to-do", 0), ("partly-done", 3), ("failed", 1)])
def test_the_outcome_is_the_exit_code_and_json_has_the_record(
    neve: Any, warehouse: Path, asked: Any, outcome: str, code: int
) -> None:
    asked(outcome=RunOutcome(outcome))
    result = neve("maintain", "db.events", "--warehouse", str(warehouse), "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told.pop("schema_version")) == (code, 1)
    assert MaintainRecord.model_validate(told) == RECORD.model_copy(update={"outcome": RunOutcome(outcome)})


def test_steps_are_named_with_commas_or_one_after_another(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(outcome=RunOutcome.DONE)
    neve("maintain", "db.events", "--warehouse", str(warehouse), "--only", "expire, settle", "--only", "purge", "--dry-run")
    assert found == [("db.events", {"only": ("expire", "settle", "purge"), "skip": (), "dry_run": True})]


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked()
    assert package.maintain("db.events", skip=["orphans"], warehouse=warehouse) == RECORD
    assert found == [("db.events", {"only": (), "skip": ("orphans",), "dry_run": False})]


def test_an_unknown_step_is_refused(neve: Any, warehouse: Path) -> None:
    result = neve("maintain", "db.v1", "--warehouse", str(warehouse), "--only", "vacuum")
    assert result.exit_code == 2
    assert "Cannot find step 'vacuum'" in result.stderr


def test_a_dry_run_tells_every_step_and_starts_no_spark(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    state = f"state.url=sqlite:///{tmp_path}/state.db"
    result = neve("maintain", "db.v1", "--warehouse", str(warehouse), "--dry-run", "--json", "--set", state)
    steps = {step["step"]: (step["outcome"], step["why"]) for step in json.loads(result.stdout)["steps"]}
    assert list(steps) == list(Step)
    assert steps["tags"] == ("not due", "auto-tags is not set, due once it is set")
    assert steps["ttl"] == ("not due", "ttl is not set, due once it is set")
    assert steps["orphans"] == ("due", "never searched yet")
    assert steps["purge"] == ("not due", "no file is in the trash, due once there is one")
    expiry = next(step for step in json.loads(result.stdout)["steps"] if step["step"] == "expire")["not_due"]
    assert [(rule["knob"], rule["threshold"]) for rule in expiry] == [("snapshot-keep", 604_800)]
    assert all(step["not_due"] for step in json.loads(result.stdout)["steps"] if step["outcome"] == "not due")
    assert not (tmp_path / "state.db").exists()


def test_a_run_of_the_past_is_shown_as_it_was_told(neve: Any, warehouse: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", "maintain", NOW_MS))
        document = RECORD.model_dump(mode="json")
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="partly-done", record=document)
    shown = neve("runs", "show", RUN_ID[:8], "--warehouse", str(warehouse), "--set", f"state.url={url}")
    assert shown.stdout.splitlines() == PAGE
    listed = neve("runs", "--warehouse", str(warehouse), "--set", f"state.url={url}")
    assert "partly done, 1 " in listed.stdout
