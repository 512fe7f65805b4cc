"""Reads one loaded table in plain Python: no JVM, no data file, only the metadata that was asked for.

Every catalog family hands its tables over as a metadata document and something that opens files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from neve.catalogs.cache import MetadataCache
from neve.catalogs.errors import endpoint_of, reading
from neve.catalogs.manifests import concatenate, decode_manifest_list, from_ipc, table_from_ipc, table_to_ipc, to_ipc
from neve.catalogs.pool import decode_all
from neve.errors import CorruptMetadataError
from neve.ports import Progress
from neve.table.document import Document, outline
from neve.table.document_state import state_of
from neve.table.files import FileColumns, bounds_schema
from neve.table.state import Manifest, TableName, TableState

_CONCURRENT_READS = 8


@dataclass
class _Reads:
    """What was read where, of a table and its other snapshots."""

    cached: bool = False
    stored: bool = False


class MetadataSource(Protocol):
    """A table as a catalog hands it over: its metadata document, and what opens its files, named as PyIceberg's FileIO."""

    @property
    def document(self) -> Document:
        """The metadata file as JSON."""

    @property
    def metadata_location(self) -> str:
        """Where that file is."""

    @property
    def io(self) -> Any:
        """Opens the table's files."""

    @property
    def is_stored(self) -> bool:
        """Whether loading the table has read that file from storage. A REST catalog hands the metadata out itself."""


@dataclass(frozen=True)
class LoadedTable:
    """A table of a described catalog."""

    document: Document
    metadata_location: str
    io: Any
    is_stored: bool


class MetadataReader:
    """One table at one metadata version (implements `ports.TableReader`).

    Raises CorruptMetadataError or NotUnderstoodError for a document that cannot be read.
    """

    def __init__(self, name: TableName, table: MetadataSource, cache: MetadataCache | None) -> None:
        self._name, self._table, self._cache = name, table, cache
        self._summary = state_of(name, table.document, table.metadata_location)
        self._lists = outline(table.document, table.metadata_location).manifest_lists
        self._reads = _Reads(stored=table.is_stored)

    def at(self, snapshot_id: int) -> MetadataReader:
        """The same table at another snapshot."""
        other = copy(self)
        other.__dict__.pop("_state", None)
        other._summary = self._summary.model_copy(update={"snapshot_id": snapshot_id})
        return other

    def from_cache(self) -> bool:
        """Whether all that was read so far came from the cache, and nothing from storage."""
        return self._reads.cached and not self._reads.stored

    def state(self) -> TableState:
        """Depth SUMMARY."""
        return self._state

    @cached_property
    def _state(self) -> TableState:
        return self._summary.model_copy(update={"metadata_bytes": self._metadata_bytes()})

    def manifests(self) -> tuple[Manifest, ...]:
        """The snapshot's manifest list; none for a table without a snapshot."""
        snapshot = self._summary.snapshot
        if snapshot is None:
            return ()
        if not (manifest_list := self._lists.get(snapshot.snapshot_id)):
            raise CorruptMetadataError(
                f"Cannot inspect {self._name}: snapshot {snapshot.snapshot_id} has no manifest list",
                hint="The snapshot was written by a format v1 writer of 2019 or before; any new commit adds the list.",
            )
        return decode_manifest_list(self._fetch("manifest-list", manifest_list, lambda: self._read(manifest_list)))

    def files(
        self, manifests: tuple[Manifest, ...], progress: Progress | None = None, *, bounds: Collection[int] = ()
    ) -> FileColumns:
        """The live files, from the cache where it has a manifest, decoded otherwise."""
        ids = sorted(set(bounds))
        transforms = {s.spec_id: tuple(f.transform for f in s.fields) for s in self._summary.specs}
        parts = {m.path: part for m in manifests if (part := self._cached(m, ids)) is not None}
        self._reads.cached |= bool(parts)
        jobs = [(m, transforms[m.spec_id], ids) for m in manifests if m.path not in parts]
        for manifest, part in decode_all(jobs, self._read):
            parts[manifest.path] = part
            self._keep(manifest, part, ids)
            if progress:
                progress("inspect", len(parts), len(manifests))
        return concatenate([FileColumns.empty(ids), *(parts[m.path] for m in manifests)])

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Row groups per Parquet file, from footers."""
        import pyarrow.parquet as pq

        def row_groups(path: str) -> int:
            with self._reading(path), self._table.io.new_input(path).open(seekable=True) as stream:
                return int(pq.ParquetFile(stream).metadata.num_row_groups)

        wanted = list(paths)
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            return dict(zip(wanted, threads.map(row_groups, wanted), strict=True))

    def _cached(self, manifest: Manifest, ids: Sequence[int]) -> FileColumns | None:
        if self._cache is None:
            return None
        found = [data for entry in _entries(manifest, ids) if (data := self._cache.find(*entry)) is not None]
        if len(found) < 1 + len(ids):
            return None
        columns = [column for data in found[1:] for column in table_from_ipc(data).columns]
        return replace(from_ipc(found[0]), bounds=pa.table(columns, schema=bounds_schema(ids)) if ids else None)

    def _keep(self, manifest: Manifest, part: FileColumns, ids: Sequence[int]) -> None:
        if self._cache is None:
            return
        sides = [] if part.bounds is None else [part.bounds.select(bounds_schema([field_id]).names) for field_id in ids]
        parts = [to_ipc(replace(part, bounds=None)), *map(table_to_ipc, sides)]
        for entry, data in zip(_entries(manifest, ids), parts, strict=True):
            self._cache.keep(*entry, data)

    def _metadata_bytes(self) -> int | None:
        location = self._table.metadata_location
        return int(self._fetch("metadata-size", location, lambda: self._size(location)))

    def _size(self, location: str) -> bytes:
        with self._reading(location):
            return str(len(self._table.io.new_input(location))).encode()

    @contextmanager
    def _reading(self, location: str) -> Iterator[None]:
        """Around reads from storage."""
        endpoint = endpoint_of(getattr(self._table.io, "properties", {}))
        with reading(location, endpoint=endpoint, catalog=self._name.catalog):
            self._reads.stored = True
            yield

    def _read(self, location: str) -> bytes:
        with self._reading(location), self._table.io.new_input(location).open(seekable=False) as stream:
            return bytes(stream.read())

    def _fetch(self, kind: str, location: str, produce: Callable[[], bytes]) -> bytes:
        if self._cache is None:
            return produce()
        if (found := self._cache.find(kind, location)) is not None:
            self._reads.cached = True
            return found
        data = produce()
        self._cache.keep(kind, location, data)
        return data


def _entries(manifest: Manifest, ids: Sequence[int]) -> list[tuple[str, str]]:
    """Where the cache has a manifest: its files, and the bounds of each column by themselves, so that any choice of columns
    finds what an earlier one left. A manifest from before the table went to v3 is given its first row id later, and by each
    branch another."""
    files = manifest.path if manifest.first_row_id is None else f"{manifest.path}#{manifest.first_row_id}"
    return [("manifest", files), *(("bounds", f"{manifest.path}#{field_id}") for field_id in ids)]
