"""All that a table's metadata names, and which tables and namespaces of a catalog cannot be read."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from neve.catalogs import live_paths as module
from neve.catalogs.live_paths import ParallelManifestPaths, live_paths, summarized
from neve.catalogs.opening import IcebergCatalog
from neve.catalogs.references import TableReferences
from neve.errors import CorruptMetadataError, NeveError, TableNotFoundError
from neve.settings import CatalogSettings
from neve.table.state import TableName

NAME = TableName(catalog="local", namespace=("db",), name="t")
OpenAt = Callable[[Path], IcebergCatalog]


def loaded(catalog: IcebergCatalog) -> TableReferences:
    found = catalog.references(NAME)
    assert found is not None
    return found


def manifests(catalog: IcebergCatalog) -> dict[str, bytes]:
    """The bytes of every manifest that a snapshot names."""
    references = loaded(catalog)
    found = {one.path: one.length_bytes for path in references.lists for one in references.manifests(path)}
    return {path: references.read(path, length) for path, length in found.items()}


def test_every_snapshot_of_every_ref_is_there_and_every_file_exists(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    table = catalog.client.load_table("db.t")
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
    table.delete("id < 5")
    references = loaded(catalog)
    assert len(references.lists) == len(table.refresh().metadata.snapshots)
    assert references.own == (table.location(),)
    named = {*references.lists, *references.files, *manifests(catalog)}
    named |= {path for manifest, data in manifests(catalog).items() for path in live_paths(data, manifest)}
    on_disk = {str(path) for path in warehouse.rglob("*") if path.is_file() and path.name != "catalog.db"}
    assert {path.removeprefix("file://") for path in named} == on_disk
    assert references.trouble is None


def test_entries_that_were_deleted_do_not_count(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    catalog.client.load_table("db.t").delete("id >= 0")
    references = loaded(catalog)
    last = references.manifests(references.lists[-1])
    assert [list(live_paths(references.read(one.path, one.length_bytes), one.path)) for one in last] == [[]] * len(last)


def test_a_fingerprint_is_of_one_version(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    before = loaded(catalog).fingerprint
    assert loaded(catalog).fingerprint == before
    table = catalog.client.load_table("db.t")
    table.append(table.scan().to_arrow())
    assert loaded(catalog).fingerprint != before


def change(catalog: IcebergCatalog, act: Callable[[dict[str, Any]], object]) -> None:
    """Edits the table's current metadata file."""
    location = Path(catalog.client.load_table("db.t").metadata_location.removeprefix("file://"))
    document: dict[str, Any] = json.loads(location.read_text())
    act(document)
    location.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "act",
    [
        lambda d: d.update({"format-version": 4}),
        lambda d: d["snapshots"][0]["summary"].update({"operation": "merge"}),
        lambda d: d["refs"]["main"].update({"type": "stash"}),
    ],
)
def test_a_table_that_is_not_understood_still_names_its_files(
    warehouse: Path, catalog_at: OpenAt, act: Callable[[dict[str, Any]], object]
) -> None:
    catalog = catalog_at(warehouse)
    before = {*loaded(catalog).lists, *manifests(catalog)}
    change(catalog, act)
    with pytest.raises(NeveError):
        catalog.open(NAME)
    assert {*loaded(catalog).lists, *manifests(catalog)} == before
    assert loaded(catalog).trouble is None


def test_manifests_that_v1_snapshots_name_without_a_list_are_found(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    lists, before = loaded(catalog).lists, manifests(catalog)

    def without_lists(document: dict[str, Any]) -> None:
        document["format-version"] = 1
        del document["table-uuid"]
        for snapshot in document["snapshots"]:
            if snapshot["manifest-list"] in lists[:2]:
                del snapshot["manifest-list"]
                snapshot["manifests"] = list(before)[:2]

    change(catalog, without_lists)
    found = loaded(catalog)
    assert manifests(catalog) == before
    assert {one.path for one in found.manifests(found.files[0])} == set(list(before)[:2])
    assert (found.trouble, len(found.uuid)) == (None, 36)
    assert (found.uuid, found.fingerprint) == (loaded(catalog).uuid, loaded(catalog).fingerprint)


def test_an_entry_without_metadata_is_nothing_and_an_unknown_table_is_an_error(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    shutil.rmtree(warehouse / "db" / "t")
    assert catalog.references(NAME) is None
    with pytest.raises(TableNotFoundError):
        catalog.references(NAME.model_copy(update={"name": "nope"}))


def test_a_snapshot_without_a_manifest_list_is_trouble(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    number = catalog.client.load_table("db.t").metadata.snapshots[0].snapshot_id
    change(catalog, lambda document: document["snapshots"][0].update({"manifest-list": ""}))
    assert str(number) in str(loaded(catalog).trouble)


def test_a_cut_manifest_is_refused(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    path, data = next(iter(manifests(catalog).items()))
    with pytest.raises(CorruptMetadataError, match="its list says"):
        loaded(catalog).read(path, len(data) + 1)
    with pytest.raises(CorruptMetadataError, match=f"^Cannot decode manifest {path}: "):
        summarized(data[: len(data) // 2], path)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("s3://lake/t/data/x.parquet?v=1", "s3://lake/t/data"),
        ("s3://lake/t/data/p=1#2/x", "s3://lake/t/data"),
        ("s3://lake/t/data#2/deep/x", "s3://lake/t"),
    ],
)
def test_a_summary_has_the_directory_of_what_iceberg_opens(path: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "live_paths", lambda *_: iter([path]))
    number, places = summarized(b"", "m")
    assert (number, {place, path.rpartition("/")[0]}) == (1, set(places))


@pytest.mark.parametrize("entries", [0, 10**9])
def test_summaries_are_the_same_in_this_process_and_in_others(warehouse: Path, catalog_at: OpenAt, entries: int) -> None:
    found = manifests(catalog_at(warehouse))
    directory = str(warehouse / "db" / "t" / "data")

    def broken() -> bytes:
        raise CorruptMetadataError("Cannot read it")

    jobs: list[tuple[str, str, Callable[[], bytes]]] = [(path, path, partial(bytes, data)) for path, data in found.items()]
    jobs += [("broken", "broken", broken), ("torn", "torn", lambda: b"Obj\x01torn")]
    with ParallelManifestPaths() as paths:
        answers: dict[str, Any] = dict(paths.summaries(jobs, entries))
    assert list(answers) == [key for key, _, _ in jobs]
    assert isinstance(answers.pop("broken"), NeveError)
    assert isinstance(answers.pop("torn"), CorruptMetadataError)
    assert {(number, tuple(place.removeprefix("file://") for place in places)) for number, places in answers.values()} == {
        (1, (directory,))
    }


def test_processes_are_started_once_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[Any]()
    original = module._Worker.__enter__

    def enter(self: module._Worker) -> module._Worker:
        started.append(self)
        return original(self)

    monkeypatch.setattr(module._Worker, "__enter__", enter)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    with ParallelManifestPaths() as paths:
        for _ in range(2):
            list(paths.summaries([("k", "p", lambda: b"")], 10**9))
    assert [worker._process.returncode for worker in started] == [0, 0]


def test_a_survey_has_every_table_and_names_what_cannot_be_listed(
    warehouse: Path, catalog_at: OpenAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_at(warehouse)
    catalog.client.create_namespace("secret")
    catalog.client.create_namespace("db.inner")
    catalog.client.create_table("db.inner.u", schema=catalog.client.load_table("db.t").schema())
    assert {str(one) for one in catalog.survey()} == {"local.db.t", "local.db.inner.u"}
    original = catalog.client.list_tables

    def list_tables(namespace: Any) -> Any:
        if namespace == ("secret",):
            raise PermissionError("no")
        return original(namespace)

    monkeypatch.setattr(catalog.client, "list_tables", list_tables)
    found = list(catalog._survey(catalog.client, ()))
    assert {str(one) for one in found if isinstance(one, TableName)} == {"local.db.t", "local.db.inner.u"}
    ((name, error),) = [one for one in found if isinstance(one, tuple)]
    assert name == "local.secret"
    assert isinstance(error, NeveError)


@pytest.mark.parametrize("namespace", [".dot", "a..b", "dot.", ".", " a", "d'q", "d%b", "a_b", "é"])
@pytest.mark.parametrize("kind", ["TABLE", None])
def test_a_survey_has_tables_of_namespaces_that_are_oddly_named(
    warehouse: Path, catalog_at: OpenAt, namespace: str, kind: str | None
) -> None:
    with closing(sqlite3.connect(warehouse / "catalog.db")) as opened, opened:
        opened.execute("UPDATE iceberg_tables SET table_namespace = ?, iceberg_type = ?", (namespace, kind))
    catalog = catalog_at(warehouse)
    (found,) = catalog.survey()
    assert isinstance(found, TableName)
    assert str(found) == f"local.{namespace}.t"
    assert catalog.references(found) is not None


def test_a_catalog_that_does_not_open_is_named(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    (warehouse / "catalog.db").write_text("not a database, but long enough to be mistaken for one")
    assert [name for name, _ in catalog.survey()] == ["local"]


def test_a_hadoop_catalog_has_tables_at_its_root_and_no_leftovers(tmp_path: Path, warehouse: Path, catalog_at: OpenAt) -> None:
    metadata = Path(catalog_at(warehouse).client.load_table("db.t").metadata_location.removeprefix("file://"))
    for name in ("at_root", "db/below", "left_over", "db/torn"):
        (tmp_path / "hadoop" / name / "metadata").mkdir(parents=True)
    for name in ("at_root", "db/below"):
        (tmp_path / "hadoop" / name / "metadata" / "v1.metadata.json").write_bytes(metadata.read_bytes())
    (tmp_path / "hadoop" / "db" / "torn" / "metadata" / "v7.metadata.json").write_text("{}")
    catalog = IcebergCatalog(
        "h", CatalogSettings.model_validate({"type": "hadoop", "warehouse": str(tmp_path / "hadoop")}), environ={}
    )
    found = [one for one in catalog.survey() if isinstance(one, TableName)]
    assert {str(one) for one in found} == {"h.at_root", "h.db.below", "h.db.torn"}
    tables = {one.name: catalog.references(one) for one in found if one.name != "torn"}
    assert {len(references.lists) for references in tables.values() if references} == {3}
