"""`neve demo`: a warehouse from nothing, again and again, and never in somebody else's directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neve.cli.demo_directory import MARKER, DemoDirectory
from neve.errors import BadRequestError, EnvironmentFaultError
from neve.health.inspection import Inspection
from neve.samples import SAMPLES, Sample, Target


@pytest.fixture
def two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two of the samples: the demo's own work is the same for each."""
    for name in [name for name in SAMPLES if name not in ("v1", "floats")]:
        monkeypatch.delitem(SAMPLES, name)


@pytest.mark.usefixtures("two_samples")
def test_the_demo_shows_the_sickest_table_then_all_then_what_to_type_next(neve: Any, fresh_machine: Path) -> None:
    result = neve("demo", "--no-spark")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "local.db.v1"
    ranking = lines.index("All sample tables in demo-warehouse, the sickest first")
    assert [line.split()[0] for line in lines[ranking + 1 : ranking + 4]] == ["table", "local.db.v1", "local.db.floats"]
    assert "  neve inspect local.db.v1 --html table.html --warehouse demo-warehouse" in lines
    assert "Wrote db.v1 in " in result.stderr
    assert (fresh_machine / "demo-warehouse" / MARKER).is_file()


@pytest.mark.usefixtures("two_samples")
def test_a_second_run_starts_afresh_and_keep_reuses(neve: Any) -> None:
    def uuids(*args: str) -> set[str]:
        result = neve("demo", "--no-spark", "--json", *args)
        assert (result.exit_code, result.stderr) == (0, "")
        return {Inspection.model_validate(look).uuid for look in json.loads(result.stdout)["inspections"]}

    first = uuids()
    assert len(first) == 2
    assert uuids("--keep") == first
    assert uuids().isdisjoint(first)


@pytest.mark.usefixtures("two_samples")
def test_the_demo_and_what_it_offers_next_run_as_they_are_shown(neve: Any, fresh_machine: Path) -> None:
    """These two samples need no Spark. `scripts/wheel` runs the demo with all of them, and its compactions."""
    for command in ("demo", "demo --warehouse other", "demo --warehouse other --keep"):
        result = neve(*command.split())
        assert result.exit_code == 0, result.stderr
        place = "demo-warehouse" if command == "demo" else "other"
        steps = [line.strip() for line in result.stdout.partition("\nTry next\n")[2].splitlines()]
        assert steps == [
            f"neve inspect local.db.v1 --html table.html --warehouse {place}",
            f"neve plan local.db.v1 --warehouse {place}",
            f"neve compact local.db.v1 --warehouse {place}",
            f"neve runs --warehouse {place}",
            f"neve doctor --warehouse {place}",
        ]
    for step in steps:
        taken = neve(*step.split()[1:], *(["--dry-run"] if " compact " in step else []))
        assert taken.exit_code == 0, f"{step}\n{taken.stderr}"
    assert (fresh_machine / "table.html").is_file()


@pytest.mark.usefixtures("two_samples")
def test_a_sample_that_cannot_be_written_leaves_the_rest_and_exit_code_3(neve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Target, name: str, *, seed: int, scale: float) -> None:  # noqa: ARG001
        raise EnvironmentFaultError("Cannot start Spark: no Java", hint="Install one.")

    monkeypatch.setitem(SAMPLES, "broken", Sample("broken", "never works", fail))
    result = neve("demo", "--no-spark")
    assert result.exit_code == 3
    assert "Not written: broken. Cannot start Spark: no Java (Install one.)" in result.stdout
    assert "local.db.floats" in result.stdout


def test_a_directory_with_something_else_in_it_is_left_alone(neve: Any, fresh_machine: Path) -> None:
    (fresh_machine / "precious").mkdir()
    (fresh_machine / "precious" / "thesis.txt").write_text("the only copy")
    result = neve("demo", "--no-spark", "--warehouse", "precious")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: Cannot use precious for the demo: it exists and is not a demo warehouse\n"
        "Hint: Name a directory that is new or empty: `neve demo --warehouse DIR`.\n"
    )
    assert (fresh_machine / "precious" / "thesis.txt").read_text() == "the only copy"


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadRequestError, match="it exists and is not a demo warehouse"):
        DemoDirectory(tmp_path / "file").start_afresh()


def test_an_object_store_is_no_place_for_the_demo(neve: Any) -> None:
    result = neve("demo", "--warehouse", "s3://bucket/demo")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Cannot write the demo to s3://bucket/demo: only a local directory will do\n")


def test_emptying_removes_links_and_not_what_they_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    directory = DemoDirectory(tmp_path / "demo")
    directory.start_afresh()
    (directory.path / "link").symlink_to(outside)
    (directory.path / "db").mkdir()
    (directory.path / "db" / "file").write_text("x")
    directory.start_afresh()
    assert [entry.name for entry in directory.path.iterdir()] == [MARKER]
    assert (outside / "kept").exists()


def test_an_empty_directory_may_be_used_and_a_half_written_marker_counts_as_unfinished(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    directory = DemoDirectory(tmp_path / "empty")
    directory.start_afresh()
    directory.mark(["v1"])
    assert directory.finished() == {"v1"}
    (tmp_path / "empty" / MARKER).write_text('{"finished": ')
    assert directory.finished() == frozenset()
