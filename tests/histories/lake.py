"""Reads an Iceberg table without the code under test: the rows of any snapshot, and every file that the metadata needs.

Metadata is read by pyiceberg, Parquet by pyarrow; deletes are applied here, as the Iceberg specification says. Files are
immutable, so what was read once is kept.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile, read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tests.histories.rows import Row

Listing = Callable[[], Mapping[str, int]]
"""The files at the table's location, with their sizes."""


class MissingFileError(Exception):
    """A file that a snapshot needs cannot be read."""


@dataclass(frozen=True)
class Entry:
    """A live file of a snapshot."""

    file: DataFile
    sequence: int
    spec_id: int

    @cached_property
    def partition(self) -> tuple[Any, ...]:
        return (self.spec_id, *(self.file.partition[at] for at in range(len(self.file.partition))))


@dataclass
class Lake:
    """The content of one table, read through `io`."""

    io: FileIO
    _read: dict[str, Any] = field(default_factory=dict)

    def rows(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Row]:
        """Every row of a snapshot, rows that are there twice included."""
        return list(self._rows(metadata.schema(), self.entries(snapshot)))

    def needed(self, metadata: TableMetadata, location: str) -> dict[str, int | None]:
        """Every file that the metadata or one of its snapshots needs, with the size that it must have where that is known."""
        sizes: dict[str, int | None] = {location: None}
        sizes |= {entry.metadata_file: None for entry in metadata.metadata_log}
        sizes |= {f.statistics_path: f.file_size_in_bytes for f in (*metadata.statistics, *metadata.partition_statistics)}
        for snapshot in metadata.snapshots:
            sizes[snapshot.manifest_list] = None
            for manifest in self._manifests(snapshot):
                sizes[manifest.manifest_path] = manifest.manifest_length
                sizes |= {entry.file.file_path: entry.file.file_size_in_bytes for entry in self._of(manifest)}
        return sizes

    def paths(self, snapshot: Snapshot) -> set[str]:
        """Every file that a snapshot needs."""
        manifests = [snapshot.manifest_list, *(manifest.manifest_path for manifest in self._manifests(snapshot))]
        return {*manifests, *(entry.file.file_path for entry in self.entries(snapshot))}

    def entries(self, snapshot: Snapshot) -> list[Entry]:
        return [entry for manifest in self._manifests(snapshot) for entry in self._of(manifest)]

    def _manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        return self._once(snapshot.manifest_list, lambda file: list(read_manifest_list(file)))

    def _of(self, manifest: ManifestFile) -> list[Entry]:
        def read(_: Any) -> list[Entry]:
            found = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
            return [Entry(one.data_file, one.sequence_number or 0, manifest.partition_spec_id) for one in found]

        return self._once(manifest.manifest_path, read)

    def _once(self, path: str, read: Callable[[Any], Any]) -> Any:
        if path not in self._read:
            try:
                self._read[path] = read(self.io.new_input(path))
            except FileNotFoundError as error:
                raise MissingFileError(path) from error
        return self._read[path]

    def _parquet(self, path: str) -> list[dict[str, Any]]:
        def read(file: Any) -> list[dict[str, Any]]:
            with file.open() as stream:
                content = stream.read()
            return pq.ParquetFile(io.BytesIO(content)).read().to_pylist()

        return self._once(path, read)

    def _rows(self, schema: Schema, entries: Iterable[Entry]) -> Iterator[Row]:
        data, positions, equalities = list[Entry](), list[Entry](), list[Entry]()
        kinds = {
            DataFileContent.DATA: data,
            DataFileContent.POSITION_DELETES: positions,
            DataFileContent.EQUALITY_DELETES: equalities,
        }
        for entry in entries:
            kinds[entry.file.content].append(entry)
        deleted = self._positions(positions)
        keys = [(entry, *self._keys(schema, entry)) for entry in equalities]
        for entry in data:
            gone = {at for sequence, at in deleted[entry.file.file_path] if sequence >= entry.sequence}
            filters = [(names, values) for one, names, values in keys if _reaches(one, entry)]
            for at, found in enumerate(self._parquet(entry.file.file_path)):
                if at not in gone and not any(tuple(found[n] for n in names) in values for names, values in filters):
                    yield Row(found["id"], found["v"], found["zone"], found["text"])

    def _positions(self, entries: Iterable[Entry]) -> dict[str, list[tuple[int, int]]]:
        """Deleted positions by data file, each with the sequence number of its delete."""
        deleted = defaultdict[str, list[tuple[int, int]]](list)
        for entry in entries:
            assert entry.file.file_format == FileFormat.PARQUET, "tables of histories have format version 2"
            for found in self._parquet(entry.file.file_path):
                deleted[found["file_path"]].append((entry.sequence, found["pos"]))
        return deleted

    def _keys(self, schema: Schema, entry: Entry) -> tuple[list[str], set[tuple[Any, ...]]]:
        names = [schema.find_field(field_id).name for field_id in entry.file.equality_ids or ()]
        return names, {tuple(found[name] for name in names) for found in self._parquet(entry.file.file_path)}


def _reaches(delete: Entry, data: Entry) -> bool:
    """Whether an equality delete applies to a data file: rows that were committed before it, in its partition."""
    return delete.sequence > data.sequence and (len(delete.partition) == 1 or delete.partition == data.partition)
