"""The tables of `bench/maintenance.py`: true manifests and manifest lists of files that are empty, or were never written.

Written by hand (`neve.samples`), since thousands of commits would take an hour; every engine reads them.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from neve.samples import avro
from neve.samples.history import DAYS, Commit, Part, SampleHistory
from neve.samples.manifests import ManifestWriter
from neve.samples.metadata import create, register

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

FILES_PER_COMMIT, COMMITS_PER_COMPACTION = 2, 100
"""Of a stream: what each commit appends, and after how many of them one of compaction puts a single file in their place."""


@dataclass
class Stream(SampleHistory):
    """A writer that commits a few files at a time, compacted as it goes. Numbers from `files` on are compacted files."""

    def files_by_commit(self, files: range) -> Iterator[tuple[Commit, int]]:
        """Each file with the commit that added it."""
        for file in files:
            compacted = (file - self.files + 1) * COMMITS_PER_COMPACTION - 1
            yield self.commits[compacted if file >= self.files else file // FILES_PER_COMMIT], file

    def manifests(self, writer: ManifestWriter) -> Iterator[list[ManifestFile]]:
        """Those of each snapshot, oldest first."""
        compacted: list[ManifestFile] = []
        fresh: list[ManifestFile] = []
        for n, commit in enumerate(self.commits):
            if (n + 1) % COMMITS_PER_COMPACTION:
                fresh.append(writer.write_data(Part(range(n * FILES_PER_COMMIT, (n + 1) * FILES_PER_COMMIT), commit)))
            else:
                file = self.files + n // COMMITS_PER_COMPACTION
                compacted.append(writer.write_data(Part(range(file, file + 1), commit)))
                fresh = []
            yield [*compacted, *fresh]


@dataclass
class Scattered(SampleHistory):
    """One commit whose files are of any day, as after a backfill: no manifest can be left out for a query of one day."""

    def day_of(self, commit: Commit, rng: random.Random) -> int:
        """Any."""
        return commit.day - rng.randrange(DAYS)

    def files_by_commit(self, files: range) -> Iterator[tuple[Commit, int]]:
        """All are of one commit."""
        return ((self.commits[0], file) for file in files)


def write_stream(catalog: Catalog, identifier: tuple[str, ...], *, snapshots: int) -> list[Path]:
    """A table with so many snapshots, all of whose files exist; these are returned."""
    history = Stream(seed=1, files=snapshots * FILES_PER_COMMIT, length=snapshots)
    table = create(catalog, identifier)
    writer, lists = ManifestWriter(table, history), _Lists(table)
    known: dict[str, ManifestFile] = {}
    paths = []
    for commit, manifests in zip(history.commits, history.manifests(writer), strict=True):
        known |= {manifest.manifest_path: manifest for manifest in manifests}
        paths.append(lists.write(commit, manifests))
    location = register(catalog, table, history, paths)
    data = [Path(entry.data_file.file_path) for m in known.values() for entry in m.fetch_manifest_entry(table.io)]
    for path in data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [*data, *map(Path, known), *map(Path, paths), Path(location)]


def write_scattered(catalog: Catalog, identifier: tuple[str, ...], *, files: int, manifests: int) -> list[str]:
    """A table of one snapshot with so many files, none of which exists, in so many manifests; the paths of all of these."""
    history = Scattered(seed=2, files=files, length=1)
    table = create(catalog, identifier)
    writer = ManifestWriter(table, history)
    parts = (range(files * n // manifests, files * (n + 1) // manifests) for n in range(manifests))
    written = [writer.write_data(Part(part, history.commits[0])) for part in parts]
    location = register(catalog, table, history, [manifest_list := writer.write_list(written)])
    return [location, manifest_list, *(manifest.manifest_path for manifest in written)]


class _Lists:
    """Writes manifest lists: pyiceberg encodes each manifest's line once, however many lists it stands in."""

    def __init__(self, table: Table) -> None:
        self._table, self._lines = table, dict[str, bytes]()

    def write(self, commit: Commit, manifests: Sequence[ManifestFile]) -> str:
        """The list of one snapshot; gives its location."""
        path = f"{self._table.location()}/metadata/snap-{commit.snapshot_id}-1-{commit.sequence_number:032x}.avro"
        header = {**self._header, "snapshot-id": str(commit.snapshot_id), "sequence-number": str(commit.sequence_number)}
        content = avro.container(header, map(self._line, manifests), sync=commit.sequence_number.to_bytes(16))
        Path(path).write_bytes(content)
        return path

    def _line(self, manifest: ManifestFile) -> bytes:
        if manifest.manifest_path not in self._lines:
            self._lines[manifest.manifest_path] = self._encoded(manifest)
        return self._lines[manifest.manifest_path]

    @staticmethod
    def _encoded(manifest: ManifestFile) -> bytes:
        from pyiceberg.avro.encoder import BinaryEncoder
        from pyiceberg.avro.resolver import resolve_writer
        from pyiceberg.manifest import DEFAULT_READ_VERSION, MANIFEST_LIST_FILE_SCHEMAS

        stream = io.BytesIO()
        read, written = (MANIFEST_LIST_FILE_SCHEMAS[version] for version in (DEFAULT_READ_VERSION, 2))
        resolve_writer(record_schema=read, file_schema=written).write(BinaryEncoder(stream), manifest)
        return stream.getvalue()

    @cached_property
    def _header(self) -> dict[str, str]:
        from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
        from pyiceberg.utils.schema_conversion import AvroSchemaConversion

        schema = AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[2], schema_name="manifest_file")
        return {"avro.schema": json.dumps(schema), "format-version": "2"}
