"""`neve compact --expire-snapshots`: what is asked for, when no snapshot is expired, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neve.api import Neve
from neve.context.connection import Connection
from neve.errors import BadRequestError, CommitIncidentError, RunTakenOverError
from neve.health.not_due import NotDue
from neve.maintenance.expiry import ExpiryRecord
from neve.operations.expire_after import ExpireAfter
from neve.rewrite.record import GroupState, RunOutcome, RunRecord, SnapshotExpiry
from neve.settings import load_settings
from tests.builders.maintenance_records import make_expiry
from tests.builders.run_records import make_empty_record, make_group, make_record, make_whole_record


def held() -> None:
    """The lease is held."""


def after(answer: ExpiryRecord | Exception | NotDue, asked: list[Any] | None = None) -> ExpireAfter:
    """An expiry that ends so."""

    def expire(*args: Any) -> ExpiryRecord | NotDue:
        if asked is not None:
            asked.append(args)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ExpireAfter(expire)


def test_the_record_of_the_compaction_says_what_was_expired() -> None:
    asked: list[Any] = []
    record = after(make_expiry(files_without_size=2), asked).under_lease(make_record(), held)
    assert asked == [(record.run_id, held)]
    assert record.expiry == SnapshotExpiry(
        run_id=make_expiry().run_id,
        outcome=RunOutcome.DONE,
        snapshots=2,
        files=22,
        size_bytes=3 * 1024**2,
        files_without_size=2,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"outcome": RunOutcome.FAILED}, "the compaction failed"),
        ({"incident": "look at it"}, "the compaction failed"),
        ({"table_gone": "it was dropped"}, "the compaction failed"),
        ({"groups": (make_group(0), make_group(1, state=GroupState.IN_DOUBT))}, "the commit outcome of 1 group is unknown"),
    ],
)
def test_no_snapshot_is_expired_after_a_compaction_that_a_person_or_a_resume_must_look_at(changes: Any, reason: str) -> None:
    asked: list[Any] = []
    record = make_record().model_copy(update=changes)
    done = after(make_expiry(), asked).under_lease(record, held)
    assert (done.expiry, asked) == (SnapshotExpiry(outcome=RunOutcome.FAILED, reason=reason), [])


def test_an_error_of_the_expiry_is_in_the_record_and_an_incident_stops_the_run() -> None:
    lost = after(RunTakenOverError("Cannot go on: taken over")).under_lease(make_record(), held)
    assert lost.expiry == SnapshotExpiry(outcome=RunOutcome.FAILED, reason="Cannot go on: taken over")
    gone = after(CommitIncidentError("Cannot confirm: main is gone", hint="Set it")).under_lease(make_record(), held)
    assert (gone.incident, gone.expiry) == ("Cannot confirm: main is gone. Set it", None)


def test_where_nothing_was_compacted_the_expiry_takes_the_lease_itself_and_its_errors_are_raised() -> None:
    asked: list[Any] = []
    rule = NotDue(rule="snapshots", what="snapshots past their time", measured=0, threshold=1, due_ms=1_000_000)
    done = after(rule, asked).alone(make_empty_record())
    assert done.expiry == SnapshotExpiry(outcome=RunOutcome.NOTHING_TO_DO, reason="every snapshot is kept", not_due=(rule,))
    assert asked == [(done.run_id, None)]
    with pytest.raises(RunTakenOverError):
        after(RunTakenOverError("taken over")).alone(make_empty_record())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; the run ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: RunRecord) -> list[Any]:
        def compact(_: Neve, table: str, **words: Any) -> RunRecord:
            found.append((table, words["expire_snapshots"], words["snapshot_retention_hours"]))
            return make_whole_record(record)

        monkeypatch.setattr(Neve, "compact", compact)
        return found

    return arm


def test_the_options_are_passed_on(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_record(expiry=SnapshotExpiry(run_id="e", outcome=RunOutcome.DONE, snapshots=10)))
    place = ["--warehouse", str(warehouse)]
    result = neve("compact", "db.v1", "--expire-snapshots", "--snapshot-retention-hours", "168", "--json", *place)
    assert (result.exit_code, json.loads(result.stdout)["expiry"]["snapshots"]) == (0, 10)
    assert json.loads(result.stdout)["stats"]["snapshots_expired"] == 10
    assert neve("compact", "db.v1", "--expire-snapshots", *place).exit_code == 0
    assert neve("compact", "db.v1", *place).exit_code == 0
    assert found == [("db.v1", True, 168), ("db.v1", True, None), ("db.v1", False, None)]


@pytest.mark.parametrize(
    ("outcome", "expiry", "code"),
    [
        (RunOutcome.DONE, RunOutcome.FAILED, 3),
        (RunOutcome.DONE, RunOutcome.PARTLY_DONE, 3),
        (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO, 0),
        (RunOutcome.FAILED, RunOutcome.FAILED, 1),
    ],
)
def test_an_expiry_that_failed_makes_the_run_partly_done(
    neve: Any, warehouse: Path, asked: Any, outcome: RunOutcome, expiry: RunOutcome, code: int
) -> None:
    asked(make_record(outcome=outcome, expiry=SnapshotExpiry(outcome=expiry, reason="why")))
    assert neve("compact", "db.v1", "--expire-snapshots", "--warehouse", str(warehouse)).exit_code == code


def test_a_dry_run_names_the_command_that_shows_what_would_be_expired(neve: Any, warehouse: Path) -> None:
    place = ["--warehouse", str(warehouse), "--dry-run"]
    refused = neve("compact", "db.v1", "--expire-snapshots", "--snapshot-retention-hours", "9", *place)
    assert refused.exit_code == 2
    assert "neve expire db.v1 --older-than '9 h' --dry-run" in refused.stderr
    assert neve("compact", "db.v1", *place).exit_code == 0


def test_hours_without_an_expiry_or_not_in_the_past_are_refused(neve: Any, warehouse: Path) -> None:
    refused = neve("compact", "db.v1", "--snapshot-retention-hours", "9", "--warehouse", str(warehouse))
    assert refused.exit_code == 2
    assert "Cannot keep snapshots for 9 hours: the compaction is not asked to expire any" in refused.stderr
    with Neve.open(load_settings(environ={}), warehouse=str(warehouse), environ={}) as opened:
        for hours in (0, -1):
            with pytest.raises(BadRequestError, match=f"Cannot keep snapshots for {hours} hours: that is not in the past"):
                opened.compact("db.v1", expire_snapshots=True, snapshot_retention_hours=hours)


def test_no_spark_is_started_where_there_is_nothing_to_compact_nor_to_expire(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    place = ["--warehouse", str(warehouse), "--min-input-files", "6"]
    document = json.loads(neve("compact", "db.floats", "--expire-snapshots", "--json", *place).stdout)
    assert (document["outcome"], document["expiry"]["outcome"]) == ("nothing-to-do", "nothing-to-do")
    assert (document["expiry"]["reason"], document["stats"]["snapshots_expired"]) == ("every snapshot is kept", 0)
