"""Reading a table in plain Python: how deep, how often, and what goes through the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neve.catalogs import pool
from neve.catalogs.opening import IcebergCatalog
from neve.core.depth import Depth
from neve.core.files import FileColumns
from neve.core.model import TableName, TableState
from neve.errors import CorruptMetadataError
from neve.flow.inspect import read

from .conftest import ROWS

NAME = TableName(catalog="local", namespace=("db",), name="t")
OpenAt = Callable[[Path], IcebergCatalog]


def test_reads_state_manifests_and_files(warehouse: Path, catalog_at: OpenAt) -> None:
    state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert state.files is not None
    assert state.manifests is not None
    assert (len(state.files), len(state.manifests), len(state.snapshots)) == (3, 3, 3)
    assert state.files.column("records").tolist() == [10, 10, 10]
    assert sorted(state.files.column("sequence_number").tolist()) == [1, 2, 3]
    assert state.metadata_bytes == Path(state.metadata_location).stat().st_size


def test_a_state_survives_json(warehouse: Path, catalog_at: OpenAt) -> None:
    state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert TableState.model_validate_json(state.model_dump_json()) == state


@pytest.mark.parametrize(("depth", "kinds"), [(Depth.SUMMARY, []), (Depth.MANIFESTS, ["snap"]), (Depth.FILES, ["snap", "m0"])])
def test_reads_no_deeper_than_asked(
    warehouse: Path, catalog_at: OpenAt, reads: list[str], depth: Depth, kinds: list[str]
) -> None:
    assert read(catalog_at(warehouse).open(NAME), depth).depth is depth
    avro = [Path(path).name for path in reads if path.endswith(".avro")]
    assert sorted({"snap" if name.startswith("snap") else "m0" for name in avro}, reverse=True) == kinds


def test_never_opens_a_data_file(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert [path for path in reads if path.endswith(".parquet")] == []


def test_a_second_look_reads_the_metadata_file_and_nothing_else(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    first = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    reads.clear()
    second = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert second == first
    assert reads == [first.metadata_location]


def test_after_a_commit_only_the_new_manifest_is_read(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    catalog = catalog_at(warehouse)
    read(catalog.open(NAME), Depth.FILES)
    catalog.client.load_table("db.t").append(ROWS)
    reads.clear()
    state = read(catalog.open(NAME), Depth.FILES)
    avro = [Path(path).name for path in reads if path.endswith(".avro")]
    assert len(state.files or ()) == 4
    assert len([name for name in avro if name.startswith("snap")]) == 1
    assert len(avro) == 2


def test_without_a_cache_every_look_reads_again(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    catalog = catalog_at(warehouse)
    catalog._cache = None
    for _ in range(2):
        read(catalog.open(NAME), Depth.FILES)
    assert len([path for path in reads if path.endswith(".avro")]) == 8


def test_a_table_without_a_snapshot_has_no_files(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    catalog.client.create_table("db.empty", schema=ROWS.schema)
    state = read(catalog.open(NAME.model_copy(update={"name": "empty"})), Depth.FILES)
    assert (state.snapshot, state.manifests, state.files) == (None, (), FileColumns.empty())


def test_a_missing_manifest_is_named(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    manifests = reader.manifests()
    Path(manifests[0].path).unlink()
    with pytest.raises(CorruptMetadataError, match=f"Cannot read {manifests[0].path}: the file is missing"):
        reader.files(manifests)


def test_worker_processes_give_the_same_columns(warehouse: Path, catalog_at: OpenAt, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_at(warehouse)
    catalog._cache = None
    alone = read(catalog.open(NAME), Depth.FILES)
    monkeypatch.setattr(pool, "PARALLEL_FROM_FILES", 0)
    monkeypatch.setattr(pool, "_usable_cores", lambda: 2)
    assert read(catalog.open(NAME), Depth.FILES) == alone


def test_a_worker_process_hands_its_error_back(warehouse: Path, catalog_at: OpenAt, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = catalog_at(warehouse).open(NAME)
    manifests = reader.manifests()
    Path(manifests[1].path).write_bytes(b"x" * manifests[1].length_bytes)
    monkeypatch.setattr(pool, "PARALLEL_FROM_FILES", 0)
    monkeypatch.setattr(pool, "_usable_cores", lambda: 2)
    with pytest.raises(CorruptMetadataError, match=f"Cannot decode manifest {manifests[1].path}"):
        reader.files(manifests)


def test_progress_counts_manifests(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    told: list[tuple[str, int, int | None]] = []
    reader.files(reader.manifests(), lambda stage, done, total: told.append((stage, done, total)))
    assert told == [("inspect", 1, 3), ("inspect", 2, 3), ("inspect", 3, 3)]


def test_samples_row_groups_from_footers(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    paths = reader.files(reader.manifests()).table.column("path").to_pylist()
    assert reader.sample_row_groups(paths) == dict.fromkeys(paths, 1)
