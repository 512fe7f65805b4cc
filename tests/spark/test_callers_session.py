"""A session that belongs to somebody else: its catalogs are used, its configuration and its life are left alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import neve
from neve.catalogs.reader import MetadataReader
from neve.errors import BadRequestError, CorruptMetadataError, InDoubtError, TableNotFoundError
from neve.maintenance.orphans import Verdict
from neve.operations.inspect import read
from neve.rewrite.group import Kernel
from neve.rewrite.record import RunOutcome
from neve.spark.caller.catalogs import CallerCatalog, open_caller
from neve.spark.caller.session import is_too_old
from neve.spark.caller.storage import task_storage
from neve.storage.files import REFUSAL
from neve.table.depth import Depth
from neve.table.state import TableName
from tests.builders.local_catalog import local_catalog
from tests.builders.pyiceberg_tables import loaded_table
from tests.builders.table_contents import by_path, duckdb_query, plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id BIGINT, other BIGINT, region STRING, at TIMESTAMP"
ROWS = 48_000
"""In four files, enough that column chunks are worth copying."""
HADOOP, S3 = "org.apache.iceberg.hadoop.HadoopFileIO", "org.apache.iceberg.aws.s3.S3FileIO"
Session = Callable[..., "SparkSession"]


@pytest.fixture(autouse=True)
def fresh_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings, and a state store of its own."""
    for name in [name for name in os.environ if name.startswith(("NEVE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    """Makes sessions as a caller has them: far from UTC, with a catalog that no settings describe."""

    def make(**more: str) -> SparkSession:
        opened = spark.newSession()
        mine = {key.replace("catalog.local", "catalog.mine"): value for key, value in local_catalog(tmp_path).items()}
        for key, value in {"spark.sql.session.timeZone": "Asia/Kolkata", **mine, **more}.items():
            opened.conf.set(key, value)
        return opened

    return make


@pytest.fixture
def caller(session: Session) -> Iterator[SparkSession]:
    """A session that must be found as it was left."""
    opened = session()
    before = configuration(opened)
    yield opened
    assert configuration(opened) == before
    assert opened.range(3).count() == 3


def configuration(spark: SparkSession) -> dict[str, str]:
    return {row.key: row.value for row in spark.sql("SET").collect()}


def fill(spark: SparkSession, table: str, files: int = 4, rows: int = 40, *, how: str = "PARTITIONED BY (region)") -> None:
    """Files of random numbers, written at once; every fourth row has no time."""
    properties = "TBLPROPERTIES ('write.distribution-mode' = 'none')"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING iceberg {how} {properties}")
    at = "CASE WHEN id % 4 = 0 THEN NULL ELSE TIMESTAMP'2025-01-17 23:45:00' + make_interval(0, 0, 0, 0, 0, 0, id) END"
    values = f"SELECT xxhash64(id), xxhash64(id, 1), 'eu', {at} FROM range(0, {rows}, 1, {files})"
    spark.sql(f"INSERT INTO {table} {values}")


def content(spark: SparkSession, table: str) -> list[str]:
    """The rows as DuckDB reads them, at the newest metadata."""
    spark.sql(f"REFRESH TABLE {table}")
    newest = spark.sql(f"SELECT file FROM {table}.metadata_log_entries ORDER BY timestamp DESC, file DESC").first()
    assert newest is not None
    return plain_rows(duckdb_query(f"SELECT * FROM iceberg_scan('{newest.file}')"))


def catalogs(spark: SparkSession) -> AbstractContextManager[CallerCatalog]:
    return open_caller(spark, lambda name, table: MetadataReader(name, table, None))


@pytest.mark.parametrize(("kernel", "ansi"), [("copy", "true"), ("arrow", "false"), ("spark", "true"), ("spark", "false")])
def test_a_table_is_compacted_and_the_session_stays_as_it_was(session: Session, kernel: Any, ansi: str) -> None:
    caller = session(**{"spark.sql.ansi.enabled": ansi})
    fill(caller, "mine.db.t", rows=ROWS)
    before, configured = content(caller, "mine.db.t"), configuration(caller)

    record = neve.compact("mine.db.t", spark=caller, kernel=kernel, tier="full", force=True)

    assert (record.outcome, record.table, record.kernels) == (RunOutcome.DONE, "mine.db.t", {Kernel(kernel): 1}), record.groups
    assert caller.sql("SELECT * FROM mine.db.t.files").count() == 1  # seen at once, without REFRESH
    assert content(caller, "mine.db.t") == before
    assert len(before) == ROWS
    assert configuration(caller) == configured
    again = neve.compact("mine.db.t", spark=caller)
    assert again.outcome is RunOutcome.NOTHING_TO_DO


@pytest.mark.parametrize(
    "option", [("write-format", "orc"), ("merge-schema", "true"), ("branch", "audit"), ("vectorization-enabled", "true")]
)
def test_options_that_a_session_gives_to_every_writer_change_nothing_of_a_compaction(
    session: Session, option: tuple[str, str]
) -> None:
    caller = session(**{f"spark.datasource.iceberg.{option[0]}": option[1]})
    fill(caller, "mine.db.t")
    caller.sql("ALTER TABLE mine.db.t CREATE BRANCH audit")
    head, columns = caller.sql("SELECT snapshot_id FROM mine.db.t.refs WHERE name = 'audit'").first(), COLUMNS.count(",") + 1
    before = content(caller, "mine.db.t")

    record = neve.compact("mine.db.t", spark=caller, kernel="spark", tier="full", force=True)

    assert (record.outcome, record.kernels) == (RunOutcome.DONE, {Kernel.SPARK: 1}), record.groups
    assert [row.file_format for row in caller.sql("SELECT file_format FROM mine.db.t.files").collect()] == ["PARQUET"]
    assert content(caller, "mine.db.t") == before
    assert caller.sql("SELECT snapshot_id FROM mine.db.t.refs WHERE name = 'audit'").first() == head
    assert len(caller.table("mine.db.t").columns) == columns


def test_an_explicit_option_is_in_the_files_and_a_configured_one_that_is_not_is_in_the_record(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", rows=ROWS)
    before = content(caller, "mine.db.t")
    asked = neve.table("mine.db.t", spark=caller).tier("full").force()

    record = asked.compression_codec("snappy").row_group_rows(20_000).compact()
    assert (record.kernels, record.not_applied) == ({Kernel.ARROW: 1}, ())
    assert parquet_of(caller, "mine.db.t") == ({"SNAPPY"}, 20_000)

    caller.sql("ALTER TABLE mine.db.t SET TBLPROPERTIES ('neve.row-group-rows' = '7000')")
    copied = asked.kernel("copy").compact().not_applied
    assert [(one.kernel, one.origin, one.value) for one in copied] == [
        (Kernel.COPY, "table property write.parquet.compression-codec", "zstd"),  # set by Iceberg when it made the table
        (Kernel.COPY, "table property neve.row-group-rows", "7000"),
    ]
    assert parquet_of(caller, "mine.db.t") == ({"SNAPPY"}, 20_000)
    (by_spark,) = asked.compression_codec("gzip").kernel("spark").compact().not_applied
    assert (by_spark.kernel, by_spark.option) == (Kernel.SPARK, "row-group-rows")
    assert parquet_of(caller, "mine.db.t") == ({"GZIP"}, ROWS)
    assert content(caller, "mine.db.t") == before


def parquet_of(spark: SparkSession, table: str) -> tuple[set[str], int]:
    """The codecs of the table's files and the most rows of a row group, as pyarrow reads them."""
    spark.sql(f"REFRESH TABLE {table}")
    paths = [row.file_path.removeprefix("file:") for row in spark.sql(f"SELECT file_path FROM {table}.files").collect()]
    groups = [footer.row_group(i) for footer in map(pq.read_metadata, paths) for i in range(footer.num_row_groups)]
    return {group.column(0).compression for group in groups}, max(group.num_rows for group in groups)


def test_every_call_takes_the_session(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", files=6)
    looked = neve.inspect("mine.db.t", spark=caller, sample=2)
    assert (looked.table, looked.data_files, looked.rows) == ("mine.db.t", 6, 40)
    assert len(neve.plan("mine.db.t", spark=caller, tier="major").groups) == 1
    assert neve.after_write("mine.db.t", spark=caller, every=1).small_files_count == 6
    spoken = neve.table("mine.db.t", spark=caller).min_input_files(2).force().compact()
    assert (spoken.files_compacted, spoken.files_written) == (6, 1)
    with neve.connect(spark=caller) as opened:
        assert [str(name) for name in opened.tables("mine")] == ["mine.db.t"]
        assert [str(name) for name in opened.tables("mine.db")] == ["mine.db.t"]
        assert opened.inspect("mine.db.t").data_files == 1


def test_names_are_read_as_spark_reads_them(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", files=1, rows=1)
    caller.sql("USE mine.db")
    assert neve.inspect("t", spark=caller).table == "mine.db.t"
    assert neve.inspect("db.t", spark=caller).table == "mine.db.t"
    with neve.connect(spark=caller) as opened:
        assert [str(name) for name in opened.tables()] == ["mine.db.t"]


def test_spark_catalog_is_a_catalog_like_any_other(session: Session, tmp_path: Path) -> None:
    prefix = "spark.sql.catalog.spark_catalog"
    hadoop = {prefix: "org.apache.iceberg.spark.SparkSessionCatalog", f"{prefix}.type": "hadoop"}
    caller = session(**hadoop, **{f"{prefix}.warehouse": str(tmp_path / "session")})
    fill(caller, "default.mine", files=3)
    before = content(caller, "default.mine")
    record = neve.compact("default.mine", spark=caller, force=True)
    assert (record.outcome, record.table, record.files_written) == (RunOutcome.DONE, "spark_catalog.default.mine", 1)
    assert content(caller, "default.mine") == before


def test_tables_that_are_certainly_not_iceberg_are_no_doubt_and_keep_their_directories(
    session: Session, tmp_path: Path
) -> None:
    prefix = "spark.sql.catalog.spark_catalog"
    hadoop = {prefix: "org.apache.iceberg.spark.SparkSessionCatalog", f"{prefix}.type": "hadoop"}
    caller = session(**hadoop, **{f"{prefix}.warehouse": str(tmp_path / "session")})
    fill(caller, "mine.db.t", files=1, rows=4)
    fill(caller, "mine.db.other", files=1, rows=4)
    try:
        caller.sql("CREATE TABLE default.plain (id INT, Provider STRING) USING parquet")
        caller.sql("CREATE TABLE default.lines (id INT) USING csv")
        session().sql("CREATE VIEW default.seen AS SELECT 1 AS id")
        with catalogs(caller) as opened:
            [place] = opened.other_format(TableName(catalog="spark_catalog", namespace=("default",), name="plain")) or ()
            assert place.endswith("/plain")
            assert opened.other_format(TableName(catalog="spark_catalog", namespace=("default",), name="seen")) == ()
            assert opened.other_format(TableName(catalog="mine", namespace=("db",), name="other")) is None
            listed = [str(name) for name in opened.tables(("spark_catalog",))]
        assert {f"spark_catalog.default.{name}" for name in ("plain", "lines", "seen")} <= set(listed)
        assert neve.orphans("mine.db.t", spark=caller, dry_run=True).taken == 0

        inside = f"{_pyiceberg_table(tmp_path).location()}/data/inside"
        caller.sql(f"CREATE TABLE default.inside (id INT) USING parquet LOCATION '{inside}'")
        with pytest.raises(InDoubtError, match=r"spark_catalog\.default\.inside has files in .*/data/inside$"):
            neve.orphans("mine.db.t", spark=caller, dry_run=True)
        caller.sql("DROP TABLE default.inside")

        fill(caller, "mine.db.gone", files=1, rows=4)
        shutil.rmtree(tmp_path / "db" / "gone")
        with pytest.raises(InDoubtError, match=r"not known where mine\.db\.gone has its files"):
            neve.orphans("mine.db.t", spark=caller, dry_run=True)
        assert neve.orphans("mine.db.t", spark=caller, dry_run=True, ignore_tables=["mine.db.gone"]).taken == 0

        with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
            database.execute("DELETE FROM iceberg_tables WHERE table_name = 'gone'")
            lost = f"{tmp_path}/db/other/metadata/lost.metadata.json"
            database.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'other'", (lost,))
        with pytest.raises(InDoubtError, match=r"not known where mine\.db\.other has its files"):
            neve.orphans("mine.db.t", spark=caller, dry_run=True)
    finally:
        for name in ("plain", "lines", "inside"):
            caller.sql(f"DROP TABLE IF EXISTS default.{name}")
        session().sql("DROP VIEW IF EXISTS default.seen")


def test_files_of_a_table_whose_namespace_has_a_dot_in_its_name_are_kept(session: Session, tmp_path: Path) -> None:
    """Read as the namespaces `a` and `x`, it would be taken for a namespace `x` that is there as well."""
    prefix = "spark.sql.catalog.dirs"
    hadoop = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "hadoop"}
    caller = session(**hadoop, **{f"{prefix}.warehouse": str(tmp_path / "dirs")})
    fill(caller, "mine.db.t", files=1, rows=4, how="")
    fill(caller, "dirs.x.other", files=1, rows=4, how="")
    fill(caller, "dirs.`a.x`.importer", files=0, rows=0, how="")
    data = Path(_pyiceberg_table(tmp_path).location()) / "data"
    [written] = data.glob("*.parquet")
    imported = Path(shutil.copy(written, data / "imported.parquet"))
    caller.sql(f"CALL dirs.system.add_files(table => '`a.x`.importer', source_table => '`parquet`.`{imported}`')")
    os.utime(imported, (0, 0))
    with catalogs(caller) as opened:
        assert [str(name) for name in opened.tables(("dirs",))] == ["dirs.a.x.importer", "dirs.x.other"]
    found = neve.orphans("mine.db.t", spark=caller, dry_run=True)
    assert (found.taken, found.warnings) == (0, ("1 file kept: needed by dirs.a.x.importer",))


def test_files_of_tables_that_the_session_does_not_list_are_kept(session: Session, tmp_path: Path) -> None:
    """Iceberg lists no table at the root of a catalog of directories, and none in the directory of another table."""
    prefix = "spark.sql.catalog.dirs"
    hadoop = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "hadoop"}
    caller = session(**hadoop, **{f"{prefix}.warehouse": str(tmp_path / "dirs")})
    fill(caller, "mine.db.t", files=1, rows=4, how="")
    fill(caller, "dirs.db.outer", files=0, rows=0, how="")
    importers = ("mine.top", "dirs.top", "dirs.db.outer.inner", "dirs.top.inner")
    data = Path(_pyiceberg_table(tmp_path).location()) / "data"
    [written] = data.glob("*.parquet")
    for number, name in enumerate(importers):
        fill(caller, name, files=0, rows=0, how="")
        imported = Path(shutil.copy(written, data / f"imported-{number}.parquet"))
        catalog, _, table = name.partition(".")
        caller.sql(f"CALL {catalog}.system.add_files(table => '{table}', source_table => '`parquet`.`{imported}`')")
        os.utime(imported, (0, 0))
    with catalogs(caller) as opened:
        assert {str(name) for name in opened.survey("dirs")} == {"dirs.db.outer", *importers[1:]}
        assert {str(name) for name in opened.survey("mine")} == {"mine.db.t", "mine.top"}
        assert {str(name) for name in opened.tables(("dirs",))} == {"dirs.db.outer"}
    found = neve.orphans("mine.db.t", spark=caller, dry_run=True)
    assert (found.taken, found.verdicts[Verdict.SHARED]) == (0, len(importers))


def test_the_metadata_is_what_the_plain_reader_reads(caller: SparkSession, tmp_path: Path) -> None:
    fill(caller, "mine.db.t", files=3, how="PARTITIONED BY (days(at), region)")
    caller.sql("ALTER TABLE mine.db.t ADD PARTITION FIELD bucket(4, id)")
    caller.sql("ALTER TABLE mine.db.t WRITE ORDERED BY id DESC")
    caller.sql("INSERT INTO mine.db.t SELECT 1, 2, 'us', NULL")
    caller.sql("ALTER TABLE mine.db.t CREATE BRANCH audit")
    name = TableName(catalog="mine", namespace=("db",), name="t")
    plain = MetadataReader(name, loaded_table(_pyiceberg_table(tmp_path)), None)
    with catalogs(caller) as opened:
        theirs = opened.open(name)
    assert theirs.state() == plain.state()
    ours = read(theirs, Depth.FILES)
    assert ours.manifests == plain.manifests()
    assert ours.files is not None
    assert by_path(ours.files) == by_path(plain.files(plain.manifests()))
    paths = ours.files.table.column("path").to_pylist()
    assert theirs.sample_row_groups(paths) == plain.sample_row_groups(paths) == dict.fromkeys(paths, 1)


def _pyiceberg_table(directory: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("mine", uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory))) as opened:
        return opened.load_table(("db", "t"))


def test_partitions_of_a_large_table_are_named_in_utc_whatever_the_sessions_zone(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", files=1, rows=3, how="PARTITIONED BY (at)")
    settings: dict[str, object] = {"inspect.python-max-files": 0}
    with neve.connect(spark=caller, settings=settings) as by_spark, neve.connect(spark=caller) as plain:
        found = [by_spark.inspect("mine.db.t").partitions, plain.inspect("mine.db.t").partitions]
    names = [sorted(partition.partition for partition in partitions or ()) for partitions in found]
    assert names[0] == names[1]
    assert names[0] == ["at=2025-01-17T18%3A15%3A01%2B00%3A00", "at=2025-01-17T18%3A15%3A02%2B00%3A00", "at=null"]


def test_what_is_no_iceberg_table_is_told_apart(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", files=1, rows=1)
    with pytest.raises(TableNotFoundError, match=r"^Cannot load table mine\.db\.nothing: .*cannot be found") as missing:
        neve.inspect("mine.db.nothing", spark=caller)
    assert missing.value.hint == "The session's catalogs are local, mine, spark_catalog."
    with pytest.raises(BadRequestError, match=r"^Cannot use mine\.db\.t\.files: it is no table with files of its own$"):
        neve.inspect("mine.db.t.files", spark=caller)
    caller.sql("CREATE TABLE default.plain (id INT) USING parquet")
    try:
        with pytest.raises(BadRequestError, match=r"^Cannot load table spark_catalog\.default\.plain: ") as foreign:
            neve.inspect("spark_catalog.default.plain", spark=caller)
    finally:
        caller.sql("DROP TABLE default.plain")
    assert "spark.sql.catalog.lake" in str(foreign.value.hint)


def test_a_file_that_is_gone_is_told_by_its_name(caller: SparkSession) -> None:
    fill(caller, "mine.db.t", files=1, rows=1)
    with catalogs(caller) as opened:
        reader = opened.open(TableName(catalog="mine", namespace=("db",), name="t"))
    [manifest] = reader.manifests()
    Path(manifest.path).unlink()
    with pytest.raises(CorruptMetadataError, match=f"^Cannot read {manifest.path}: the file is missing$"):
        reader.files((manifest,))


def test_a_session_and_a_warehouse_cannot_both_be_meant(caller: SparkSession) -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot open elsewhere in the caller's session: it has catalogs of its own$"):
        neve.inspect("db.t", spark=caller, warehouse="elsewhere")


def test_a_spark_connect_session_gets_a_clear_answer() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    message = r"^Cannot use this Spark session: Spark Connect gives no access to Iceberg's Java API$"
    with pytest.raises(BadRequestError, match=message):
        neve.inspect("db.t", spark=remote)


def test_what_is_no_session_is_refused(caller: SparkSession) -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot use this Spark session: it is a SparkContext, not a SparkSession$"):
        neve.inspect("db.t", spark=caller.sparkContext)


@pytest.mark.parametrize(
    ("version", "refused"),
    [("1.9.2", True), ("1.10.0-amzn-1", True), ("1.11.0", False), ("1.12.0-SNAPSHOT", False), ("2.0.0", False)],
)
def test_an_iceberg_that_is_too_old_is_known_by_its_version(version: str, refused: bool) -> None:
    assert is_too_old(version) is refused


_BARE = """
import neve
from neve.errors import BadRequestError
from pyspark.sql import SparkSession

conf = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
for stopped in (False, True):
    try:
        neve.inspect("db.t", spark=spark)
    except BadRequestError as error:
        print(error, error.hint, sep="|")
    if not stopped:
        print(spark.range(2).count())
        spark.stop()
"""


def test_a_session_without_iceberg_or_without_life_is_told_what_it_lacks(tmp_path: Path) -> None:
    from neve.spark.runtime import distribution
    from neve.spark.runtime.java import find_java

    version = distribution.installed().spark_version
    environ = {**os.environ, "JAVA_HOME": str(find_java(spark_version=version).home)}
    done = subprocess.run(
        [sys.executable, "-c", _BARE], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *lines, alive, stopped = done.stdout.splitlines()
    assert first.startswith("Cannot use this Spark session: it has no Iceberg runtime|Configure the session")
    assert f"iceberg-spark-runtime-{'.'.join(version.split('.')[:2])}_" in lines[0]
    assert len(lines) == 5
    assert alive == "2"
    assert stopped == "Cannot use this Spark session: it has been stopped|Pass one that runs."


def test_files_behind_hadoop_are_rewritten_by_spark_with_the_reason(session: Session, tmp_path: Path) -> None:
    prefix, place = "spark.sql.catalog.away", f"pfile://{tmp_path}/away"
    through = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "hadoop", f"{prefix}.warehouse": place}
    caller = session(**through, **{f"{prefix}.hadoop.fs.pfile.impl": "org.apache.hadoop.fs.ProxyLocalFileSystem"})
    fill(caller, "away.db.t", files=3)
    name = TableName(catalog="away", namespace=("db",), name="t")
    reason = f"the session reads {place}/db/t through Hadoop, whose credentials tasks do not have"
    with catalogs(caller) as opened:
        assert opened.storage(name) == {REFUSAL: reason}
    refusal = r"^Cannot commit to away\.db\.t: .*Neve cannot verify that a rename on pfile:// never overwrites a file"
    with pytest.raises(BadRequestError, match=refusal):
        neve.compact("away.db.t", spark=caller, force=True)
    caller.conf.set(f"{prefix}.lock-impl", "org.apache.iceberg.util.LockManagers$InMemoryLockManager")
    rows = caller.table("away.db.t").orderBy("id").collect()
    record = neve.compact("away.db.t", spark=caller, force=True)
    assert [(group.kernel, group.refusals) for group in record.groups] == [(Kernel.SPARK, (reason,))]
    assert caller.table("away.db.t").orderBy("id").collect() == rows


def test_the_storage_of_a_local_table_needs_nothing(session: Session) -> None:
    caller = session(**{"spark.sql.catalog.mine.io-impl": "org.apache.iceberg.io.ResolvingFileIO"})
    fill(caller, "mine.db.t", files=1, rows=1)
    with catalogs(caller) as opened:
        assert opened.storage(TableName(catalog="mine", namespace=("db",), name="t")) == {}


def test_java_words_for_s3_become_those_of_tasks() -> None:
    java = {
        "uri": "http://127.0.0.1:1",
        "io-impl": S3,
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "hidden",
        "s3.session-token": "token",
        "s3.path-style-access": "true",
        "s3.multipart.size": "1",
        "s3.remote-signing-enabled": "false",
        "client.region": "eu-west-1",
        "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
        "client.assume-role.arn": "arn:role",
    }
    assert task_storage(S3, java, locations=["s3://b/t"], default_filesystem="file:///") == {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "hidden",
        "s3.session-token": "token",
        "s3.region": "eu-west-1",
        "s3.role-arn": "arn:role",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.sse.type", "kms"),
        ("s3.acl", "public-read"),
        ("s3.write.tags.team", "a"),
        ("s3.remote-signing-enabled", "true"),
        ("client.factory", "com.example.Factory"),
        ("client.credentials-provider", "com.example.Provider"),
        ("client.assume-role.external-id", "x"),
    ],
)
def test_what_tasks_would_not_follow_keeps_them_away(key: str, value: str) -> None:
    found = task_storage(S3, {key: value, "s3.access-key-id": "key"}, locations=["s3://b/t"], default_filesystem="file:///")
    assert found == {REFUSAL: f"the session's storage property {key} means nothing to tasks"}


@pytest.mark.parametrize(
    ("io_class", "location", "default", "reason"),
    [
        (HADOOP, "/a/t", "file:///", None),
        (HADOOP, "file:/a/t", "hdfs://n", None),
        (HADOOP, "/a/t", "hdfs://n", "the session reads /a/t through Hadoop, whose credentials tasks do not have"),
        (HADOOP, "s3a://b/t", "file:///", "the session reads s3a://b/t through Hadoop, whose credentials tasks do not have"),
        ("com.example.TheirFileIO", "/a/t", "file:///", "the session reads files by TheirFileIO, which tasks cannot"),
    ],
)
def test_only_what_is_surely_local_is_left_to_tasks(io_class: str, location: str, default: str, reason: str | None) -> None:
    found = task_storage(io_class, {}, locations=["file:/a", location], default_filesystem=default)
    assert found == ({} if reason is None else {REFUSAL: reason})
