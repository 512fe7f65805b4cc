"""`neve expire`: what is asked for, how it is told, and where a value came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.errors import BadRequestError
from neve.maintenance.expiry import ExpiryRecord, age_ms
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_expiry
from tests.builders.run_records import RUN_ID

ASKED = {"older_than": None, "keep": None, "snapshot_ids": (), "metadata_only": False, "dry_run": False}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; every expiry ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: ExpiryRecord) -> list[Any]:
        def expire(_: Neve, *args: str, progress: Any = None, **words: Any) -> ExpiryRecord:  # noqa: ARG001
            found.append((*args, words))
            return record

        monkeypatch.setattr(Neve, "expire", expire)
        return found

    return arm


def test_every_option_is_passed_on(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_expiry(dry_run=True))
    words = [
        "--older-than",
        "3 days",
        "--keep",
        "4",
        "--snapshot-id",
        "7",
        "--snapshot-id",
        "8",
        "--metadata-only",
        "--dry-run",
    ]
    assert neve("expire", "db.floats", *words, "--warehouse", str(warehouse)).exit_code == 0
    said = {"older_than": "3 days", "keep": 4, "snapshot_ids": (7, 8), "metadata_only": True, "dry_run": True}
    assert found == [("db.floats", said)]


def test_an_expiry_is_told_with_reasons_and_origins(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_expiry())
    result = neve("expire", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Expired 2 snapshots in 2.4 s; 22 files (3 MB) are no longer needed",
        "",
        "  snapshots           5 → 3",
        "  kept                2 heads of branches, 1 young",
        "  snapshot-keep       7 days (default)",
        "  snapshot-min-count  3 (table property history.expire.min-snapshots-to-keep)",
        "  files               22 files (3 MB) recorded, 21 of them new; none deleted yet",
        "                      data file of expired snapshots: 20",
        "                      manifest of expired snapshots: 2",
        f"  id                  {RUN_ID}",
        "  started             2025-06-15 15:06:40 UTC",
        "",
        "Next",
        f"  neve inspect local.db.events --warehouse {warehouse}",
    ]


WENT = "Expired 2 snapshots in 2.4 s, but v1 went; 22 files (3 MB) are no longer needed"


@pytest.mark.parametrize(
    ("changes", "line", "code"),
    [
        ({"dry_run": True}, "Would expire 2 snapshots; 22 files (3 MB) would no longer be needed", 0),
        ({"files_without_size": 4}, "Expired 2 snapshots in 2.4 s; 22 files (≥ 3 MB) are no longer needed", 0),
        ({"refs_removed": ("v1", "v2"), "files": {}}, "Expired 2 snapshots and v1, v2 in 2.4 s", 0),
        ({"outcome": RunOutcome.NOTHING_TO_DO, "reason": "every snapshot is kept"}, "Nothing to do: every snapshot is kept", 0),
        ({"outcome": RunOutcome.FAILED, "reason": "the table changed"}, "Failed after 2.4 s: the table changed", 1),
        ({"outcome": RunOutcome.PARTLY_DONE, "reason": "v1 went"}, WENT, 3),
    ],
)
def test_the_second_line_says_how_it_ended(neve: Any, warehouse: Path, asked: Any, changes: Any, line: str, code: int) -> None:
    asked(make_expiry(**changes))
    result = neve("expire", "db.floats", "--warehouse", str(warehouse))
    assert (result.stdout.splitlines()[1], result.exit_code) == (line, code)


def test_a_dry_run_shows_files_and_says_how_many_more(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_expiry(dry_run=True, listed=tuple(f"/t/{i:02}.parquet" for i in range(22))))
    lines = [line.strip() for line in neve("expire", "db.floats", "--warehouse", str(warehouse)).stdout.splitlines()]
    assert "files               22 files (3 MB) would go to the quarantine" in lines
    assert lines[-5:-3] == ["/t/09.parquet", "and 12 more (--json lists them)"]


def test_files_that_are_left_alone_are_told_with_the_reason(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_expiry(metadata_only="the table says gc.enabled=false", files={}))
    assert "left alone: the table says gc.enabled=false" in neve("expire", "db.floats", "--warehouse", str(warehouse)).stdout


def test_json_has_the_record_and_what_is_left(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_expiry())
    told = json.loads(neve("expire", "db.floats", "--json", "--warehouse", str(warehouse)).stdout)
    assert (told["schema_version"], told["expired"], told["snapshots_after"]) == (1, [11, 12], 3)
    assert (told["size_bytes"], told["files_without_size"]) == (3 * 1024**2, 0)
    assert told["settings"][1]["origin"] == "table property history.expire.min-snapshots-to-keep"


def test_an_expiry_is_among_the_runs_and_so_is_one_that_was_killed(neve: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", "expire", NOW_MS, record={"metadata_before": "v1"}))
        place = ["--set", f"state.url={url}"]
        assert "UTC and was interrupted\n" in neve("runs", "show", "3f9c", *place).stdout
        record = make_expiry().model_dump(mode="json")
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="done", record=record)
    assert "5 → 3 snapshots" in neve("runs", *place).stdout
    assert neve("runs", "show", "3f9c", *place).stdout.splitlines()[1].startswith("Expired 2 snapshots in 2.4 s; ")


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked(make_expiry())
    assert package.expire("db.floats", keep=2, dry_run=True, warehouse=warehouse).snapshots_after == 3
    package.table("db.floats", warehouse=warehouse).expire(older_than="2 h")
    assert found == [("db.floats", {**ASKED, "keep": 2, "dry_run": True}), ("db.floats", {**ASKED, "older_than": "2 h"})]


def test_an_age_is_a_duration_or_up_to_a_moment() -> None:
    assert age_ms("2 days", NOW_MS) == 2 * 86_400_000
    assert age_ms("2025-06-14T15:06:40", NOW_MS) == 86_400_000
    assert age_ms("2025-06-14T17:06:40+02:00", NOW_MS) == 86_400_000
    with pytest.raises(BadRequestError, match="Cannot expire what is older than 2030-01-01: that is not in the past"):
        age_ms("2030-01-01", NOW_MS)
    with pytest.raises(BadRequestError, match="Cannot read 'yesterday': neither a duration nor a moment"):
        age_ms("yesterday", NOW_MS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"keep": 0}, "Cannot keep 0 snapshots: a branch keeps at least one"),
        ({"keep": 1, "snapshot_ids": (1,)}, "Cannot expire by id and by age or count at once"),
    ],
)
def test_what_cannot_be_meant_is_refused(warehouse: Path, words: Any, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        package.expire("db.floats", warehouse=warehouse, **words)
