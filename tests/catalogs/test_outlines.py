"""What is said of tables that we cannot parse: which are corrupt, which are not understood, which are nothing at all."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.errors import CorruptMetadataError, NotUnderstoodError, TableNotFoundError
from neve.operations.inspect import read
from neve.settings import CatalogSettings
from neve.table.depth import Depth
from neve.table.state import TableName
from tests.builders.warehouses import ROWS

NAME = TableName(catalog="local", namespace=("db",), name="t")
OpenAt = Callable[[Path], IcebergCatalog]


def current(warehouse: Path) -> Path:
    """The newest metadata file of the table."""
    return max((warehouse / "db/t/metadata").glob("*.metadata.json"))


def change(warehouse: Path, act: Callable[[dict[str, Any]], None]) -> Path:
    file = current(warehouse)
    document = json.loads(file.read_text())
    act(document)
    file.write_text(json.dumps(document))
    return file


def with_types(*types: Any) -> Callable[[dict[str, Any]], None]:
    """Columns of these types, in format v3."""

    def act(document: dict[str, Any]) -> None:
        document |= {"format-version": 3, "next-row-id": 0}
        fields = document["schemas"][0]["fields"]
        fields += [{"id": 50 + i, "name": f"c{i}", "required": False, "type": kind} for i, kind in enumerate(types)]

    return act


STRANGE = ["variant", "geometry(OGC:CRS84)", "geography(OGC:CRS84, karney)", "unknown", "timestamp_ns", "timestamptz_ns"]
LATER = ["interval_year", {"type": "tensor", "shape": [2]}, {"type": "list", "element-id": 90, "element": "variant"}]


class TestTypesThatPyIcebergDoesNotKnow:
    @pytest.mark.parametrize("kind", [*STRANGE, *LATER], ids=str)
    def test_a_table_with_such_a_column_is_read(self, warehouse: Path, catalog_at: OpenAt, kind: Any) -> None:
        change(warehouse, with_types(kind))
        state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
        assert (state.columns, len(state.files or ())) == (3, 3)
        known = {column.name: column.type for column in state.fields}
        assert known.keys() >= {"id", "region"}
        assert ("c0" in known) == (kind in STRANGE[1:])

    def test_defaults_of_such_a_column_do_no_harm(self, warehouse: Path, catalog_at: OpenAt) -> None:
        def act(document: dict[str, Any]) -> None:
            with_types("interval_year")(document)
            document["schemas"][0]["fields"][-1] |= {"initial-default": "P1Y", "write-default": "P2Y"}

        change(warehouse, act)
        assert catalog_at(warehouse).open(NAME).state().columns == 3

    def test_compressed_metadata_is_read_too(self, warehouse: Path, catalog_at: OpenAt) -> None:
        file = change(warehouse, with_types("variant"))
        file.write_bytes(gzip.compress(file.read_bytes()))
        assert catalog_at(warehouse).open(NAME).state().columns == 3


class TestWhatIsCorrupt:
    @pytest.mark.parametrize(
        ("act", "words"),
        [
            (lambda d: d.pop("location"), "it has no location"),
            (lambda d: d.pop("schemas"), "it has no schemas"),
            (lambda d: d.pop("table-uuid"), "it has no table-uuid"),
            (lambda d: d.update({"current-schema-id": 77}), "its current-schema-id 77 is not among its schemas"),
            (lambda d: d.update({"snapshots": [{}]}), "a snapshot has no snapshot-id"),
        ],
    )
    def test_a_document_that_breaks_the_specification(
        self, warehouse: Path, catalog_at: OpenAt, act: Callable[[dict[str, Any]], None], words: str
    ) -> None:
        change(warehouse, act)
        with pytest.raises(CorruptMetadataError, match=words):
            catalog_at(warehouse).open(NAME)

    @pytest.mark.parametrize(
        ("text", "words"), [("", "the file is empty"), ("{", "it is not JSON"), ("[]", "not a JSON object")]
    )
    def test_a_file_that_is_no_document(self, warehouse: Path, catalog_at: OpenAt, text: str, words: str) -> None:
        current(warehouse).write_text(text)
        with pytest.raises(CorruptMetadataError, match=words):
            catalog_at(warehouse).open(NAME)

    @pytest.mark.parametrize(
        ("act", "words"),
        [
            (lambda d: d.update({"format-version": 4}), "format version 4 is newer than this Neve"),
            (lambda d: d["snapshots"][0]["summary"].update({"operation": "merge"}), "merge"),
            (lambda d: d["refs"]["main"].update({"type": "stash"}), "stash"),
        ],
    )
    def test_what_we_merely_do_not_know_is_not_called_corrupt(
        self, warehouse: Path, catalog_at: OpenAt, act: Callable[[dict[str, Any]], None], words: str
    ) -> None:
        change(warehouse, act)
        with pytest.raises(NotUnderstoodError, match=rf"^Cannot read table local\.db\.t: .*{words}") as raised:
            catalog_at(warehouse).open(NAME)
        assert raised.value.code == "not-understood"
        found = catalog_at(warehouse).outline(NAME)
        assert found is not None
        assert found.location == str(warehouse / "db/t")


class TestOutline:
    def test_names_every_file_that_the_metadata_names(self, warehouse: Path, catalog_at: OpenAt) -> None:
        change(
            warehouse,
            lambda d: d.update(
                {
                    "statistics": [{"statistics-path": "/s.puffin"}],
                    "partition-statistics": [{"statistics-path": "/p.parquet"}],
                    "properties": {"write.data.path": "s3://b/elsewhere", "owner": "x"},
                }
            ),
        )
        document = json.loads(current(warehouse).read_text())
        found = catalog_at(warehouse).outline(NAME)
        assert found is not None
        assert found.uuid == document["table-uuid"]
        assert found.places == (str(warehouse / "db/t"), "s3://b/elsewhere")
        assert Path(found.metadata_location) == current(warehouse)
        assert found.metadata_log == tuple(entry["metadata-file"] for entry in document["metadata-log"])
        assert found.manifest_lists == {s["snapshot-id"]: s["manifest-list"] for s in document["snapshots"]}
        assert found.paths[-2:] == ("/s.puffin", "/p.parquet")
        assert len(found.paths) == 1 + 3 + 3 + 2

    def test_snapshots_of_v1_may_name_manifests_themselves(self, warehouse: Path, catalog_at: OpenAt) -> None:
        def act(document: dict[str, Any]) -> None:
            document["format-version"] = 1
            document.pop("table-uuid")
            for snapshot in document["snapshots"]:
                snapshot["manifests"] = [f"{snapshot.pop('manifest-list')}.m"]

        change(warehouse, act)
        found = catalog_at(warehouse).outline(NAME)
        assert found is not None
        assert (found.uuid, len(found.manifests), found.manifest_lists) == (None, 3, {})


class TestNothingOrDoubt:
    def test_no_such_table_is_nothing(self, warehouse: Path, catalog_at: OpenAt) -> None:
        assert catalog_at(warehouse).outline(NAME.model_copy(update={"name": "nope"})) is None
        assert catalog_at(warehouse).outline(NAME.model_copy(update={"namespace": ("nope",)})) is None

    @pytest.mark.parametrize("leave_directory", [True, False])
    def test_an_entry_without_any_metadata_file_is_nothing(
        self, warehouse: Path, catalog_at: OpenAt, leave_directory: bool
    ) -> None:
        shutil.rmtree(warehouse / "db/t")
        if leave_directory:
            (warehouse / "db/t/metadata").mkdir(parents=True)
        assert catalog_at(warehouse).outline(NAME) is None

    def test_an_empty_metadata_file_alone_is_nothing(self, warehouse: Path, catalog_at: OpenAt) -> None:
        last = current(warehouse)
        for file in last.parent.glob("*.metadata.json"):
            file.unlink()
        last.touch()
        with pytest.raises(CorruptMetadataError, match="and others are there"):  # manifests: rows may be wanted back
            catalog_at(warehouse).outline(NAME)
        for file in last.parent.glob("*.avro"):
            file.unlink()
        assert catalog_at(warehouse).outline(NAME) is None

    @pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_bytes(b"")])
    def test_other_metadata_files_beside_it_are_doubt(
        self, warehouse: Path, catalog_at: OpenAt, spoil: Callable[[Path], None]
    ) -> None:
        spoil(current(warehouse))
        with pytest.raises(CorruptMetadataError, match="and others are there") as raised:
            catalog_at(warehouse).outline(NAME)
        assert "/00002-" in str(raised.value.hint)

    def test_damaged_metadata_is_doubt(self, warehouse: Path, catalog_at: OpenAt) -> None:
        current(warehouse).write_text("{")
        with pytest.raises(CorruptMetadataError, match="it is not JSON"):
            catalog_at(warehouse).outline(NAME)

    def test_a_disk_that_may_not_be_mounted_is_doubt(self, warehouse: Path, catalog_at: OpenAt) -> None:
        shutil.rmtree(warehouse / "db")
        with pytest.raises(CorruptMetadataError, match="so is the directory") as raised:
            catalog_at(warehouse).outline(NAME)
        assert "mounted" in str(raised.value.hint)


class TestHadoopLayout:
    @pytest.fixture
    def hadoop(self, warehouse: Path) -> Path:
        (warehouse / "catalog.db").unlink()
        metadata = warehouse / "db/t/metadata"
        for number, file in enumerate(sorted(metadata.glob("*.metadata.json")), 1):
            shutil.move(file, metadata / f"v{number}.metadata.json")
        (metadata / "version-hint.text").write_text("4")
        return warehouse

    def test_a_directory_without_metadata_files_is_nothing(self, hadoop: Path, catalog_at: OpenAt) -> None:
        (hadoop / "db/left/metadata").mkdir(parents=True)
        (hadoop / "db/left/metadata/version-hint.text").write_text("3")
        (hadoop / "empty").mkdir()
        catalog = catalog_at(hadoop)
        left = NAME.model_copy(update={"name": "left"})
        assert left not in list(catalog.tables())
        assert catalog.outline(left) is None
        with pytest.raises(TableNotFoundError):
            catalog.open(left)

    @pytest.mark.parametrize("hint", ["1", None])
    def test_a_table_whose_first_versions_are_gone_is_found(self, hadoop: Path, catalog_at: OpenAt, hint: str | None) -> None:
        metadata = hadoop / "db/t/metadata"
        (metadata / "version-hint.text").unlink()
        for version in (1, 2):
            (metadata / f"v{version}.metadata.json").unlink()
        if hint:
            (metadata / "version-hint.text").write_text(hint)
        found = catalog_at(hadoop).outline(NAME)
        assert found is not None
        assert found.metadata_location.endswith("/v4.metadata.json")

    def test_an_empty_version_beside_others_is_doubt(self, hadoop: Path, catalog_at: OpenAt) -> None:
        (hadoop / "db/t/metadata/v4.metadata.json").write_bytes(b"")
        with pytest.raises(CorruptMetadataError, match="has no content, and others are there"):
            catalog_at(hadoop).outline(NAME)

    def test_compressed_versions_are_read(self, hadoop: Path, catalog_at: OpenAt) -> None:
        file = hadoop / "db/t/metadata/v4.metadata.json"
        file.with_name("v4.metadata.json.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
        assert catalog_at(hadoop).open(NAME).state().metadata_location.endswith("/v4.metadata.json.gz")


CONFIG = {"s3.region": "of-the-table", "s3.access-key-id": "from-the-config"}
GRANT = {"storage-credentials": [{"prefix": "/", "config": {"s3.access-key-id": "granted"}}]}


class TestRest:
    """A server that answers for one table with the document of a real one."""

    @pytest.fixture
    def rest(self, warehouse: Path) -> Iterator[IcebergCatalog]:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                file = current(warehouse)
                known = {"metadata-location": str(file), "metadata": json.loads(file.read_text()), "config": CONFIG, **GRANT}
                body, status = json.dumps({"defaults": {}, "overrides": {}}).encode(), 200
                if "/tables/" in self.path:
                    is_there = self.path.endswith("/t")
                    status = 200 if is_there else 404
                    error = {"error": {"message": "none", "type": "NoSuchTableException", "code": 404}}
                    body = json.dumps(known if is_there else error).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            settings = {"type": "rest", "uri": f"http://127.0.0.1:{server.server_port}"}
            yield IcebergCatalog("local", CatalogSettings.model_validate(settings), environ={})
            server.shutdown()
            thread.join()

    def test_a_table_with_a_variant_column_is_read(self, warehouse: Path, rest: IcebergCatalog) -> None:
        change(warehouse, with_types("variant"))
        assert rest.open(NAME).state().columns == 3
        found = rest.outline(NAME)
        assert found is not None
        assert found.location == str(warehouse / "db/t")
        assert Path(found.metadata_location) == current(warehouse)

    def test_a_later_version_is_not_understood_and_has_an_outline(self, warehouse: Path, rest: IcebergCatalog) -> None:
        change(warehouse, lambda d: d.update({"format-version": 4}))
        with pytest.raises(NotUnderstoodError, match="format version 4 is newer than this Neve"):
            rest.open(NAME)
        assert rest.outline(NAME) is not None
        assert rest.outline(NAME.model_copy(update={"name": "nope"})) is None

    @pytest.mark.parametrize("version", [2, 4])
    def test_manifest_lists_are_read_with_what_the_catalog_granted(
        self, warehouse: Path, rest: IcebergCatalog, version: int
    ) -> None:
        change(warehouse, lambda d: d.update({"format-version": version}))
        found = rest.references(NAME)
        assert found is not None
        assert [len(found.manifests(path)) for path in found.lists] == [1, 2, 3]
        properties = found.io.properties
        assert (properties["s3.region"], properties["s3.access-key-id"]) == ("of-the-table", "granted")
        if version == 2:
            assert properties == rest.client.load_table(("db", "t")).io.properties


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b", "a b", "a+b", "ü", "a//b", "a/./x/../b", "a\\b"])
@pytest.mark.parametrize("home", ["", "file:", "file://"])
def test_a_warehouse_and_a_table_may_lie_anywhere(tmp_path: Path, name: str, home: str) -> None:
    catalog, settings = open_warehouse(f"{home}{tmp_path}/{name}", create=True)
    client = IcebergCatalog(catalog, settings, environ={}).client
    client.create_namespace("db")
    client.create_table("db.t", schema=ROWS.schema, location=f"{home}{tmp_path}/other/{name}").append(ROWS)
    catalog, settings = open_warehouse(f"{home}{tmp_path}/{name}")
    opened = IcebergCatalog(catalog, settings, environ={})
    assert list(opened.tables()) == [NAME]
    assert len(read(opened.open(NAME), Depth.FILES).files or ()) == 1
    assert (tmp_path / "other" / os.path.normpath(name) / "data").is_dir()
    found = opened.outline(NAME)
    assert found is not None
    assert found.location == f"{home}{tmp_path}/other/{name}"
