"""`neve compact` and `neve runs`: once for real, and every way in which a run can end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.api import Neve
from neve.context.connection import Connection
from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.samples import SAMPLES
from neve.settings import load_settings
from tests.builders.run_records import RUN_ID, make_empty_record, make_group, make_record, make_whole_record


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the next run end in a given way, without Spark."""

    def end(record: RunRecord) -> None:
        monkeypatch.setattr(Neve, "compact", lambda *_, **__: make_whole_record(record))

    return end


def test_a_run_that_is_done_is_told_with_what_to_type_next(neve: Any, warehouse: Path, ended: Any) -> None:
    ended(make_record())
    result = neve("compact", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1] == "Compacted 250 files into 5 in 2.4 s; every row accounted for (10,000 rows)"
    assert lines[-3:] == [
        "Next",
        f"  neve inspect local.db.events --warehouse {warehouse}",
        f"  neve runs show 3f9c0a1b --warehouse {warehouse}",
    ]


@pytest.mark.parametrize(("outcome", "code"), [(RunOutcome.DONE, 0), (RunOutcome.PARTLY_DONE, 3), (RunOutcome.FAILED, 1)])
def test_the_outcome_is_the_exit_code_and_json_is_printed_all_the_same(
    neve: Any, warehouse: Path, ended: Any, outcome: RunOutcome, code: int
) -> None:
    lost = make_group(1, state=GroupState.DROPPED, reason="a delete landed", snapshot_id=None)
    ended(make_record(make_group(0), lost, outcome=outcome))
    result = neve("compact", "db.floats", "--warehouse", str(warehouse), "--json")
    assert (result.exit_code, result.stderr) == (code, "")
    assert RunRecord.model_validate_json(result.stdout).outcome is outcome


def test_what_was_not_done_can_be_tried_again(neve: Any, warehouse: Path, ended: Any) -> None:
    ended(make_record(make_group(0, state=GroupState.FAILED, reason="disk full"), outcome=RunOutcome.FAILED))
    lines = neve("compact", "db.floats", "--warehouse", str(warehouse)).stdout.splitlines()
    assert "  group 0  failed  disk full" in lines
    assert lines[lines.index("Next") + 1] == f"  neve compact db.floats --warehouse {warehouse}"


def test_nothing_to_do_is_a_success(neve: Any, warehouse: Path, ended: Any) -> None:
    ended(make_empty_record())
    result = neve("compact", "db.floats", "--warehouse", str(warehouse))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "Nothing to do: the table has no data"


def test_a_plan_without_groups_starts_no_spark_and_says_why(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    result = neve("compact", "db.floats", "--warehouse", str(warehouse), "--min-input-files", "6", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["outcome"] == "nothing-to-do"
    assert document["empty_reason"] == "fewer small files than min-input-files (6)"
    assert (document["stats"]["files_before"], document["stats"]["files_after"]) == (5, 5)


def test_a_dry_run_is_the_plan(neve: Any, warehouse: Path) -> None:
    def shown(*args: str) -> Any:
        document = json.loads(neve(*args, "db.floats", "--warehouse", str(warehouse), "--tier", "major", "--json").stdout)
        return {**document, "planned_at_ms": None}

    assert shown("compact", "--dry-run") == shown("plan")


def test_runs_of_a_machine_without_any(neve: Any, warehouse: Path) -> None:
    assert neve("runs").stdout == "No runs yet.\n"
    assert json.loads(neve("runs", "db.floats", "--warehouse", str(warehouse), "--json").stdout) == {
        "schema_version": 1,
        "runs": [],
    }
    result = neve("runs", "show", "3f9c")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: Cannot find run '3f9c': no run's id begins so\n"
        "Hint: `neve runs` lists them. Dry runs, and runs that had nothing to do, are not recorded.\n"
    )


@pytest.fixture
def stored(warehouse: Path) -> None:
    """Two runs in the state store: one over the table of floats, one over another."""
    from neve.state import StateStore

    loaded = load_settings()
    with Neve.open(loaded, warehouse=str(warehouse)) as neve:
        uuid = neve.inspect("db.floats").uuid
    with StateStore.open(loaded.settings.state.database.reveal({})) as store:
        store.keep_run(make_record(table="local.db.floats", table_uuid=uuid), [])
        store.keep_run(make_record(run_id="3f00" + "0" * 28, started_ms=1_700_000_000_000), [])


@pytest.mark.usefixtures("stored")
def test_runs_are_listed_newest_first_and_by_table(neve: Any, warehouse: Path) -> None:
    lines = neve("runs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "3f9c0a1b", "3f000000"]
    assert neve("runs", "list").stdout == neve("runs").stdout
    document = json.loads(neve("runs", "--json", "db.floats", "--warehouse", str(warehouse)).stdout)
    assert [(run["run_id"], run["table"], run["outcome"]) for run in document["runs"]] == [(RUN_ID, "local.db.floats", "done")]
    assert len(json.loads(neve("runs", "--limit", "1", "--json").stdout)["runs"]) == 1


@pytest.mark.usefixtures("stored")
def test_a_run_is_found_by_how_its_id_begins(neve: Any) -> None:
    lines = neve("runs", "show", "3f9").stdout.splitlines()
    assert lines[:2] == [
        "local.db.floats",
        "Compacted 250 files into 5 in 2.4 s; every row accounted for (10,000 rows)",
    ]
    assert f"  id        {RUN_ID}" in lines
    document = json.loads(neve("runs", "show", "--json", RUN_ID).stdout)
    assert document["run"]["files_compacted"] == 250
    assert neve("runs", "--json", "show", RUN_ID).stdout == neve("runs", "show", "--json", RUN_ID).stdout


@pytest.mark.usefixtures("stored")
def test_a_beginning_that_fits_two_runs_is_refused(neve: Any) -> None:
    result = neve("runs", "show", "3f")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: Cannot choose run '3f': 2 runs begin so ({RUN_ID}, 3f00")
    assert result.stderr.endswith("Hint: Write more of the id.\n")


@pytest.mark.spark
def test_a_table_is_compacted_for_real_and_remembered(neve: Any, spawn: Any, tmp_path: Path) -> None:
    import duckdb

    place = str(tmp_path / "warehouse")
    with Neve.open(load_settings(), warehouse=place, create_warehouse=True) as opened, opened.demo_target("db") as target:
        SAMPLES["v1"].build(target, scale=0.2)
        before = sorted(map(str, target.load("v1").scan().to_arrow().to_pylist()))
    process = spawn("compact", "db.v1", "--warehouse", place, "--force", "--json")  # Spark runs once in a process
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    record = RunRecord.model_validate_json(stdout)
    stats = record.stats
    assert stats is not None
    assert record.before is not None
    assert record.after is not None
    assert (record.outcome, set(record.kernels)) == (RunOutcome.DONE, {Kernel.ARROW})
    assert (stats.files_before, stats.files_compacted) == (36, 36)
    assert stats.files_after == stats.files_before - stats.files_removed == record.files_written < 10
    assert stats.bytes_saved == stats.bytes_before - stats.bytes_after
    assert record.after.health > record.before.health
    assert record.after.snapshot_id == record.snapshots[-1]
    assert record.used is not None
    requests, cpu = record.used.requests, record.used.cpu_seconds
    assert requests.uncounted == ("jvm",), "the tasks have counted theirs"
    assert requests.read is not None
    assert requests.read >= stats.files_before
    assert requests.write == record.files_written
    assert requests.catalog is not None
    assert min(cpu.python or 0, cpu.jvm or 0, cpu.workers or 0) > 0
    assert record.used.money is not None
    assert record.used.predicted_money is not None

    with Neve.open(load_settings(), warehouse=place) as opened, opened.demo_target("db") as target:
        table = target.load("v1")
        assert sorted(map(str, table.scan().to_arrow().to_pylist())) == before
        paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({paths!r})").fetchall() == [(len(before),)]

    assert neve("runs", "show", record.recorded_id[:6]).stdout.splitlines()[0] == "local.db.v1"
    shown = json.loads(neve("runs", "show", record.recorded_id, "--json").stdout)["run"]
    assert shown["used"] == json.loads(stdout)["used"]
    again = neve("compact", "db.v1", "--warehouse", place)
    assert again.exit_code == 0
    assert again.stdout.splitlines()[1].startswith("Nothing to do: ")


def test_the_time_of_a_command_is_that_of_the_command(
    neve: Any, warehouse: Path, ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neve.cli import call

    moments = iter((100.0, 127.1))
    monkeypatch.setattr(call, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    ended(make_record().model_copy(update={"elapsed_seconds": 25.5, "session_start_seconds": 14.2, "planning_seconds": 3.1}))
    result = neve("compact", "db.floats", "--warehouse", str(warehouse))
    line = "Compacted 250 files into 5 in 27.1 s (Spark start 14.2 s, planning 3.1 s); every row"
    assert " ".join(result.stdout.split()).partition(line)[1] == line, result.stdout
