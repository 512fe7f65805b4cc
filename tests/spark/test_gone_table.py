"""A table that is dropped, renamed or replaced while a run is at work on it: the run ends, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.api import Neve
from neve.errors import TableGoneError
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.rewrite import SparkEngine
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count(1)
COLUMNS = "(id BIGINT, p STRING) USING iceberg PARTITIONED BY (p)"


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    bench = Bench(spark, warehouse, "gone", f"t{next(_NUMBERS)}")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.gone")
    bench.sql(f"CREATE TABLE {{}} {COLUMNS}")
    for i in range(4):
        bench.sql(f"INSERT INTO {{}} VALUES ({i}, 'a')")
    return bench


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Neve]:
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{tmp_path / 'state.db'}"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


def renamed(bench: Bench) -> None:
    with closing(bench.catalog()) as catalog:
        catalog.rename_table((bench.namespace, bench.name), (bench.namespace, f"{bench.name}_moved"))


def dropped(bench: Bench) -> None:
    with closing(bench.catalog()) as catalog:
        catalog.drop_table((bench.namespace, bench.name))


def replaced(bench: Bench) -> None:
    dropped(bench)
    with closing(bench.catalog()) as catalog:
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField, StringType

        columns = [NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False)]
        catalog.create_table((bench.namespace, bench.name), Schema(*columns), location=f"{bench.warehouse}/new/{bench.name}")


@pytest.mark.parametrize("at", ["before the commit", "at the commit"])
@pytest.mark.parametrize("strike", [dropped, renamed, replaced])
def test_a_run_whose_table_is_gone_ends_with_a_clear_error_and_touches_no_other_table(
    strike: object, at: str, bench: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = bench.on_disk()
    owner, method = (SparkEngine, "run") if at == "before the commit" else (TableBridge, "rewrite")
    real = getattr(owner, method)

    def struck(*args: object, **words: object) -> object:
        done = list(real(*args, **words)) if method == "run" else None
        strike(bench)  # type: ignore[operator]
        return done if method == "run" else real(*args, **words)

    monkeypatch.setattr(owner, method, struck)
    message = rf"^Cannot go on with {bench.sql_name}: (it was dropped|another table has its name)"
    with pytest.raises(TableGoneError, match=message) as gone:
        neve.compact(f"gone.{bench.name}", request=Request(force=True))
    (run,) = neve.runs()
    assert (run.outcome, run.record["table_gone"]) == (RunOutcome.FAILED.value, str(gone.value))
    assert f"Run {run.run_id[:8]} has ended" in str(gone.value.hint)
    assert neve.unfinished() == ()
    written = {output["path"] for group in run.record["groups"] for output in group["outputs"]}
    assert written
    assert bench.on_disk() == files | written  # every file is explained by the record, and none was removed
    with closing(bench.catalog()) as catalog:
        if strike is renamed:
            moved = catalog.load_table((bench.namespace, f"{bench.name}_moved"))
            assert "neve.lease" not in moved.properties
            assert sorted(moved.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
        if strike is replaced:
            new = catalog.load_table((bench.namespace, bench.name))
            assert (new.snapshots(), dict(new.properties)) == ([], {})


def test_an_interrupted_run_whose_table_was_dropped_since_is_kept_until_somebody_gives_it_up(
    bench: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TableBridge, "rewrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            neve.compact(f"gone.{bench.name}", request=Request(force=True))
    (found,) = neve.unfinished()
    replaced(bench)
    with pytest.raises(TableGoneError, match=rf"^Cannot resume run {found.run_id[:8]}: .*replaced") as refused:
        neve.resume(found.run_id)
    assert f"neve resume {found.run_id[:8]} --abandon" in str(refused.value.hint)
    assert neve.unfinished() != ()
    files = bench.on_disk()
    assert neve.resume(found.run_id, abandon=True).outcome is RunOutcome.FAILED
    assert neve.unfinished() == ()
    assert bench.on_disk() == files
