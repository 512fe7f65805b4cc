"""What a job used, by the record of its run."""

from __future__ import annotations

import pytest

from neve.health.not_due import NotDue
from neve.maintenance.manifests import ManifestGroup, ManifestsRecord, Motive
from neve.maintenance.record import Operation
from neve.rewrite.cost import Rates
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.rewrite.usage import CpuSeconds, Requests, Used
from neve.scheduling.hold import LIMITED
from neve.scheduling.job import JobState, Spent
from neve.service.job_end import JobEnd, used
from neve.table.units import MIB
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_expiry
from tests.builders.run_records import make_group, make_record

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
RATES = Rates(core_hour=36.0, thousand_reads=100.0, thousand_writes=0.0)


def test_a_job_used_what_was_measured_for_its_run() -> None:
    requests = Requests(read=20, catalog=3, uncounted=("jvm",))
    measured = Used.at(RATES, requests, CpuSeconds(python=1.0, jvm=6.0, workers=3.0), prices="2026-07")
    spent = used(make_record(used=measured), core_hour=1.0, prices="later")
    assert spent == Spent(
        bytes=19 * MIB, core_seconds=10.0, money=0.1 + 2.0, requests={"read": 20, "catalog": 3}, prices="2026-07"
    )


def test_cpu_time_that_was_not_measured_is_estimated_by_groups_or_by_the_time_of_the_run() -> None:
    measured = Used(requests=Requests(read=20), cpu_seconds=CpuSeconds(python=1.0, jvm=None, workers=None), prices="2026-07")
    by_groups = used(make_record(make_group(cpu_seconds=50.0), used=measured), core_hour=36.0, prices="now")
    assert (by_groups.core_seconds, by_groups.money, by_groups.prices) == (50.0, 0.5, "now")
    assert by_groups.requests == {"read": 20}
    by_time = used(make_expiry(), core_hour=36.0, prices="now")
    assert (by_time.core_seconds, by_time.money, by_time.requests) == (2.4, pytest.approx(0.024), {})


def test_a_rewrite_of_manifests_has_groups_that_were_not_measured() -> None:
    group = ManifestGroup(
        spec_id=0, holds_deletes=False, motive=Motive.MERGE, paths=("m1.avro", "m2.avro"), bytes=20, files=4, outputs=1
    )
    record = ManifestsRecord(
        run_id="r",
        table="lake.db.t",
        table_uuid="u",
        operation=Operation.MANIFESTS,
        outcome=RunOutcome.DONE,
        groups=(group,),
        started_ms=NOW_MS,
        finished_ms=NOW_MS + 2_400,
    )
    assert used(record, core_hour=36.0, prices="now").core_seconds == 2.4


def nothing_to_do(*rules: NotDue) -> RunRecord:
    return make_record(outcome=RunOutcome.NOTHING_TO_DO, not_due=rules, started_ms=NOW_MS, finished_ms=NOW_MS)


@pytest.mark.parametrize(
    ("rules", "idle_ms"),
    [
        ((), DAY_MS),
        ((NotDue(rule="few", what="small files", more=3),), DAY_MS),
        ((NotDue(rule="interval", what="since the last run", due_ms=NOW_MS + HOUR_MS),), HOUR_MS),
        ((NotDue(rule="interval", what="since the last run", due_ms=NOW_MS + HOUR_MS, more=2),), DAY_MS),
        ((NotDue(rule="interval", what="since the last run", due_ms=NOW_MS + 9 * DAY_MS),), DAY_MS),
        ((NotDue(rule="interval", what="since the last run", due_ms=NOW_MS - HOUR_MS),), 0),
    ],
)
def test_what_found_nothing_to_do_waits_a_day_or_until_time_alone_makes_it_due(rules: tuple[NotDue, ...], idle_ms: int) -> None:
    end = JobEnd.of_record(nothing_to_do(*rules), Spent())
    assert (end.state, end.outcome, end.idle_until_ms) == (JobState.DONE, "nothing-to-do", NOW_MS + idle_ms)


def test_what_its_limits_did_not_allow_is_tried_again_in_an_hour() -> None:
    rule = NotDue(rule="max-bytes", what="bytes read", knob="max-bytes", until="more is allowed")
    limited = JobEnd.of_record(nothing_to_do(rule), Spent(), {"max-bytes": 5})
    assert (limited.outcome, limited.idle_until_ms) == (LIMITED, NOW_MS + HOUR_MS)
    by_policy = JobEnd.of_record(nothing_to_do(rule), Spent(), {"max-files": 5})
    assert by_policy.outcome == "nothing-to-do"


def test_a_failed_run_says_why_its_first_group_failed() -> None:
    record = make_record(make_group(0, state=GroupState.FAILED, reason="No such file: a.parquet"), outcome=RunOutcome.FAILED)
    end = JobEnd.of_record(record, Spent())
    assert (end.state, end.idle_until_ms) == (JobState.FAILED, None)
    assert end.message.endswith("No such file: a.parquet")
