"""What a job used, by the record of its run."""

from __future__ import annotations

import pytest

from neve.maintenance.manifests import ManifestGroup, ManifestsRecord, Motive
from neve.maintenance.record import Operation
from neve.rewrite.cost import Rates
from neve.rewrite.record import RunOutcome
from neve.rewrite.usage import CpuSeconds, Requests, Used
from neve.scheduling.job import Spent
from neve.service.job_end import used
from neve.table.units import MIB
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_expiry
from tests.builders.run_records import make_group, make_record

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
