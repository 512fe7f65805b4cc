"""`neve manifests`, `neve stats`, `neve tags`: what is asked for, how it is told, and what a dry run shows without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.maintenance.manifests import ManifestReads, ManifestsRecord
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.maintenance.statistics import Distinct, StatisticsRecord
from neve.maintenance.tags import Tag, TagsRecord
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from neve.table.state import StatisticsFile
from tests.builders.inspections import NOW_MS
from tests.builders.run_records import RUN_ID

HEAD: dict[str, Any] = {
    "run_id": RUN_ID,
    "table": "local.db.events",
    "table_uuid": "u",
    "outcome": RunOutcome.DONE,
    "started_ms": NOW_MS,
    "finished_ms": NOW_MS + 2400,
    "snapshot_before": 11,
}
MANIFESTS = ManifestsRecord(
    **HEAD,
    operation=Operation.MANIFESTS,
    snapshots=(12,),
    by=("day", "region"),
    files=60_000,
    manifests_replaced=1000,
    manifests_written=3,
    before=ManifestReads(whole=1002, one=800.0, seconds=21.0),
    after=ManifestReads(whole=5, one=1.3, seconds=0.9),
    set_aside=1,
)
STATS = StatisticsRecord(
    **HEAD,
    operation=Operation.STATS,
    columns=("city", "amount"),
    partitions=True,
    changed=0.12,
    distinct=(Distinct(column="city", values=7900), Distinct(column="amount", values=None)),
    files=(StatisticsFile(snapshot_id=11, path="/wh/s.stats", size_bytes=9),),
)
TAGS = TagsRecord(
    **HEAD,
    operation=Operation.TAGS,
    created=(Tag(name="neve-daily-2025-06-14", snapshot_id=11),),
    dropped=(Tag(name="neve-daily-2025-06-07", snapshot_id=4), Tag(name="neve-weekly-2025-W20", snapshot_id=3)),
    kept=("neve-daily-2025-06-13",),
    taken=("neve-monthly-2025-05",),
)
RECORDS: dict[str, MaintenanceRecord] = {"manifests": MANIFESTS, "stats": STATS, "tags": TAGS}
ENDING = [f"  id {RUN_ID}", "  started 2025-06-15 15:06:40 UTC"]
PAGES = {
    "manifests": [
        "Rewrote 1,000 manifests into 3 in 2.4 s",
        "",
        "  files in them 60,000",
        "  sorted by day, region",
        "  opened by a query 1,002 → 5 of the whole table",
        "  800.0 → 1.3 for one value of day",
        "  planning 21 s → 0.9 s of one core, predicted",
        "  set aside 1 file in the quarantine, written for this and not used",
        *ENDING,
        "  snapshot 11 → 12",
    ],
    "stats": [
        "Counted the values of 2 columns and the rows of each partition in 2.4 s",
        "",
        "  changed since 12% of the rows",
        "  city about 7,900 different values",
        "  amount not known",
        "  file /wh/s.stats",
        *ENDING,
    ],
    "tags": [
        "Made 1 tag and dropped 2 tags in 2.4 s",
        "",
        "  made neve-daily-2025-06-14 at snapshot 11",
        "  dropped neve-daily-2025-06-07 at snapshot 4",
        "  neve-weekly-2025-W20 at snapshot 3",
        "  kept neve-daily-2025-06-13",
        "  taken neve-monthly-2025-05: a branch of others has that name",
        *ENDING,
    ],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; every operation ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(command: str, **changes: Any) -> list[Any]:
        def answer(_: Neve, *args: str, progress: Any = None, **words: Any) -> MaintenanceRecord:  # noqa: ARG001
            found.append((*args, words))
            return RECORDS[command].model_copy(update=changes)

        monkeypatch.setattr(Neve, command, answer)
        return found

    return arm


def plain(text: str) -> list[str]:
    """Lines with single blanks, behind the two that a fact is set in by."""
    return ["  " * line.startswith("  ") + " ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize("command", list(PAGES))
def test_what_was_done_is_told_with_what_to_type_next(neve: Any, warehouse: Path, asked: Any, command: str) -> None:
    asked(command)
    result = neve(command, "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    step = f"  neve inspect local.db.events --warehouse {warehouse}"
    assert plain(result.stdout) == ["local.db.events", *PAGES[command], "", "Next", step]


@pytest.mark.parametrize(
    ("command", "changes", "line"),
    [
        ("manifests", {"dry_run": True}, "Would rewrite 1,000 manifests into about 3"),
        ("stats", {"dry_run": True}, "Would count the values of 2 columns and the rows of each partition"),
        ("stats", {"dry_run": True, "columns": ()}, "Would count the rows of each partition"),
        ("tags", {"dry_run": True}, "Would make 1 tag and drop 2 tags"),
        ("tags", {"created": ()}, "Dropped 2 tags in 2.4 s"),
        ("tags", {"outcome": RunOutcome.NOTHING_TO_DO, "reason": "all are there"}, "Nothing to do: all are there"),
        ("stats", {"outcome": RunOutcome.FAILED, "reason": "it is gone"}, "Failed after 2.4 s: it is gone"),
    ],
)
def test_the_second_line_says_how_it_ended(
    neve: Any, warehouse: Path, asked: Any, command: str, changes: Any, line: str
) -> None:
    asked(command, **changes)
    result = neve(command, "db.floats", "--warehouse", str(warehouse))
    assert result.stdout.splitlines()[1] == line
    failed = changes.get("outcome") is RunOutcome.FAILED
    assert result.exit_code == (1 if failed else 0)
    again = f"{command} db.floats" if failed or changes.get("dry_run") else "inspect local.db.events"
    steps = result.stdout.partition("\nNext\n")[2].splitlines()
    assert steps == ([] if line.startswith("Nothing") else [f"  neve {again} --warehouse {warehouse}"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["manifests"], {"by": (), "limit": 10_000, "dry_run": False}),
        (
            ["manifests", "--by", "day, region", "--limit", "5", "--dry-run"],
            {"by": ("day", "region"), "limit": 5, "dry_run": True},
        ),
        (["stats", "--columns", "a,b", "--columns", "c"], {"columns": ("a", "b", "c"), "force": False, "dry_run": False}),
        (["stats", "--force"], {"columns": (), "force": True, "dry_run": False}),
        (["tags", "--dry-run"], {"dry_run": True}),
    ],
)
def test_what_is_said_is_what_is_asked_for(neve: Any, warehouse: Path, asked: Any, words: list[str], expected: Any) -> None:
    found = asked(words[0])
    assert neve(words[0], "db.floats", *words[1:], "--warehouse", str(warehouse)).exit_code == 0
    assert found == [("db.floats", expected)]


@pytest.mark.parametrize("command", list(PAGES))
def test_json_is_the_record(neve: Any, warehouse: Path, asked: Any, command: str) -> None:
    asked(command, outcome=RunOutcome.FAILED, reason="lost")
    result = neve(command, "db.floats", "--json", "--warehouse", str(warehouse))
    told = json.loads(result.stdout)
    assert (result.exit_code, told.pop("schema_version")) == (1, 1)
    assert type(RECORDS[command]).model_validate(told) == RECORDS[command].model_copy(
        update={"outcome": RunOutcome.FAILED, "reason": "lost"}
    )


@pytest.mark.parametrize("command", list(PAGES))
def test_each_is_among_the_runs_and_shown_in_full(neve: Any, tmp_path: Path, command: str) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", command, NOW_MS))
        document = RECORDS[command].model_dump(mode="json")
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="done", record=document)
    place = ["--set", f"state.url={url}"]
    assert neve("runs", *place).exit_code == 0
    assert plain(neve("runs", "show", "3f9c", *place).stdout)[1:] == PAGES[command]


def test_dry_runs_look_at_a_table_without_spark(neve: Any, warehouse: Path) -> None:
    place = ["--dry-run", "--json", "--warehouse", str(warehouse)]
    manifests = json.loads(neve("manifests", "db.floats", *place).stdout)
    assert (manifests["operation"], manifests["dry_run"], manifests["outcome"]) == ("manifests", True, "nothing-to-do")
    assert manifests["reason"] == "a rewrite would spare no query 10 manifests (manifest-min-count); the table has 5"
    assert [(rule["measured"], rule["threshold"], rule["knob"], rule["more"]) for rule in manifests["not_due"]] == [
        (4, 10, "manifest-min-count", 6)
    ]
    stats = json.loads(neve("stats", "db.floats", *place).stdout)
    assert (stats["dry_run"], stats["outcome"], stats["distinct"]) == (True, "done", [])
    tags = json.loads(neve("tags", "db.floats", "--auto-tags", "daily 3", *place).stdout)
    assert (tags["dry_run"], tags["created"], tags["dropped"]) == (True, [], [])
    assert [rule["rule"] for rule in tags["not_due"]] == ["daily-tag"]


def test_tags_without_a_policy_are_refused_with_what_to_say(neve: Any, warehouse: Path) -> None:
    result = neve("tags", "db.floats", "--warehouse", str(warehouse))
    assert result.exit_code == 2
    assert "auto-tags does not say which" in " ".join(result.stderr.split())


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked("manifests")
    asked("stats")
    asked("tags")
    assert package.manifests("db.floats", by=["day"], warehouse=warehouse).manifests_written == 3
    assert package.stats("db.floats", columns=["city"], force=True, warehouse=warehouse).partitions
    assert package.table("db.floats", warehouse=warehouse).auto_tags("daily 1").tags(dry_run=True).kept
    assert package.tags("db.floats", warehouse=warehouse).kept
    assert found == [
        ("db.floats", {"by": ("day",), "limit": 10_000, "dry_run": False}),
        ("db.floats", {"columns": ("city",), "force": True, "dry_run": False}),
        ("db.floats", {"dry_run": True}),
        ("db.floats", {"dry_run": False}),
    ]
