"""Catalogs in memory with tables of plain metadata, and a file index over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from posixpath import normpath
from typing import Any
from uuid import uuid4

from neve.errors import CorruptMetadataError, NeveError, TableNotFoundError
from neve.maintenance.file_index import fingerprint, places_of_files
from neve.maintenance.orphans import Neighbour
from neve.operations.file_index import FileIndex, IndexTools, OptionalStore
from neve.table.state import Manifest, TableName


def name(text: str) -> TableName:
    catalog, *namespace, last = text.split(".")
    return TableName(catalog=catalog, namespace=tuple(namespace), name=last)


@dataclass
class Lake:
    """The storage: what lies at a path. It counts how often each is read."""

    files: dict[str, Any] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    def read(self, path: str) -> Any:
        self.reads.append(path)
        if path not in self.files:
            raise CorruptMetadataError(f"Cannot read {path}: the file is missing")
        return self.files[path]


@dataclass(frozen=True)
class FakeReferences:
    """One version of a table (implements `ports.References`)."""

    lake: Lake
    uuid: str
    own: tuple[str, ...]
    lists: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    trouble: str | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.uuid, self.files[0], self.lists, self.files)

    def manifests(self, manifest_list: str) -> tuple[Manifest, ...]:
        found: tuple[Manifest, ...] = self.lake.read(manifest_list)
        return found

    def read(self, path: str, length: int) -> bytes:
        data: bytes = self.lake.read(path)
        if len(data) != length:
            raise CorruptMetadataError(f"Cannot decode {path}: another length")
        return data

    def reachable(self) -> set[str]:
        """Every file that this version names: the naive model."""
        lists = {path: self.lake.files[path] for path in self.lists}
        manifests = {one.path for found in lists.values() for one in found}
        entries = {path for one in manifests for path in json.loads(self.lake.files[one])}
        return {*self.files, *lists, *manifests, *entries}


@dataclass
class FakeTable:
    """A table that is written to."""

    lake: Lake
    location: str
    now: FakeReferences = field(init=False)

    def __post_init__(self) -> None:
        uuid = str(uuid4())
        self.now = FakeReferences(self.lake, uuid, (self.location,), (), (f"{self.location}/metadata/0-{uuid}.json",))

    def commit(self, *groups: Iterable[str], metadata: str | None = None, keep: int | None = None) -> None:
        """A snapshot with one new manifest per group of files besides those of the last; `keep` expires older snapshots."""
        place, number = metadata or f"{self.location}/metadata", uuid4().hex
        last: tuple[Manifest, ...] = self.lake.files[self.now.lists[-1]] if self.now.lists else ()
        new = [self._manifest(f"{place}/{number}-m{i}.avro", group) for i, group in enumerate(groups)]
        path = f"{place}/snap-{number}.avro"
        self.lake.files[path] = (*last, *new)
        lists = (*self.now.lists, path)
        self.now = replace(
            self.now, lists=lists[-keep:] if keep else lists, files=(f"{place}/{number}.json", *self.now.files[:3])
        )

    def expire(self, keep: int) -> None:
        """The newest snapshots stay, without a new one."""
        self.now = replace(self.now, lists=self.now.lists[-keep:], files=(f"{self.location}/metadata/{uuid4()}.json",))

    def replace_all(self, *groups: Iterable[str], keep: int | None = None) -> None:
        """A snapshot with these manifests alone."""
        lists = self.now.lists
        self.now = replace(self.now, lists=())
        self.commit(*groups)
        kept = (*lists, *self.now.lists)
        self.now = replace(self.now, lists=kept[-keep:] if keep else kept)

    def _manifest(self, path: str, files: Iterable[str]) -> Manifest:
        data = self.lake.files[path] = json.dumps(list(files)).encode()
        return Manifest(
            path=path,
            length_bytes=len(data),
            holds_deletes=False,
            spec_id=0,
            sequence_number=1,
            added_snapshot_id=None,
            live_files=None,
        )


class FakePaths:
    """Manifests are lists of paths (implements `ports.ManifestPaths`)."""

    def paths(self, data: bytes, manifest: str) -> Iterator[str]:  # noqa: ARG002
        yield from json.loads(data)

    def summaries(self, jobs: Iterable[tuple[Any, str, Callable[[], bytes]]], entries: int) -> Iterator[tuple[Any, Any]]:  # noqa: ARG002
        for key, path, read in jobs:
            try:
                found = list(self.paths(read(), path))
                yield key, (len(found), places_of_files(found))
            except NeveError as error:
                yield key, error


@dataclass
class World:
    """Catalogs, and an index over them. `refuses` has what cannot be listed or loaded, with the reason."""

    tables: dict[str, FakeTable] = field(default_factory=dict)
    lake: Lake = field(default_factory=Lake)
    refuses: dict[str, NeveError] = field(default_factory=dict)
    store: Any = field(default_factory=OptionalStore)
    links: dict[str, str] = field(default_factory=dict)
    on_open: Callable[[str], None] = lambda _: None
    remains: set[str] = field(default_factory=set)
    """Entries of a catalog whose metadata is gone."""

    def table(self, text: str, location: str | None = None) -> FakeTable:
        made = self.tables[text] = FakeTable(self.lake, location or f"/wh/{text.replace('.', '/')}")
        return made

    def listing(self) -> tuple[list[TableName], list[Neighbour]]:
        troubles = [Neighbour(name=text, trouble=str(error)) for text, error in self.refuses.items() if text not in self.tables]
        return [name(text) for text in self.tables], troubles

    def open(self, table: TableName) -> FakeReferences | None:
        self.on_open(str(table))
        if str(table) in self.remains:
            return None
        if str(table) in self.refuses:
            raise self.refuses[str(table)]
        if str(table) not in self.tables:
            raise TableNotFoundError(f"Cannot load table {table}: there is no such table")
        return self.tables[str(table)].now

    def now_ms(self) -> int:
        return 1

    def index(self) -> FileIndex:
        return FileIndex(IndexTools(self.listing, self.open, FakePaths(), self, self.store))

    def real(self, directory: str) -> str:
        """Resolves links, of which none leads to another."""
        directory = normpath(directory)
        for link, target in self.links.items():
            if f"{directory}/".startswith(f"{link}/"):
                return target + directory[len(link) :]
        return directory
