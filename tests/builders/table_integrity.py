"""Checks that a table still reads completely: opens every file that any of its refs reaches, and reads every ref with DuckDB.

Uses nothing of the code under test: pyiceberg reads the metadata, pyarrow opens the Parquet files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

from tests.builders.table_contents import duckdb_query, local


def assert_whole(table: Table, ids: Mapping[str, Sequence[int]]) -> None:
    """Fails with `lost files` if a file is gone or damaged, and with `other rows` if a ref reads other ids than these."""
    if lost := lost_files(table):
        raise AssertionError(f"lost files: {lost}")
    found = {ref: ids_of(table, ref) for ref in table.metadata.refs}
    expected = {ref: sorted(rows) for ref, rows in ids.items()}
    if found != expected:
        raise AssertionError(f"other rows: {found}, expected {expected}")


def ids_of(table: Table, ref: str = "main") -> list[int]:
    """The column `id` of one ref, as DuckDB reads it."""
    snapshot = table.metadata.refs[ref].snapshot_id
    scan = f"iceberg_scan('{table.metadata_location}', snapshot_from_id := {snapshot}::UBIGINT)"
    return sorted(row["id"] for row in duckdb_query(f"SELECT id FROM {scan}"))


def lost_files(table: Table) -> list[str]:
    """Files that some ref needs and that are not there, or not as the metadata describes them."""
    metadata = table.metadata
    needed = {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}
    data: dict[str, DataFile] = {}
    for ref in metadata.refs.values():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        assert snapshot is not None, f"lost files: snapshot {ref.snapshot_id} itself"
        if not local(snapshot.manifest_list).is_file():
            needed.add(snapshot.manifest_list)
            continue
        for manifest in snapshot.manifests(table.io):
            needed.add(manifest.manifest_path)
            if local(manifest.manifest_path).is_file():
                entries = manifest.fetch_manifest_entry(table.io)
                data |= {entry.data_file.file_path: entry.data_file for entry in entries}
    missing = {path for path in (*needed, *data) if not local(path).is_file()}
    return sorted(missing | {path for path, file in data.items() if path not in missing and not _opens(file)})


def _opens(file: DataFile) -> bool:
    path = local(file.file_path)
    if file.file_format == FileFormat.PARQUET:
        return int(pq.read_metadata(path).num_rows) == file.record_count
    return path.stat().st_size == file.file_size_in_bytes
