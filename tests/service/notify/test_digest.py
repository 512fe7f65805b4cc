"""The daily digest: when it is due, what it counts, and that each team gets one a day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from neve.scheduling.job import Job, JobState, Spent
from neve.service.notify.digest import DayTally, DigestPeriod, DigestWriter, Gain, due_period
from neve.service.notify.messages import LISTED
from neve.settings.notifications import NotificationSettings
from tests.builders.jobs import DAY, HOUR, NOW, decision

PERIOD = DigestPeriod(day="2026-09-21", from_ms=NOW - DAY, until_ms=NOW)


def settings(**values: Any) -> NotificationSettings:
    channels = {"ops": {"kind": "webhook", "url": "https://ops.test"}}
    return NotificationSettings.model_validate({"channels": channels, **values})


def at(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def job(table: str = "a", state: JobState = JobState.DONE, **values: Any) -> Job:
    return Job.model_validate({**decision(table).model_dump(), "job_id": "j", "created_ms": NOW, "state": state, **values})


@pytest.mark.parametrize(
    ("now", "zone", "day", "hours"),
    [
        ("2026-09-21T08:00", "UTC", "2026-09-21", 24),
        ("2026-09-21T07:59", "UTC", "2026-09-20", 24),
        ("2026-09-22T07:59", "UTC", "2026-09-21", 24),
        ("2026-03-29T09:00", "Europe/Berlin", "2026-03-29", 23),
        ("2026-10-25T09:00", "Europe/Berlin", "2026-10-25", 25),
        ("2026-10-25T07:00", "Europe/Berlin", "2026-10-24", 24),
        ("2026-09-21T08:00", "Pacific/Auckland", "2026-09-21", 24),
    ],
)
def test_the_period_that_ended_last_is_due_until_the_next_one_ends(now: str, zone: str, day: str, hours: int) -> None:
    found = due_period(settings(time_zone=zone), at(now, zone))
    assert (found.day, (found.until_ms - found.from_ms) // HOUR) == (day, hours)
    assert found.until_ms == at(f"{day}T08:00", zone)


def test_a_digest_time_that_does_not_exist_on_a_day_still_gives_one_digest() -> None:
    wanted = settings(time_zone="Europe/Berlin", digest_time="02:30")
    days = {due_period(wanted, at("2026-03-28T12:00", "Europe/Berlin") + hour * HOUR).day for hour in range(48)}
    assert days == {"2026-03-28", "2026-03-29", "2026-03-30"}


def test_periods_follow_each_other_without_gaps() -> None:
    wanted = settings(time_zone="Europe/Berlin", digest_time="02:30")
    start = at("2026-01-01T12:00", "Europe/Berlin")
    periods = [due_period(wanted, start + number * DAY) for number in range(365)]
    assert all(before.until_ms == after.from_ms for before, after in pairwise(periods))
    assert len({period.notice_id("sales") for period in periods}) == 365


def test_names_of_any_length_give_ids_that_the_store_takes() -> None:
    assert PERIOD.notice_id("") != PERIOD.notice_id("sales")
    assert len(PERIOD.notice_id("x" * 1000)) <= 64


def test_what_was_done_gained_and_spent_is_summed() -> None:
    tally = DayTally()
    tally.add_ended(job("a", actual=Spent(bytes=10, core_seconds=2.0, money=0.5)), Gain(files_fewer=5))
    tally.add_ended(job("a", actual=Spent(bytes=20, core_seconds=3.0)), Gain(bytes_freed=100))
    tally.add_ended(job("b"), None)
    tally.add_ended(job("b", JobState.FAILED, message="503", actual=Spent(bytes=1)), None)
    tally.add_ended(job("c", JobState.CANCELLED, actual=Spent(money=0.25)), None)
    tally.add_ended(job("c", JobState.CANCELLED), None)
    digest = tally.digest("sales", PERIOD)
    assert [(total.operation, total.runs, total.tables) for total in digest.done] == [("compact", 3, 2)]
    assert (digest.files_fewer, digest.bytes_freed) == (5, 100)
    assert (digest.bytes_used, digest.core_seconds, digest.money, digest.unmeasured) == (31, 5.0, 0.75, 1)
    assert [(line.table, line.text) for line in digest.failed] == [("lake.db.b", "503")]


def test_what_nobody_measured_is_unknown_and_not_zero() -> None:
    tally = DayTally()
    tally.add_ended(job(), None)
    digest = tally.digest("", PERIOD)
    assert (digest.files_fewer, digest.bytes_freed, digest.bytes_used, digest.money) == (None, None, None, None)
    assert digest.unmeasured == 1


def test_a_table_that_failed_often_is_one_line_with_its_last_reason() -> None:
    tally = DayTally()
    for message in ("third", "second", "first"):
        tally.add_ended(job("a", JobState.FAILED, message=message), None)
    tally.add_ended(job("b", JobState.FAILED, message="once"), None)
    digest = tally.digest("", PERIOD)
    assert [line.text for line in digest.failed] == ["3 times, last: third", "once"]
    assert digest.failed_count == 2


def test_lists_are_cut_and_counts_are_not() -> None:
    tally = DayTally()
    for number in range(LISTED + 7):
        tally.add_ended(job(f"t{number}", JobState.FAILED, message="x" * 5000), None)
        tally.add_waiting(job(f"t{number}", JobState.WAITING))
    digest = tally.digest("", PERIOD)
    assert (len(digest.failed), digest.failed_count) == (LISTED, LISTED + 7)
    assert (len(digest.waiting), digest.waiting_count) == (LISTED, LISTED + 7)
    assert max(len(line.text) for line in digest.failed) == 1000


class Source:
    """Days that a test wrote down, and how often they were read."""

    def __init__(self, *owners: str) -> None:
        self.owners, self.reads = owners, 0

    def day_tallies(self, period: DigestPeriod) -> Mapping[str, DayTally]:  # noqa: ARG002
        self.reads += 1
        tallies = {owner: DayTally() for owner in (*self.owners, "nothing happened")}
        for owner in self.owners:
            tallies[owner].add_ended(job(owner=owner), None)
        return tallies


class Notices:
    """Notices by their ids."""

    def __init__(self) -> None:
        self.added: dict[str, str] = {}
        self.fails_for: str | None = None

    def add(self, notice_id: str, *, kind: str, owner: str, content: Mapping[str, object], now_ms: int) -> bool:  # noqa: ARG002
        if self.fails_for == owner:
            raise OSError("disk full")
        assert kind == "digest"
        return self.added.setdefault(notice_id, owner) == owner and content["owner"] == owner


def test_each_team_with_something_to_report_gets_a_digest_and_nothing_is_read_until_the_next_day() -> None:
    source, notices = Source("sales", ""), Notices()
    writer = DigestWriter(source, notices, settings())
    assert writer.write_due(NOW) == 2
    assert writer.write_due(NOW + HOUR) == 0
    assert source.reads == 1
    assert writer.write_due(NOW + DAY) == 2
    assert sorted(notices.added.values()) == ["", "", "sales", "sales"]


def test_without_channels_or_with_digests_turned_off_nothing_is_read() -> None:
    source = Source("sales")
    assert DigestWriter(source, Notices(), settings(digest=False)).write_due(NOW) == 0
    assert DigestWriter(source, Notices(), NotificationSettings()).write_due(NOW) == 0
    assert source.reads == 0


def test_digests_that_could_not_be_written_are_written_in_the_next_round() -> None:
    notices = Notices()
    writer = DigestWriter(Source("finance", "sales"), notices, settings())
    notices.fails_for = "sales"
    with pytest.raises(OSError, match="disk full"):
        writer.write_due(NOW)
    notices.fails_for = None
    writer.write_due(NOW)
    assert sorted(notices.added.values()) == ["finance", "sales"]
