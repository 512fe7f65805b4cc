"""`Neve.expire` as every surface calls it: policy and origins, runs that have not ended, and a run that is killed halfway."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.commit.marker import PROPERTY
from neve.errors import CatalogUnreachableError
from neve.maintenance.retention import Keep
from neve.operations.reachable import Reachable
from neve.rewrite.compactions import CompactionCommit
from neve.rewrite.group import Tier
from neve.rewrite.journal import JournaledRun
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.spark.maintenance.expiry import SparkSnapshotRemoval
from neve.state import StateStore
from tests.builders.expired_tables import Expiring, Later
from tests.builders.quarantine_lists import ListedQuarantine
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)


@pytest.fixture
def quarantine(monkeypatch: pytest.MonkeyPatch) -> ListedQuarantine:
    """What the store is told of files, kept in memory."""
    listed = ListedQuarantine()
    for name in ("record_candidates", "quarantined", "settle_candidates"):
        method = getattr(listed, name)
        monkeypatch.setattr(StateStore, name, lambda _, *args, m=method, **words: m(*args, **words), raising=False)
    return listed


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.places")
    flags = {"state.url": f"sqlite:///{tmp_path}/state.db", "policy.metadata-keep": "50"}
    settings = load_settings(environ={}, flags=flags)
    with Neve.open(settings, warehouse=str(warehouse), environ={}, clock=Later(10)) as opened:
        opened.connection.session = spark
        yield opened


def test_runs_that_have_not_ended_keep_their_snapshot_and_a_killed_expiry_is_gone_on_with(
    spark: SparkSession, warehouse: Path, tmp_path: Path, neve: Neve, quarantine: ListedQuarantine, monkeypatch: Any
) -> None:
    table = Expiring.make(Bench(spark, warehouse, "places", "t"), **{"history.expire.max-snapshot-age-ms": "86400000"})
    table.quarantine = quarantine
    for i in (1, 2, 3):
        table.append(i)
    _, plan = table.bench.plan()
    table.overwrite(4)
    with StateStore.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.begin(JournaledRun(run_id="r" * 32, owner="elsewhere:1", started_ms=1, plan=plan, groups=()))

    told = neve.expire("places.t", dry_run=True)
    assert (len(told.expired), told.kept) == (2, {Keep.HEAD: 1, Keep.RUN: 2})
    origins = {setting.key: (setting.value, setting.origin) for setting in told.settings}
    assert origins["snapshot-keep"] == ("24 h", "table property history.expire.max-snapshot-age-ms")
    assert origins["snapshot-min-count"] == ("1", "default")
    assert told.metadata_keep == 50

    def kill(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as killing:
        killing.setattr(Reachable, "lost_since", kill)
        with pytest.raises(KeyboardInterrupt):
            neve.expire("places.t")
    assert (len(table.snapshots()), quarantine.files, neve.runs("places.t")[0].outcome) == (3, {}, "interrupted")

    assert neve.expire("places.t", metadata_only=True).recorded == 0
    assert [run.outcome for run in neve.runs("places.t") if run.kind == "expire"] == ["done", "interrupted"]

    record = neve.expire("places.t")
    assert (record.outcome, record.expired) == (RunOutcome.DONE, ())
    assert quarantine.recorded == set(told.listed)
    ended = {run.outcome for run in neve.runs("places.t") if run.kind == "expire"}
    assert ended == {"done", "failed"}
    assert neve.expire("places.t").outcome is RunOutcome.NOTHING_TO_DO
    table.remove_recorded()
    assert table.ids_of_refs() == {"main": [4]}


ALL = Request(tier=Tier.FULL, force=True)


@pytest.fixture
def appended(spark: SparkSession, warehouse: Path, neve: Neve) -> Expiring:  # noqa: ARG001 - makes the namespace
    """Three appends, which all are ten days old by the clock of `neve`."""
    table = Expiring.make(Bench(spark, warehouse, "places", f"appended{next(NUMBERS)}"))
    for i in (1, 2, 3):
        table.append(i)
    return table


def test_a_compaction_expires_snapshots_under_its_own_lease_and_counts_them(
    neve: Neve, appended: Expiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, holders = f"places.{appended.bench.name}", list[str]()
    expire = SparkSnapshotRemoval.expire

    def watched(past: SparkSnapshotRemoval, *args: Any, **words: Any) -> bool:
        holders.append(appended.bench.load().properties[PROPERTY])
        return expire(past, *args, **words)

    monkeypatch.setattr(SparkSnapshotRemoval, "expire", watched)
    before = appended.snapshots()
    record = neve.compact(name, request=ALL, expire_snapshots=True, snapshot_retention_hours=24)
    assert (record.outcome, record.files_compacted) == (RunOutcome.DONE, 3)
    assert [record.recorded_id in holder for holder in holders] == [True]
    assert record.stats is not None
    assert record.expiry is not None
    assert (record.stats.snapshots_expired, record.expiry.snapshots, record.expiry.outcome) == (3, 3, RunOutcome.DONE)
    assert appended.snapshots() == list(record.snapshots)  # also the one that the run was planned from, since it has ended
    assert set(before).isdisjoint(record.snapshots)
    assert PROPERTY not in appended.bench.load().properties
    assert appended.ids_of_refs() == {"main": [1, 2, 3]}

    expired = neve.run(record.expiry.run_id or "").record
    assert {setting["key"]: setting["origin"] for setting in expired["settings"]}["snapshot-keep"] == (
        "flag --snapshot-retention-hours"
    )
    (row,) = [row for row in neve.quarantine(name) if row.reason == "data file of expired snapshots"]
    assert (row.run_id, row.files, row.files_without_size) == (record.expiry.run_id, 3, 0)
    assert [(run.kind, run.outcome) for run in neve.runs(name)] == [("expire", "done"), ("compact", "done")]
    assert neve.run(record.recorded_id).record["stats"]["snapshots_expired"] == 3

    again = neve.compact(name, expire_snapshots=True)
    assert again.expiry is not None
    assert (again.outcome, again.expiry.outcome, again.expiry.run_id) == (
        RunOutcome.NOTHING_TO_DO,
        RunOutcome.NOTHING_TO_DO,
        None,
    )
    appended.append(4)
    later = neve.compact(name, expire_snapshots=True)  # one small file: nothing to compact, and one snapshot too old
    assert later.stats is not None
    assert (later.outcome, later.stats.snapshots_expired) == (RunOutcome.NOTHING_TO_DO, 1)
    assert appended.ids_of_refs() == {"main": [1, 2, 3, 4]}


def test_an_expiry_that_fails_does_not_cost_the_record_of_the_compaction(
    neve: Neve, appended: Expiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> bool:
        raise CatalogUnreachableError("Cannot reach the catalog")

    name = f"places.{appended.bench.name}"
    monkeypatch.setattr(SparkSnapshotRemoval, "history", fail)
    record = neve.compact(name, request=ALL, expire_snapshots=True)
    assert record.stats is not None
    assert record.expiry is not None
    assert (record.outcome, record.stats.snapshots_expired) == (RunOutcome.DONE, 0)
    assert (record.expiry.outcome, record.expiry.reason) == (RunOutcome.FAILED, "Cannot reach the catalog")
    assert [(run.kind, run.outcome) for run in neve.runs(name)] == [("compact", "done")]


def test_a_compaction_that_another_tool_rolled_back_is_withdrawn_by_the_next_expiry(
    neve: Neve, appended: Expiring, tmp_path: Path
) -> None:
    name = f"places.{appended.bench.name}"
    record = neve.compact(name, request=ALL)
    with StateStore.open(f"sqlite:///{tmp_path}/state.db") as store:
        (commit,) = store.compaction_commits(record.table_uuid)
        assert commit == CompactionCommit(record.recorded_id, "main", record.snapshots[0], commit.committed_ms)
        appended.sql(f"CALL local.system.rollback_to_snapshot('{name}', {record.snapshot_before})")
        assert set(neve.expire(name).expired) >= set(record.snapshots)
        assert store.compaction_commits(record.table_uuid) == ()
