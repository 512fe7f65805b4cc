"""Directories as catalogs, the hadoop layout, and what each client is told of the same description."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.hadoop import refuse_commits
from neve.catalogs.opening import IcebergCatalog, pyiceberg_properties, spark_conf, spark_needs
from neve.catalogs.storage import scheme
from neve.errors import BadRequestError, CatalogUnreachableError, CorruptMetadataError, TableNotFoundError
from neve.operations.inspect import read
from neve.settings import CatalogSettings
from neve.table.depth import Depth
from neve.table.state import TableName

NAME = TableName(catalog="local", namespace=("db",), name="t")
OpenAt = Callable[[Path], IcebergCatalog]


def described(**settings: Any) -> CatalogSettings:
    return CatalogSettings.model_validate({key.replace("_", "-"): value for key, value in settings.items()})


class TestWarehouseDirectory:
    def test_looking_creates_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(BadRequestError, match="there is no such directory"):
            open_warehouse(str(tmp_path / "absent"))
        with pytest.raises(BadRequestError, match=r"holds neither catalog\.db nor tables of a hadoop catalog"):
            open_warehouse(str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_finds_tables_under_the_name_they_were_written_with(self, warehouse: Path) -> None:
        with sqlite3.connect(warehouse / "catalog.db") as database:
            database.execute("UPDATE iceberg_tables SET catalog_name = 'prod'")
            database.execute("UPDATE iceberg_namespace_properties SET catalog_name = 'prod'")
        database.close()
        name, settings = open_warehouse(str(warehouse))
        assert [str(table) for table in IcebergCatalog(name, settings, environ={}).tables()] == ["prod.db.t"]

    def test_two_catalogs_in_one_database_must_be_described(self, warehouse: Path) -> None:
        with sqlite3.connect(warehouse / "catalog.db") as database:
            database.execute(
                "INSERT INTO iceberg_tables SELECT 'other', table_namespace, 'u', 'x', '', 'TABLE' FROM iceberg_tables"
            )
        database.close()
        with pytest.raises(BadRequestError, match=r"holds 2 catalogs \(local, other\)"):
            open_warehouse(str(warehouse))

    def test_a_damaged_database_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "catalog.db").write_text("not a database, but long enough to be mistaken for one")
        with pytest.raises(CorruptMetadataError, match="Cannot open catalog"):
            open_warehouse(str(tmp_path))

    def test_a_missing_table_is_named(self, warehouse: Path, catalog_at: OpenAt) -> None:
        with pytest.raises(TableNotFoundError, match=r"Cannot load table local\.db\.nope: there is no such table"):
            catalog_at(warehouse).open(NAME.model_copy(update={"name": "nope"}))
        with pytest.raises(TableNotFoundError, match=r"Cannot load table local\.nope\.t: there is no such table"):
            catalog_at(warehouse).open(NAME.model_copy(update={"namespace": ("nope",)}))


class TestHadoopLayout:
    @pytest.fixture
    def hadoop(self, warehouse: Path) -> Path:
        """The same tables with their metadata named as a hadoop catalog names it."""
        (warehouse / "catalog.db").unlink()
        metadata = warehouse / "db/t/metadata"
        for number, file in enumerate(sorted(metadata.glob("*.metadata.json")), 1):
            shutil.move(file, metadata / f"v{number}.metadata.json")
        (metadata / "version-hint.text").write_text("4")
        return warehouse

    def test_reads_the_newest_version(self, hadoop: Path, catalog_at: OpenAt) -> None:
        state = read(catalog_at(hadoop).open(NAME), Depth.FILES)
        assert state.metadata_location.endswith("/v4.metadata.json")
        assert len(state.files or ()) == 3

    @pytest.mark.parametrize("hint", [b"1", b"3", b"garbage", b"\xff\xfe", "²".encode(), None])
    def test_a_late_or_missing_hint_does_not_hide_newer_versions(
        self, hadoop: Path, catalog_at: OpenAt, hint: bytes | None
    ) -> None:
        file = hadoop / "db/t/metadata/version-hint.text"
        file.write_bytes(hint) if hint else file.unlink()
        assert catalog_at(hadoop).open(NAME).state().metadata_location.endswith("/v4.metadata.json")

    def test_lists_tables(self, hadoop: Path, catalog_at: OpenAt) -> None:
        (hadoop / "empty-namespace").mkdir()
        assert [str(table) for table in catalog_at(hadoop).tables()] == ["local.db.t"]

    def test_a_missing_table_is_named(self, hadoop: Path, catalog_at: OpenAt) -> None:
        with pytest.raises(TableNotFoundError, match=r"Cannot load table local\.db\.nope: there is no such table"):
            catalog_at(hadoop).open(NAME.model_copy(update={"name": "nope"}))

    def test_commits_on_an_object_store_need_a_lock_manager(self) -> None:
        with pytest.raises(BadRequestError, match="an object store cannot rename atomically"):
            refuse_commits(described(type="hadoop", warehouse="s3://bucket/wh"))
        refuse_commits(described(type="hadoop", warehouse="s3://bucket/wh", lock_manager="org.example.Locks"))
        refuse_commits(described(type="hadoop", warehouse="/data/wh"))

    @pytest.mark.parametrize("warehouse", ["hdfs://namenode/wh", "viewfs://cluster/wh"])
    def test_commits_on_hdfs_need_a_lock_manager_too(self, warehouse: str) -> None:
        with pytest.raises(BadRequestError, match=r"Neve cannot verify that a rename on (hdfs|viewfs):// never overwrites"):
            refuse_commits(described(type="hadoop", warehouse=warehouse))
        refuse_commits(described(type="hadoop", warehouse=warehouse, lock_manager="org.example.Locks"))

    def test_a_plain_path_is_on_the_default_file_system_of_spark(self) -> None:
        with pytest.raises(BadRequestError, match=r"^Cannot commit to /data/wh: .* a rename on hdfs:// never overwrites"):
            refuse_commits(described(type="hadoop", warehouse="/data/wh"), default_filesystem="hdfs://namenode:8020")
        refuse_commits(described(type="hadoop", warehouse="file:///data/wh"), default_filesystem="hdfs://namenode:8020")


class TestOneDescriptionForEveryClient:
    S3 = {
        "endpoint": "http://localhost:9000",
        "region": "eu-1",
        "access-key-id": "id",
        "secret-access-key": "${env:SECRET}",
        "path-style-access": True,
    }
    ENVIRON = {"SECRET": "hush", "TOKEN": "t0", "PASSWORD": "p/w"}

    def test_rest_on_s3(self) -> None:
        settings = described(
            type="rest", uri="http://c:8181", warehouse="s3://b/w", token="${env:TOKEN}", storage={"s3": self.S3}
        )
        python = pyiceberg_properties(settings, self.ENVIRON)
        spark = spark_conf("lake", settings, self.ENVIRON)
        assert {key: python[key] for key in ("uri", "token", "s3.endpoint", "s3.secret-access-key", "s3.region")} == {
            "uri": "http://c:8181",
            "token": "t0",
            "s3.endpoint": "http://localhost:9000",
            "s3.secret-access-key": "hush",
            "s3.region": "eu-1",
        }
        assert spark == {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "rest",
            "spark.sql.catalog.lake.uri": "http://c:8181",
            "spark.sql.catalog.lake.warehouse": "s3://b/w",
            "spark.sql.catalog.lake.token": "t0",
            "spark.sql.catalog.lake.rest.client.connection-timeout-ms": "10000",
            "spark.sql.catalog.lake.rest.client.socket-timeout-ms": "600000",
            "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "spark.sql.catalog.lake.s3.endpoint": "http://localhost:9000",
            "spark.sql.catalog.lake.client.region": "eu-1",
            "spark.sql.catalog.lake.s3.access-key-id": "id",
            "spark.sql.catalog.lake.s3.secret-access-key": "hush",
            "spark.sql.catalog.lake.s3.path-style-access": "true",
        }
        assert spark_needs(settings, self.ENVIRON) == {"aws"}

    def test_a_catalog_may_know_its_warehouse_by_a_name(self) -> None:
        words: dict[str, Any] = {"uri": "http://c:8181", "warehouse": "prod", "storage": {"s3": self.S3}}
        for kind in ("rest", "nessie"):
            settings = described(type=kind, **words)
            spark = spark_conf("lake", settings, self.ENVIRON)
            assert spark["spark.sql.catalog.lake.warehouse"] == "prod"
            assert spark["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
            assert spark_needs(settings, self.ENVIRON) == {"aws"}
        assert spark_needs(described(type="sql", warehouse="prod", storage={"s3": self.S3}), self.ENVIRON) == {"sqlite"}
        assert spark_needs(described(type="rest", **(words | {"warehouse": "/prod"})), self.ENVIRON) == set()

    def test_sqlite_in_the_warehouse(self, tmp_path: Path) -> None:
        settings = described(type="sql", warehouse=str(tmp_path))
        database = tmp_path / "catalog.db"
        assert pyiceberg_properties(settings, {})["uri"] == f"sqlite:///{database}"
        conf = spark_conf("local", settings, {})
        assert conf["spark.sql.catalog.local.uri"] == f"jdbc:sqlite:{database}?busy_timeout=30000"
        assert conf["spark.sql.catalog.local.jdbc.schema-version"] == "V1"
        assert spark_needs(settings, {}) == {"sqlite"}

    def test_postgres_password_by_reference(self) -> None:
        uri = "postgresql://neve:${env:PASSWORD}@db:5433/cat"
        conf = spark_conf("pg", described(type="sql", uri=uri, warehouse="/wh"), {"PASSWORD": "hush"})
        assert conf["spark.sql.catalog.pg.uri"] == "jdbc:postgresql://db:5433/cat"
        assert conf["spark.sql.catalog.pg.jdbc.user"] == "neve"
        assert conf["spark.sql.catalog.pg.jdbc.password"] == "hush"

    @pytest.mark.parametrize(("query", "seconds"), [("", "10"), ("?connect_timeout=3", "3")])
    def test_connecting_to_postgres_is_bounded_by_the_url_or_by_default(self, query: str, seconds: str) -> None:
        settings = described(type="sql", uri=f"postgresql://neve@db/cat{query}", warehouse="/wh")
        python, spark = pyiceberg_properties(settings, {}), spark_conf("pg", settings, {})
        assert python["uri"] == f"postgresql+psycopg2://neve@db/cat?connect_timeout={seconds}"
        assert spark["spark.sql.catalog.pg.jdbc.connectTimeout"] == seconds
        assert spark["spark.sql.catalog.pg.jdbc.loginTimeout"] == seconds

    @pytest.mark.parametrize("uri", ["http://n:19120", "http://n:19120/api/v2", "http://n:19120/iceberg/"])
    def test_nessie_is_reached_by_its_iceberg_address_with_the_reference(self, uri: str) -> None:
        settings = described(type="nessie", uri=uri, ref="dev/x", warehouse="s3://b/w", storage={"s3": self.S3})
        assert pyiceberg_properties(settings, self.ENVIRON)["uri"] == "http://n:19120/iceberg/dev%2Fx"
        spark = spark_conf("n", settings, self.ENVIRON)
        assert spark["spark.sql.catalog.n.uri"] == "http://n:19120/iceberg/dev%2Fx"
        assert spark["spark.sql.catalog.n.header.X-Iceberg-Access-Delegation"] == ""

    def test_own_properties_win(self) -> None:
        settings = described(type="rest", uri="http://c", properties={"s3.request-timeout": 5, "rest-page-size": 7})
        assert pyiceberg_properties(settings, {})["s3.request-timeout"] == "5"
        assert spark_conf("c", settings, {})["spark.sql.catalog.c.rest-page-size"] == "7"

    def test_vended_credentials_are_asked_for_only_when_wanted(self) -> None:
        key = "header.X-Iceberg-Access-Delegation"
        asked, plain = described(type="rest", uri="http://c", vended_credentials=True), described(type="rest", uri="http://c")
        assert [pyiceberg_properties(s, {})[key] for s in (asked, plain)] == ["vended-credentials", ""]
        assert spark_conf("c", asked, {})[f"spark.sql.catalog.c.{key}"] == "vended-credentials"
        assert f"spark.sql.catalog.c.{key}" not in spark_conf("c", plain, {})

    @pytest.mark.parametrize(
        ("location", "kind"),
        [("/a", "file"), ("file:///a", "file"), ("s3a://b", "s3"), ("S3://b", "s3"), ("gs://b", "gs"), ("wasbs://b", "abfss")],
    )
    def test_spellings_of_storage(self, location: str, kind: str) -> None:
        assert scheme(location) == kind


def test_a_catalog_that_does_not_answer_says_so_in_one_line() -> None:
    catalog = IcebergCatalog("lake", described(type="rest", uri="http://127.0.0.1:9"), environ={})
    with pytest.raises(CatalogUnreachableError, match="Cannot load catalog lake: the catalog did not answer") as caught:
        catalog.open(NAME)
    assert "\n" not in str(caught.value)
