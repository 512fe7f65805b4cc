"""A table's metadata in memory: versions, manifest lists and manifests, some of which are gone or cannot be read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from neve.errors import CorruptMetadataError, StorageError
from neve.table.document import TableOutline
from neve.table.state import Manifest

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def manifest(path: str, live_files: int | None = None) -> Manifest:
    return Manifest(
        path=path,
        length_bytes=7,
        holds_deletes=False,
        spec_id=0,
        sequence_number=0,
        added_snapshot_id=None,
        live_files=live_files,
    )


def version(name: str, *snapshots: int, log: tuple[str, ...] = (), uuid: str | None = UUID) -> TableOutline:
    return TableOutline(
        uuid=uuid,
        location="/t",
        metadata_location=name,
        format_version=2,
        metadata_log=log,
        manifest_lists={number: f"list-{number}" for number in snapshots},
        statistics=tuple(f"{number}.stats" for number in snapshots),
    )


@dataclass
class Lake:
    """Metadata files, lists by name with the manifests they name, and manifests with their data files."""

    versions: dict[str, TableOutline]
    lists: dict[str, list[str]] = field(default_factory=dict)
    manifests: dict[str, list[str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    reads: Counter[str] = field(default_factory=Counter)

    def read(self, path: str) -> None:
        self.reads[path] += 1
        if path in self.broken:
            raise StorageError(f"Cannot read {path}: the disk says no")
        if path not in {*self.lists, *self.manifests}:
            raise CorruptMetadataError(f"Cannot read {path}: the file is missing")


@dataclass
class FakeVersion:
    lake: Lake
    outline: TableOutline
    uuid: str = ""
    own: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    fingerprint: str = ""
    trouble: str | None = None

    def at(self, metadata_location: str) -> FakeVersion | None:
        self.lake.reads[metadata_location] += 1
        if metadata_location in self.lake.broken:
            raise StorageError(f"Cannot read {metadata_location}: the disk says no")
        found = self.lake.versions.get(metadata_location)
        return FakeVersion(self.lake, found) if found is not None else None

    def exists(self, path: str) -> bool:
        return path in {*self.lake.lists, *self.lake.manifests}

    def manifests(self, manifest_list: str) -> tuple[Manifest, ...]:
        self.lake.read(manifest_list)
        return tuple(manifest(one, len(self.lake.manifests.get(one, ()))) for one in self.lake.lists[manifest_list])

    def read(self, path: str, length: int) -> bytes:
        assert length == 7
        self.lake.read(path)
        return "\n".join(self.lake.manifests[path]).encode()
