"""`neve inspect` and `neve tables` on a real warehouse."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from neve.health.inspection import Inspection


def test_text_goes_to_stdout(neve: Any, warehouse: Path) -> None:
    result = neve("inspect", "db.v1", "--warehouse", str(warehouse))
    assert result.exit_code == 0
    assert "Health " not in result.stderr
    assert result.stdout.splitlines()[0] == "local.db.v1"
    assert "Iceberg v1 · " in result.stdout
    assert "Health " in result.stdout


def test_json_is_an_inspection(neve: Any, warehouse: Path) -> None:
    result = neve("inspect", "db.v1", "--warehouse", str(warehouse), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    inspection = Inspection.model_validate_json(result.stdout)
    assert (inspection.schema_version, inspection.table, inspection.format_version) == (1, "local.db.v1", 1)
    assert inspection.data_files == 36
    assert inspection.model_dump(mode="json") == json.loads(result.stdout)


def test_options_may_stand_before_the_command_and_the_later_one_wins(neve: Any, warehouse: Path) -> None:
    result = neve("--json", "--warehouse", "/nowhere", "inspect", "db.v1", "--warehouse", str(warehouse))
    assert Inspection.model_validate_json(result.stdout).table == "local.db.v1"


def test_a_knob_is_a_flag_and_beats_set(neve: Any, warehouse: Path) -> None:
    args = ("inspect", "db.v1", "--warehouse", str(warehouse), "--json", "--set", "policy.target-file-size=1MB")
    assert json.loads(neve(*args).stdout)["target_file_size_bytes"] == 1 << 20
    assert json.loads(neve(*args, "--target-file-size", "2 MB").stdout)["target_file_size_bytes"] == 2 << 20


def test_depth_decides_how_much_is_told(neve: Any, warehouse: Path) -> None:
    args = ("inspect", "db.v1", "--warehouse", str(warehouse), "--depth", "summary")
    assert json.loads(neve(*args, "--json").stdout)["histogram"] is None
    assert "depth summary" in neve(*args).stdout


@pytest.mark.parametrize("sample", [("--sample",), ("--sample", "5")])
def test_a_sample_reads_footers_with_or_without_a_number(neve: Any, warehouse: Path, sample: tuple[str, ...]) -> None:
    args = ("db.floats", "--warehouse", str(warehouse), "--json")
    assert json.loads(neve("inspect", *args).stdout)["row_groups"]["source"] == "split-offsets"
    assert json.loads(neve("inspect", *sample, *args).stdout)["row_groups"]["source"] in ("footers", "mixed")


def test_the_page_is_written_beside_the_text(neve: Any, warehouse: Path, fresh_machine: Path) -> None:
    result = neve("inspect", "db.v1", "--warehouse", str(warehouse), "--html", "v1.html")
    assert result.stdout.startswith("local.db.v1\n")
    page = (fresh_machine / "v1.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "local.db.v1" in page


def test_a_page_that_cannot_be_written_is_an_error(neve: Any, warehouse: Path) -> None:
    result = neve("inspect", "db.v1", "--warehouse", str(warehouse), "--html", "missing/v1.html")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Cannot write page missing/v1.html: No such file or directory\n")
    assert result.stdout == ""


@pytest.fixture(scope="session")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table whose layout is asked for and not kept."""
    from neve.api import Neve
    from neve.samples import SAMPLES
    from neve.settings import load_settings

    path = tmp_path_factory.mktemp("scattered")
    with (
        Neve.open(load_settings(environ={}), warehouse=str(path), create_warehouse=True) as neve,
        neve.demo_target("db") as target,
    ):
        SAMPLES["scattered"].build(target, scale=0.2)
    return path


def clustering(neve: Any, *args: str) -> Any:
    result = neve("inspect", "db.scattered", *args, "--json")
    assert result.exit_code == 0, result.stdout
    return Inspection.model_validate_json(result.stdout).clustering


def test_a_table_with_a_layout_is_shown_with_its_depth_and_what_queries_read(neve: Any, scattered: Path) -> None:
    found = clustering(neve, "--warehouse", str(scattered))
    assert found.layout == "hilbert(city, amount)"
    assert [column.name for column in found.columns] == ["city", "amount"]
    assert (found.columns[0].depth, found.columns[0].point_read, found.worst_depth) == (64, 1, 64)
    assert all(column.point_read_after < column.point_read for column in found.columns)
    assert found.run_files > 60
    text = neve("inspect", "db.scattered", "--warehouse", str(scattered)).stdout
    assert "Clustering by hilbert(city, amount)" in text


def test_any_columns_can_be_asked_about(neve: Any, scattered: Path) -> None:
    found = clustering(neve, "--warehouse", str(scattered), "--by", "id")
    assert (found.layout, found.depth, found.run_files) == ("sort(id asc nulls-first)", 1, 0)


def test_a_look_that_is_not_deep_enough_says_nothing_of_clustering(neve: Any, scattered: Path) -> None:
    assert clustering(neve, "--warehouse", str(scattered), "--depth", "manifests") is None


@pytest.mark.parametrize("option", [("--by", "id"), ("--sample", "5")])
@pytest.mark.parametrize("depth", ["summary", "manifests"])
def test_an_option_that_a_depth_cannot_honor_is_refused(
    neve: Any, scattered: Path, depth: str, option: tuple[str, str]
) -> None:
    result = neve("inspect", "db.scattered", "--warehouse", str(scattered), "--depth", depth, *option)
    assert result.exit_code == 2
    assert f"Cannot use {option[0]} at depth {depth}: files are not read" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("by", "message", "hint"),
    [
        ("ammount", "Cannot lay local.db.scattered out by ammount: it has no such column of single values", "mean amount?"),
        ("city,", "Cannot cluster by 'city,': '' is not a column", "Write columns, such as"),
    ],
)
def test_columns_that_the_table_does_not_have_are_a_bad_request(
    neve: Any, scattered: Path, by: str, message: str, hint: str
) -> None:
    result = neve("inspect", "db.scattered", "--warehouse", str(scattered), "--by", by)
    assert result.exit_code == 2
    assert message in result.stderr
    assert hint in result.stderr


def test_a_layout_of_the_table_that_is_out_of_date_costs_a_warning_and_not_the_look(neve: Any, scattered: Path) -> None:
    from neve.api import Neve
    from neve.settings import load_settings

    with Neve.open(load_settings(environ={}), warehouse=str(scattered)) as opened, opened.demo_target("db") as target:
        transaction = target.load("scattered").transaction()
        transaction.set_properties({"neve.cluster-by": "hilbert(city, dropped)"}).commit_transaction()
        result = neve("inspect", "db.scattered", "--warehouse", str(scattered), "--json")
        transaction = target.load("scattered").transaction()
        transaction.set_properties({"neve.cluster-by": "hilbert(city, amount)"}).commit_transaction()
    assert json.loads(result.stdout)["clustering"] is None
    assert "clustering is not looked at: Cannot lay local.db.scattered out by dropped" in result.stderr


def test_a_missing_table_is_a_bad_request(neve: Any, warehouse: Path) -> None:
    result = neve("inspect", "db.nothing", "--warehouse", str(warehouse), "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "table-not-found"
    assert "Traceback" not in result.stderr


def test_tables_lists_full_names_one_per_line(neve: Any, warehouse: Path) -> None:
    result = neve("tables", "--warehouse", str(warehouse))
    assert sorted(result.stdout.splitlines()) == ["local.db.floats", "local.db.v1"]
    assert neve("tables", "db", "--warehouse", str(warehouse)).stdout == result.stdout


def test_tables_as_json_have_their_parts(neve: Any, warehouse: Path) -> None:
    document = json.loads(neve("tables", "--warehouse", str(warehouse), "--json").stdout)
    assert document["schema_version"] == 1
    assert {"table": "local.db.v1", "catalog": "local", "namespace": ["db"], "name": "v1"} in document["tables"]


@pytest.mark.parametrize(
    ("env", "colours"), [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({}, False)]
)
def test_colour_is_for_terminals_and_for_those_who_want_it(
    spawn: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], colours: bool
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    stdout, _ = spawn("inspect", "db.v1", "--warehouse", str(warehouse)).communicate(timeout=60)
    assert ("\x1b[3" in stdout) is colours


def test_no_java_is_started_and_no_spark_loaded(warehouse: Path) -> None:
    import sys

    program = f"""
import sys
sys.argv = ["neve", "inspect", "db.v1", "--json", "--warehouse", {str(warehouse)!r}]
from neve.cli import main
try:
    main()
finally:
    sys.stderr.write(str("pyspark" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "False"


def test_an_ascii_terminal_is_served(spawn: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = spawn("inspect", "db.v1", "--warehouse", str(warehouse))
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Error" not in stderr
    assert stdout.isascii()
    assert "####" in stdout


@pytest.fixture
def branched(tmp_path: Path) -> Path:
    """A warehouse with a table whose branch is at its first snapshot."""
    from neve.api import Neve
    from neve.samples import SAMPLES
    from neve.settings import load_settings

    path = tmp_path / "lake"
    with (
        Neve.open(load_settings(environ={}), warehouse=str(path), create_warehouse=True) as neve,
        neve.demo_target("db") as target,
    ):
        SAMPLES["floats"].build(target, scale=0.2)
        table = target.load("floats")
        table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "audit").commit()
    return path


def test_a_branch_is_looked_at_by_its_own_head(neve: Any, branched: Path) -> None:
    look = ("inspect", "db.floats", "--warehouse", str(branched))
    main, audit = (Inspection.model_validate_json(neve(*look, "--json", "--branch", name).stdout) for name in ("main", "audit"))
    assert (main.branch, audit.branch) == ("main", "audit")
    assert (audit.data_files or 0) < (main.data_files or 0)
    assert neve(*look, "--branch", "audit").stdout.splitlines()[0] == "local.db.floats, branch audit"
    refused = neve(*look, "--branch", "nothing")
    assert refused.exit_code == 2
    assert "Cannot find branch nothing: the table has audit, main" in refused.stderr
