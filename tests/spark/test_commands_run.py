"""Every command and statement that Neve shows or documents is run on real tables, with real values where it stands for some.

So is every command that its output offers next.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.table.spark_sql import move_back, read_snapshot, uncache
from tests.builders import shown_commands as collect
from tests.builders.command_scenes import TABLE, Scene, staged
from tests.builders.parsed_commands import USAGE_ERROR, Parsed, parse
from tests.builders.shown_commands import Found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP, DEMO = "tests/surfaces/test_cli_help.py", "tests/surfaces/test_cli_demo.py"
NOTIFY = "tests/surfaces/test_cli_notify.py"
ELSEWHERE = {
    ("neve", "", "install_completion"): f"{HELP}::test_completion_is_installed_for_the_shell_that_asks",
    ("neve", "deletes"): f"{HELP}::test_a_group_without_a_command_shows_its_help",
    ("neve", "demo"): f"{DEMO}::test_the_demo_and_what_it_offers_next_run_as_they_are_shown",
    ("neve", "demo", "warehouse"): f"{DEMO}::test_the_demo_and_what_it_offers_next_run_as_they_are_shown",
    ("neve", "demo", "keep", "warehouse"): f"{DEMO}::test_the_demo_and_what_it_offers_next_run_as_they_are_shown",
    ("neve", "notify test", "channel"): f"{NOTIFY}::test_a_test_message_reaches_a_webhook",
    ("neve", "notify test", "channel", "json", "| jq .sent"): f"{NOTIFY}::test_json_has_the_id_that_the_server_got",
    ("neve", "doctor", "spark"): "tests/spark/test_job.py::test_doctor_starts_spark_as_asked",
}
"""Shapes that are not run here, each with the test that runs it."""

Key = tuple[str, ...]


def shapes() -> dict[Key, tuple[Found, Parsed]]:
    """One command of each shape: the same command with the same parameters need not run twice, unless its output is piped into
    another filter. Fewer parameters come first, so that a limit is previewed before it is enforced."""
    found: dict[Key, tuple[Found, Parsed]] = {}
    for one in (*collect.in_source()[0], *collect.in_pages()):
        try:
            parsed = parse(one.text, complete=False)
        except USAGE_ERROR:
            continue  # tests/commands names it
        piped = collect.filter_of(one.text)
        found.setdefault((*parsed.shape, *([f"| jq {piped}"] if piped else [])), (one, parsed))
    return dict(sorted(found.items(), key=lambda item: (item[0][:2], len(item[0]), item[0])))


SHAPES = shapes()
STATEMENTS = collect.sql_in_pages()


@pytest.fixture(scope="module")
def scene(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(spark, warehouse, tmp_path_factory.mktemp("place")) as found:
        yield found


@pytest.fixture(scope="module")
def taken() -> set[Key]:
    """Next steps that have been run: the same step after the same command need not run twice."""
    return set()


@pytest.mark.parametrize("key", [key for key in SHAPES if key not in ELSEWHERE], ids=" ".join)
def test_a_command_that_is_shown_or_documented_runs_and_so_does_what_it_offers_next(
    scene: Scene, key: Key, taken: set[Key]
) -> None:
    found, parsed = SHAPES[key]
    args = scene.filled(parsed)
    stdin = Path(scene._order()).read_text(encoding="utf-8") if args[:2] == ["work", "-"] else None
    result = scene.run(args, parsed.program, stdin)
    assert result.exit_code == 0, f"{found.where}: {shlex.join([parsed.program, *args])}\n{result.output}\n{result.exception!r}"
    if piped := collect.filter_of(found.text):
        assert selects(json.loads(result.stdout), piped)
    for step in offered(result.output):
        step_key = (*key[:2], *parse(step).shape)
        if step_key not in taken:
            taken.add(step_key)
            next_one = scene.run(shlex.split(step)[1:])
            assert next_one.exit_code == 0, f"{shlex.join(args)}\noffers {step}\n{next_one.output}\n{next_one.exception!r}"


def offered(output: str) -> list[str]:
    """The commands that an output offers: its next steps, and complete commands in backquotes that stand for no other."""
    steps = [
        line.strip()
        for part in re.split(r"\n(?:Next|Try next)\n", output)[1:]
        for line in part.partition("\n\n")[0].splitlines()
    ]
    hints = [text for text in re.findall(r"`(neve [^`]+)`", " ".join(output.split())) if not re.search(r"\b[A-Z]+\b", text)]
    return steps + [text for text in hints if not parse(text, complete=False).missing]


def selects(document: Any, piped: str) -> bool:
    """Whether the fields that a filter of jq names are there."""
    values = [document]
    for chain in re.findall(r"(?:\.[a-z_]+)+", piped):
        for name in chain[1:].split("."):
            values = [value[name] for value in values]
        values = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return bool(values)


def test_what_is_not_run_here_is_known_and_run_by_another_test() -> None:
    root = Path(__file__).parents[2]
    assert [key for key in ELSEWHERE if key not in SHAPES] == []
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"\ndef {name}(" in (root / file).read_text(encoding="utf-8"), place


def test_next_steps_and_hints_are_found_in_an_output() -> None:
    hints = "See `neve compact\n db.t --force`, `neve plan TABLE`, `neve plan`.\n"
    output = f"Done\n\nNext\n  neve runs show 3f9c\n  neve doctor\n\n{hints}"
    assert offered(output) == ["neve runs show 3f9c", "neve doctor", "neve compact db.t --force"]


@pytest.mark.parametrize(
    ("piped", "there"),
    [(".a.b", True), (".steps[] | select(.run_id)", True), (".steps[] | select(.run)", False), (".b", False)],
)
def test_a_filter_names_fields_that_are_there(piped: str, there: bool) -> None:
    document = {"a": {"b": None}, "steps": [{"run_id": None}]}
    if there:
        assert selects(document, piped)
        return
    with pytest.raises(KeyError):
        selects(document, piped)


def hinted(scene: Scene, *args: str) -> list[str]:
    """What the hint of a refused command has in backquotes."""
    refused = scene.run(list(args))
    assert refused.exit_code == 2, refused.output
    return re.findall(r"`([^`]+)`", refused.stderr.partition("\nHint: ")[2])


def ids(rows: Any) -> list[int]:
    return sorted(row.id for row in rows.collect())


@pytest.mark.parametrize(
    ("branch", "suffix", "beginning"),
    [("main", "", "CALL local.system.rollback_to_snapshot("), ("audit", ".branch_audit", "ALTER TABLE local.db.")],
)
def test_the_hint_of_a_refused_rollback_reads_the_files_as_they_were_and_discards_what_came_later(
    scene: Scene, branch: str, suffix: str, beginning: str
) -> None:
    table = scene.new_table()
    scene.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    before = snapshot_of(scene, table, branch)
    run = json.loads(scene.run(["compact", table, "--force", "--branch", branch, "--json"]).stdout)["run_id"]
    scene.insert(20, f"{table}{suffix}")
    reading, moving = hinted(scene, "rollback", run)
    assert moving.startswith(beginning)
    rows = scene.spark.sql(reading)
    assert (ids(rows), rows.select("_file").distinct().count()) == (list(range(20)), 2)
    scene.spark.sql(moving)
    assert snapshot_of(scene, table, branch) == before


def snapshot_of(scene: Scene, table: str, branch: str) -> int:
    found = scene.bench(table).load().snapshot_by_name(branch)
    assert found is not None
    return found.snapshot_id


def test_the_hint_of_a_refused_rollback_of_a_ttl_reads_the_rows_that_it_deleted(scene: Scene) -> None:
    table = scene.new_table()
    limit = ["ttl", table, "--keep", "30 days", "--column", "ts", "--json"]
    assert scene.run(limit).exit_code == 0
    run = json.loads(scene.run([*limit, "--enforce"]).stdout)["run_id"]
    assert scene.bench(table).load().scan().to_arrow().num_rows == 0
    [reading] = hinted(scene, "rollback", run)
    assert ids(scene.spark.sql(reading)) == list(range(20))


def test_statements_name_a_table_and_a_branch_of_any_name(scene: Scene) -> None:
    name = "local.db.it's 1 `odd` name"
    table = "local.db.`it's 1 ``odd`` name`"
    scene.spark.sql(f"CREATE TABLE {table} AS SELECT 1 AS id")
    before = scene.spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").head()[0]
    scene.spark.sql(f"ALTER TABLE {table} CREATE BRANCH `odd-1`")
    for branch, written in (("main", table), ("odd-1", f"{table}.`branch_odd-1`")):
        scene.spark.sql(f"INSERT INTO {written} VALUES (2)")
        assert ids(scene.spark.sql(read_snapshot(name, before))) == [1]
        scene.spark.sql(move_back(name, branch, before))
        assert ids(scene.spark.sql(f"SELECT id FROM {table} VERSION AS OF '{branch}'")) == [1]
    scene.spark.sql(f"CACHE TABLE {table}")
    scene.spark.sql(uncache(*name.split(".")))
    assert not scene.spark.catalog.isCached(table)


@pytest.mark.parametrize("block", STATEMENTS, ids=lambda block: block.where)
def test_a_statement_of_a_page_runs_and_sets_what_it_says(scene: Scene, block: Found) -> None:
    session = scene.spark.newSession()
    session.sql("SELECT 'b' AS bucket, 'k' AS key, 1 AS size, now() AS last_modified_date, true AS is_latest").createTempView(
        "inventory"
    )
    session.sql("USE local")
    rows = session.sql(block.text).collect()
    wanted = dict(re.findall(r"'(neve\.[a-z-]+)' = '([^']*)'", block.text))
    assert scene.bench(TABLE).load().properties.items() >= wanted.items()
    assert wanted or [(row.path, row.size) for row in rows] == [("s3://b/k", 1)]
