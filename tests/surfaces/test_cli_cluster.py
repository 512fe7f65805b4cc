"""`neve cluster`: what is asked for, what is refused, and a table that is clustered for real and goes on with its layout."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.errors import TableGoneError
from neve.operations import cluster
from neve.operations.requests import KINDS, ClusterRequest
from neve.rewrite.record import RunOutcome, RunRecord
from neve.settings import load_settings
from neve.table.layout import CLUSTER_BY, Layout, LayoutKind
from tests.builders.fake_tables import FakeTable, FakeWriter
from tests.builders.run_records import make_group, make_record, make_whole_record
from tests.builders.table_states import make_state


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked for; every run ends well, without Spark."""
    found: list[Any] = []

    def cluster(_: Neve, *args: str, progress: Any = None, **words: Any) -> RunRecord:  # noqa: ARG001
        found.append((*args, words))
        return make_whole_record(make_record())

    monkeypatch.setattr(Neve, "cluster", cluster)
    return found


def test_the_kinds_of_the_command_line_are_those_of_layouts() -> None:
    assert tuple(kind.value for kind in LayoutKind) == KINDS


def test_columns_kind_and_files_are_asked_for(neve: Any, warehouse: Path, asked: list[Any]) -> None:
    words = ["--by", "a, b", "--kind", "z-order", "--full", "--branch", "audit", "--verify", "content"]
    result = neve("cluster", "db.floats", *words, "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    [(table, said)] = asked
    assert (table, said["by"], said["kind"], said["verify"]) == ("db.floats", "a, b", "z-order", "content")
    assert (said["full"], said["branch"]) == (True, "audit")
    lines = result.stdout.splitlines()
    assert lines[-2:] == [
        f"  neve inspect local.db.events --warehouse {warehouse}",
        f"  neve runs show 3f9c0a1b --warehouse {warehouse}",
    ]


def test_the_api_asks_for_the_same(warehouse: Path, asked: list[Any]) -> None:
    package.python_api.cluster("db.floats", "a, b", kind="hilbert", full=True, warehouse=warehouse, verify="content")
    package.table("db.floats", warehouse=warehouse).partition("p=*").cluster()
    assert [(table, ClusterRequest(**said)) for table, said in asked] == [
        ("db.floats", ClusterRequest("a, b", kind="hilbert", full=True, verify="content")),
        ("db.floats", ClusterRequest(partitions=("p=*",))),
    ]


def test_a_run_that_fails_has_an_exit_code(neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = make_whole_record(make_record(make_group(0), outcome=RunOutcome.FAILED))
    monkeypatch.setattr(Neve, "cluster", lambda *_, **__: failed)
    assert neve("cluster", "db.floats", "--by", "x", "--warehouse", str(warehouse)).exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "nam"], "Cannot lay local.db.floats out by nam: it has no such column of single values"),
        (
            ["--by", "id desc, f"],
            "Cannot cluster by 'id desc, f': 'id desc, f' gives an order or a transform to columns of a curve",
        ),
        (["--by", "a, a"], "Cannot cluster by 'a, a': 'a, a' names a column twice"),
        (["--kind", "sort"], "Cannot cluster by sort: no columns were given"),
        ([], "Cannot cluster local.db.floats: it has neither neve.cluster-by nor a sort order"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_what_is_no_layout_of_the_table_is_refused_before_spark_starts(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str, dry: list[str]
) -> None:
    from neve.context.connection import Connection

    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    result = neve("cluster", "db.floats", *words, *dry, "--warehouse", str(warehouse))
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_dry_run_shows_the_plan_and_stores_nothing(neve: Any, warehouse: Path) -> None:
    result = neve("cluster", "db.v1", "--by", "country", "--full", "--dry-run", "--json", "--warehouse", str(warehouse))
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["kind"] == "cluster"
    assert (document["clustering"]["layout"], document["clustering"]["run_files"]) == ("sort(country asc nulls-first)", 36)
    assert document["policy"]["strategy"] == "dimensional"
    assert document["layout"]["fields"][0]["name"] == "country"
    assert {group["ordered"] for group in document["groups"]} == {True}
    with Neve.open(load_settings(), warehouse=str(warehouse)) as opened:
        assert CLUSTER_BY not in opened.table_properties("db.v1")


def test_a_run_without_work_names_commands_that_work(neve: Any, warehouse: Path) -> None:
    place = ["--warehouse", str(warehouse)]
    result = neve("cluster", "db.floats", "--by", "id", "--set", "policy.cluster-depth=9", "--dry-run", *place)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("Nothing to do: depth ")
    assert "(cluster-depth)" in result.stdout


@pytest.mark.spark
def test_a_table_is_clustered_for_real_and_goes_on_with_its_layout(spawn: Any, neve: Any, tmp_path: Path) -> None:
    import duckdb
    import pyarrow as pa

    place = str(tmp_path / "warehouse")
    rows = pa.table(
        {"id": pa.array(range(4000), pa.int64()), "v": pa.array([i * 7919 % 4001 for i in range(4000)], pa.int64())}
    )
    with Neve.open(load_settings(), warehouse=place, create_warehouse=True) as opened, opened.demo_target("db") as target:
        table = target.catalog.create_table("db.t", schema=rows.schema)
        for part in range(20):
            table.append(rows.slice(part * 200, 200))
    process = spawn(
        "cluster", "db.t", "--by", "v", "--full", "--set", "policy.target-file-size=8 KB", "--warehouse", place, "--json"
    )
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    record = RunRecord.model_validate_json(stdout)
    assert (record.outcome, record.kind) == (RunOutcome.DONE, "cluster")
    assert record.before is not None
    assert record.after is not None
    before, after = record.before.clustering, record.after.clustering
    assert before is not None
    assert after is not None
    # Nearly every file held nearly every value before, and one file holds each of them after.
    assert (before.depth, before.columns[0].point_read) == (pytest.approx(16.15), pytest.approx(0.807, abs=0.001))
    assert (before.depth_after, after.depth) == (1, pytest.approx(1, abs=0.01))
    # Two files, where the prediction was five: rows in order are smaller.
    assert (before.columns[0].point_read_after, after.columns[0].point_read) == (0.2, pytest.approx(0.505, abs=0.01))
    with Neve.open(load_settings(), warehouse=place) as opened, opened.demo_target("db") as target:
        assert opened.table_properties("db.t")[CLUSTER_BY] == "sort(v asc nulls-first)"
        paths = [task.file.file_path.removeprefix("file://") for task in target.load("t").scan().plan_files()]
    found = duckdb.sql(f"SELECT filename, min(v), max(v) FROM read_parquet({paths!r}, filename=true) GROUP BY 1 ORDER BY 2")
    ranges = [(low, high) for _, low, high in found.fetchall()]
    assert len(ranges) > 1
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    assert duckdb.sql(f"SELECT count(*), sum(id), sum(v) FROM read_parquet({paths!r})").fetchall() == [
        (4000, sum(rows["id"].to_pylist()), sum(rows["v"].to_pylist()))
    ]
    again = neve("cluster", "db.t", "--set", "policy.target-file-size=8 KB", "--warehouse", place)
    assert again.exit_code == 0
    assert again.stdout.splitlines()[1].startswith("Nothing to do: depth 1.0 is within 4")
    assert re.search(r"files over the same +1 +above 4 \(cluster-depth\)", again.stdout), again.stdout
    steps = [shlex.split(line)[1:] for line in again.stdout.splitlines()[-2:]]
    assert [neve(*step).exit_code for step in steps] == [0, 0]
    listed = json.loads(neve("runs", "--json", "--warehouse", place).stdout)["runs"]
    assert [(run["run_id"], run["kind"]) for run in listed] == [(record.run_id, "cluster")]
    shown = neve("runs", "show", record.recorded_id[:8], "--warehouse", place).stdout.splitlines()
    assert shown[1].startswith("Clustered 20 files into ")
    assert "Clustering by sort(v asc nulls-first)" in shown


def test_no_layout_is_stored_in_a_table_that_took_the_name_of_the_one_that_was_read() -> None:
    table = FakeTable(uuid="another")
    context: Any = SimpleNamespace(state=make_state(), writer=FakeWriter(table))
    with pytest.raises(TableGoneError, match="it was replaced by another table"):
        cluster._keep(context, Layout.parse("id"))
    assert table.properties == {}
