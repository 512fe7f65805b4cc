"""Tables at locations that are not URLs: every operation works with `#`, `?`, `%20`, spaces and more in the path."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.api import Neve
from neve.catalogs.opening import IcebergCatalog, spark_conf
from neve.errors import MissingFileError
from neve.maintenance.quarantine import Fate
from neve.operations.requests import OrphansRequest
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import CatalogSettings
from neve.spark.maintenance.judging import as_read, key_of
from neve.spark.maintenance.reachable import SparkReachability
from neve.spark.table.bridge import TableBridge
from neve.table.location import CUT, Spellings, address, cut_by_java
from tests.builders.spark_connections import opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 86_400
FORCE = Request(force=True)
ODD = {"odd": "a#b?c=d&e%20f+g h:i@ü€ \\ \n 'q' \"[1] {2} *", "dots": "gone/..//./plain"}


class Ahead:
    days = 0.0

    def now_ms(self) -> int:
        return int((time.time() + self.days * DAYS) * 1000)


@pytest.fixture(scope="module")
def clock() -> Ahead:
    return Ahead()


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, clock: Ahead, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.odd")
    with opened(spark, warehouse, tmp_path_factory.mktemp("odd-state") / "state.db", clock=clock) as found:
        yield found


@pytest.fixture(autouse=True)
def clean(spark: SparkSession, warehouse: Path, clock: Ahead) -> Iterator[None]:
    clock.days = 0
    yield
    for row in spark.sql("SHOW TABLES IN local.odd").collect():
        spark.sql(f"DROP TABLE local.odd.{row.tableName}")
    shutil.rmtree(warehouse / "odd", ignore_errors=True)


def make(spark: SparkSession, name: str, location: str, columns: str = "id BIGINT, v STRING") -> None:
    escaped = location.replace("\\", "\\\\").replace("\n", "\\n").replace("'", "\\'")
    version = "TBLPROPERTIES ('format-version' = '3')" if "VARIANT" in columns else ""
    spark.sql(f"CREATE TABLE local.odd.{name} ({columns}) USING iceberg LOCATION '{escaped}' {version}")


def fill(spark: SparkSession, name: str, *starts: int) -> None:
    for start in starts:
        spark.sql(f"INSERT INTO local.odd.{name} SELECT id, 'x' FROM range({start}, {start + 10}, 1, 1)")


def ids(spark: SparkSession, name: str) -> list[int]:
    spark.catalog.refreshTable(f"local.odd.{name}")
    return sorted(row.id for row in spark.sql(f"SELECT id FROM local.odd.{name}").collect())


@pytest.mark.parametrize("kind", ODD)
def test_everything_works_on_a_table_at_an_odd_location(
    spark: SparkSession, warehouse: Path, neve: Neve, clock: Ahead, kind: str
) -> None:
    home = f"{warehouse}/odd/{kind}/{ODD[kind]}"
    make(spark, kind, ("file://" if kind == "odd" else "") + home)
    fill(spark, kind, 0, 10, 20)
    table, real = f"odd.{kind}", Path(os.path.normpath(home))

    assert neve.inspect(table).data_files == 3
    assert len(neve.plan(table, request=FORCE).groups) == 1
    done = neve.compact(table, request=FORCE)
    assert (done.outcome, neve.inspect(table).data_files) == (RunOutcome.DONE, 1), done
    assert ids(spark, kind) == list(range(30))

    clock.days = 20
    assert neve.expire(table, older_than="1d", keep=1).outcome is RunOutcome.DONE
    orphan = real / "data" / "orphan #1?.parquet"
    orphan.write_bytes(b"PAR1")
    for path in real.rglob("*"):
        os.utime(path, (time.time() - 10 * DAYS,) * 2)
    found = neve.orphans(table, OrphansRequest())
    assert found.taken == 1, found
    clock.days = 23
    neve.settle(table)
    trashed = [file for file in neve.quarantined(table) if file.fate is Fate.TRASHED]
    assert address(next(f.path for f in trashed if "orphan" in f.path)).local_path == str(orphan)
    assert len(trashed) >= 5
    assert not orphan.exists()
    assert all(Path(address(str(file.trash_path)).local_path).is_file() for file in trashed)
    assert all(str(file.trash_path).startswith(address(file.path).home) for file in trashed)
    neve.restore(found.run_id)
    assert orphan.read_bytes() == b"PAR1"
    clock.days = 40
    assert neve.purge(table).files == len(trashed) - 1
    assert ids(spark, kind) == list(range(30))


def test_tables_we_cannot_understand_do_not_stop_the_others(
    spark: SparkSession, warehouse: Path, neve: Neve, catalog: SqlCatalog
) -> None:
    make(spark, "plain", f"{warehouse}/odd/plain")
    fill(spark, "plain", 0)
    make(spark, "hash", f"{warehouse}/odd/a#b")
    make(spark, "variants", f"{warehouse}/odd/variants", "id BIGINT, v VARIANT")
    spark.sql("INSERT INTO local.odd.variants SELECT id, parse_json('{\"a\": 1}') FROM range(0, 10, 1, 1)")
    spark.sql("INSERT INTO local.odd.variants SELECT id, parse_json('[2]') FROM range(10, 20, 1, 1)")
    make(spark, "later", f"{warehouse}/odd/later")
    make(spark, "empty", f"{warehouse}/odd/empty")
    later = Path(address(catalog.load_table("odd.later").metadata_location).local_path)
    whole = later.read_text()
    later.write_text(re.sub(r'"format-version" *: *\d', '"format-version" : 4', whole))
    shutil.rmtree(warehouse / "odd/empty")
    try:
        assert neve.inspect("odd.variants").data_files == 2
        assert len(neve.plan("odd.variants", request=FORCE).groups) == 1
        record = neve.orphans("odd.plain", OrphansRequest(dry_run=True))
        assert record.listed > 0
    finally:
        later.write_text(whole)
        with closing(Bench(spark, warehouse, "odd", "empty").catalog()) as entries:
            entries.drop_table("odd.empty")


def test_variant_columns_are_compacted_unchanged(spark: SparkSession, warehouse: Path, neve: Neve) -> None:
    make(spark, "variants", f"{warehouse}/odd/variants", "id BIGINT, v VARIANT")
    for start in (0, 10):
        spark.sql(
            f"INSERT INTO local.odd.variants SELECT id, parse_json('{{\"a\": 1}}') FROM range({start}, {start + 10}, 1, 1)"
        )
    before = spark.sql("SELECT id, to_json(v) AS v FROM local.odd.variants").collect()
    record = neve.compact("odd.variants", request=FORCE)
    assert record.outcome is RunOutcome.DONE, record
    assert neve.inspect("odd.variants").data_files == 1
    spark.catalog.refreshTable("local.odd.variants")
    after = spark.sql("SELECT id, to_json(v) AS v FROM local.odd.variants").collect()
    assert sorted(after) == sorted(before)


def test_spark_takes_locations_apart_as_the_parser_does(spark: SparkSession) -> None:
    homes = ["", "file:", "file://", "s3://b", "S3A://b", "gs://b", "hdfs://nn:1", "abfss://c@h"]
    tails = ["/t/f", "/t/a#b/f", "/t/a?b", "/t//x/./y/../f/", "/t/a%20b c", "/t/\n#?", "/t/s3://x?y", "/#", "/a#b\n"]
    paths = [home + tail for home in homes for tail in tails] + ["a:b/c#d", "rel/x?y"]
    frame = spark.createDataFrame([(path,) for path in paths], "path string")
    found = sorted(row.path for row in as_read(frame).collect())
    assert found == sorted([*paths, *filter(None, map(cut_by_java, paths))])
    keys = frame.select("path", key_of(frame.path).alias("key")).collect()
    assert {row.path: row.key for row in keys} == {path: Spellings().parse(path).key for path in paths}
    assert re.fullmatch(CUT, "s3://b/t#x")


def test_a_purge_after_old_metadata_was_registered_again_names_the_restore(
    spark: SparkSession, warehouse: Path, neve: Neve, clock: Ahead
) -> None:
    make(spark, "again", f"{warehouse}/odd/again")
    fill(spark, "again", 0, 10)
    neve.compact("odd.again", request=FORCE)
    bench = Bench(spark, warehouse, "odd", "again")
    old = bench.load().metadata_location
    clock.days = 20
    expired = neve.expire("odd.again", older_than="1d", keep=1)
    clock.days = 22
    neve.settle("odd.again")
    with closing(bench.catalog()) as catalog:
        catalog.drop_table("odd.again")
        catalog.register_table("odd.again", old)
    spark.catalog.refreshTable("local.odd.again")
    clock.days = 40
    with pytest.raises(MissingFileError) as raised:
        neve.purge("odd.again")
    text = str(raised.value)
    assert re.match(
        r"^Cannot purge files of local\.odd\.again: its metadata needs \S+, which run [0-9a-f]{8} moved to the", text
    )
    assert "older metadata was registered again" in text
    assert f"neve restore {expired.recorded_id[:8]} --table local.odd.again" in str(raised.value.hint)
    bridge = TableBridge(spark, neve.connection.name("odd.again"))
    with pytest.raises(MissingFileError):
        list(SparkReachability(spark, bridge).needed(["/x"]))
    neve.restore(expired.run_id)
    assert ids(spark, "again") == list(range(20))
    assert neve.purge("odd.again").outcome is RunOutcome.NOTHING_TO_DO


@pytest.mark.parametrize("name", ["we#ird ?%20", "plain"])
def test_spark_opens_the_database_of_a_warehouse_with_an_odd_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    catalog, directory = f"weird{len(name)}", tmp_path / name
    directory.mkdir()
    settings = CatalogSettings.model_validate({"type": "sql", "warehouse": str(directory)})
    client = IcebergCatalog(catalog, settings, environ={}).client
    client.create_namespace("db")
    client.create_table("db.t", schema=pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2]}))
    for key, value in spark_conf(catalog, settings, {}).items():
        spark.conf.set(key, value)
    assert [row.id for row in spark.sql(f"SELECT id FROM {catalog}.db.t ORDER BY id").collect()] == [1, 2]
