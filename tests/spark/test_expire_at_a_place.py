"""`Neve.expire` as every surface calls it: policy and origins, runs that have not ended, and a run that is killed halfway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.compose import Neve
from neve.core.journal import JournaledRun
from neve.core.record import RunOutcome
from neve.core.retention import Keep
from neve.engines.spark.reachable import SparkReachability
from neve.settings import load_settings
from neve.state import StateStore
from tests.maintenance.quarantining import ListedQuarantine
from tests.spark.expiring import Expiring, Later
from tests.spark.rewriting import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def quarantine(monkeypatch: pytest.MonkeyPatch) -> ListedQuarantine:
    """What the store is told of files, kept in memory."""
    listed = ListedQuarantine()
    for name in ("record_doomed", "quarantined", "settle_doomed"):
        method = getattr(listed, name)
        monkeypatch.setattr(StateStore, name, lambda _, *args, m=method, **words: m(*args, **words), raising=False)
    return listed


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.places")
    flags = {"state.url": f"sqlite:///{tmp_path}/state.db", "policy.metadata-keep": "50"}
    settings = load_settings(environ={}, flags=flags)
    with Neve.open(settings, warehouse=str(warehouse), environ={}, clock=Later(10)) as opened:
        vars(opened._place)["spark"] = spark
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
        killing.setattr(SparkReachability, "lost_since", kill)
        with pytest.raises(KeyboardInterrupt):
            neve.expire("places.t")
    assert (len(table.snapshots()), quarantine.rows, neve.runs("places.t")[0].outcome) == (3, {}, None)

    assert neve.expire("places.t", metadata_only=True).recorded == 0
    assert [run.outcome for run in neve.runs("places.t") if run.kind == "expire"] == ["done", None]

    record = neve.expire("places.t")
    assert (record.outcome, record.expired) == (RunOutcome.DONE, ())
    assert quarantine.recorded == set(told.listed)
    ended = {run.outcome for run in neve.runs("places.t") if run.kind == "expire"}
    assert ended == {"done", "failed"}
    assert neve.expire("places.t").outcome is RunOutcome.NOTHING_TO_DO
    table.remove_recorded()
    assert table.ids_of_refs() == {"main": [4]}
