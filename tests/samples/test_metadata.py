"""Tables of metadata alone: what the manifests say is consistent, and other engines read it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table

from neve.samples.history import UNMERGED_COMMITS
from neve.samples.metadata import write_metadata_table
from tests.builders.table_contents import duckdb_query, entries
from tests.builders.warehouses import open_catalog

FILES = 5_000
SNAPSHOTS = 50
DAY_MICROS = 86_400_000_000


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    with closing(open_catalog(tmp_path_factory.mktemp("metadata"))) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def table(catalog: SqlCatalog) -> Table:
    _write(catalog, "large")
    return catalog.load_table(("db", "large"))


def _write(catalog: SqlCatalog, name: str, **changes: Any) -> None:
    options = {
        "files": FILES,
        "snapshots": SNAPSHOTS,
        "entries_per_manifest": 800,
        "position_deletes": 4,
        "equality_deletes": 3,
    }
    write_metadata_table(catalog, ("db", name), **{**options, **changes})


def test_names_exactly_the_files_asked_for_and_none_exists(table: Table) -> None:
    found = entries(table)
    contents = Counter(entry.data_file.content for entry in found)

    assert contents == {DataFileContent.DATA: FILES, DataFileContent.POSITION_DELETES: 4, DataFileContent.EQUALITY_DELETES: 3}
    assert len({entry.data_file.file_path for entry in found}) == FILES + 7
    assert not any(Path(entry.data_file.file_path.removeprefix("file://")).exists() for entry in found[::100])


def test_the_manifest_list_counts_what_the_manifests_hold(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)

    for manifest in manifests:
        held = manifest.fetch_manifest_entry(table.io)
        statuses = Counter(entry.status for entry in held)
        assert statuses[ManifestEntryStatus.ADDED] == manifest.added_files_count
        assert statuses[ManifestEntryStatus.EXISTING] == manifest.existing_files_count
        rows = sum(entry.data_file.record_count for entry in held)
        assert rows == (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        assert manifest.min_sequence_number == min(entry.sequence_number or 0 for entry in held)
        assert Path(manifest.manifest_path.removeprefix("file://")).stat().st_size == manifest.manifest_length
    assert [manifest.content for manifest in manifests].count(ManifestContent.DELETES) == 1
    assert sum(1 for manifest in manifests if manifest.added_files_count) == UNMERGED_COMMITS + 1


def test_partition_bounds_of_each_manifest_enclose_its_files(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        (summary,) = manifest.partitions or []
        days = [entry.data_file.partition[0] for entry in manifest.fetch_manifest_entry(table.io)]
        assert (summary.lower_bound, summary.upper_bound) == (struct.pack("<i", min(days)), struct.pack("<i", max(days)))


def test_summaries_of_history_add_up_to_the_entries(table: Table) -> None:
    snapshots = table.snapshots()
    found = entries(table)
    added = Counter(entry.snapshot_id for entry in found if entry.data_file.content == DataFileContent.DATA)
    last = snapshots[-1].summary
    assert last is not None

    assert len(snapshots) == SNAPSHOTS
    assert {s.snapshot_id: int(s.summary["added-data-files"]) for s in snapshots if s.summary} == dict(added)
    assert last["total-data-files"] == str(FILES)
    assert last["total-delete-files"] == "7"
    assert last["total-files-size"] == str(sum(entry.data_file.file_size_in_bytes for entry in found))
    assert last["total-records"] == str(
        sum(entry.data_file.record_count for entry in found if entry.data_file.content == DataFileContent.DATA)
    )


def test_sequence_numbers_are_those_of_the_commits(table: Table) -> None:
    numbers = {snapshot.snapshot_id: snapshot.sequence_number for snapshot in table.snapshots()}

    assert all(entry.sequence_number == numbers[entry.snapshot_id or 0] for entry in entries(table))


def test_every_data_file_has_statistics_of_twelve_columns(table: Table) -> None:
    ids = set(range(1, 13))
    for entry in entries(table)[::50]:
        file = entry.data_file
        if file.content != DataFileContent.DATA:
            continue
        assert set(file.column_sizes) == set(file.value_counts) == set(file.null_value_counts) == ids
        assert set(file.lower_bounds) == set(file.upper_bounds) == ids
        assert set(file.value_counts.values()) == {file.record_count}
        low, high = (struct.unpack("<q", bounds[3])[0] for bounds in (file.lower_bounds, file.upper_bounds))
        assert low // DAY_MICROS == high // DAY_MICROS == file.partition[0]
        assert low <= high


@pytest.mark.parametrize(("column", "decode"), [(2, "<q"), (5, "<d"), (11, "<i")])
def test_bounds_of_numbers_are_in_order(table: Table, column: int, decode: str) -> None:
    files = [entry.data_file for entry in entries(table) if entry.data_file.content == DataFileContent.DATA]
    pairs = [struct.unpack(decode, side[column])[0] for file in files for side in (file.lower_bounds, file.upper_bounds)]

    assert all(low <= high for low, high in zip(pairs[::2], pairs[1::2], strict=True))


def test_recent_days_hold_more_files_and_one_day_far_more(table: Table) -> None:
    days = Counter(entry.data_file.partition[0] for entry in entries(table))
    middle = sorted(days)[len(days) // 2]

    assert days.most_common(1)[0][1] > 0.05 * FILES
    assert sum(files for day, files in days.items() if day > middle) > 0.6 * FILES


def test_another_engine_reads_the_manifests(table: Table) -> None:
    rows = duckdb_query(
        "SELECT content, status, count(*) AS files, sum(record_count)::BIGINT AS records "
        f"FROM iceberg_metadata('{table.metadata_location}') GROUP BY ALL"
    )
    ours = Counter[tuple[str, str]]()
    records = Counter[tuple[str, str]]()
    for entry in entries(table):
        key = (entry.data_file.content.name, entry.status.name)
        ours[key] += 1
        records[key] += entry.data_file.record_count

    assert {_duckdb_key(row): row["files"] for row in rows} == ours
    assert {_duckdb_key(row): row["records"] for row in rows} == records


def test_one_seed_gives_equal_entries(catalog: SqlCatalog, table: Table) -> None:
    _write(catalog, "again")
    _write(catalog, "other", seed=1)

    assert _described(catalog.load_table(("db", "again"))) == _described(table)
    assert _described(catalog.load_table(("db", "other"))) != _described(table)


@pytest.mark.parametrize("files", [1, 7, 400])
def test_small_tables_work_too(catalog: SqlCatalog, files: int) -> None:
    written = write_metadata_table(catalog, ("db", f"small{files}"), files=files, snapshots=400)
    table = catalog.load_table(written.identifier)

    assert len(entries(table)) == written.data_files == files
    assert table.metadata_location == written.metadata_location
    assert written.delete_files == 0


def test_a_write_that_was_cut_short_can_be_done_again(tmp_path: Path) -> None:
    with closing(open_catalog(tmp_path)) as catalog:
        write_metadata_table(catalog, ("db", "cut"), files=300, snapshots=30)
        catalog.drop_table(("db", "cut"))  # the files stay, as after a crash
        write_metadata_table(catalog, ("db", "cut"), files=300, snapshots=30)

        assert len(entries(catalog.load_table(("db", "cut")))) == 300


def _described(table: Table) -> list[str]:
    return sorted(repr(_values(entry)).replace(table.location(), "") for entry in entries(table))


def _values(entry: Any) -> tuple[Any, ...]:
    file = entry.data_file
    return (
        entry.status, entry.snapshot_id, entry.sequence_number, file.content, file.file_path, file.partition[0],
        file.record_count, file.file_size_in_bytes, dict(file.column_sizes or {}), file.lower_bounds, file.split_offsets,
        file.equality_ids,
    )  # fmt: skip


def _duckdb_key(row: dict[str, Any]) -> tuple[str, str]:
    content = "DATA" if row["content"] == "EXISTING" else row["content"]  # DuckDB's word for data files
    return content, row["status"]
