"""What the search for orphans and the file index need of the outside world. Adapters implement it; operations pick which."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from neve.errors import NeveError
from neve.maintenance.file_index import TableIndex
from neve.maintenance.orphans import Judged, OrphanRules
from neve.maintenance.quarantine import Candidate
from neve.table.document import TableOutline
from neve.table.state import Manifest

_Key = TypeVar("_Key")


class References(Protocol):
    """All that one table's metadata names, over all snapshots and refs."""

    @property
    def uuid(self) -> str:
        """The table's."""
        ...

    @property
    def own(self) -> tuple[str, ...]:
        """The table's location, and the paths that its properties name."""
        ...

    @property
    def lists(self) -> tuple[str, ...]:
        """The manifest lists of all snapshots."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The metadata file and its log, and statistics of all kinds."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when any of these changes."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why not all files can be found; None if they can."""
        ...

    def manifests(self, manifest_list: str) -> tuple[Manifest, ...]:
        """The manifests that a list names. Raises NeveError."""
        ...

    def read(self, path: str, length: int) -> bytes:
        """The bytes of a manifest. Raises NeveError, also where it has another length."""
        ...


class TableVersion(References, Protocol):
    """An Iceberg table as one metadata file has it."""

    @property
    def outline(self) -> TableOutline:
        """What the metadata file names directly."""
        ...

    def at(self, metadata_location: str) -> TableVersion | None:
        """The table as another metadata file has it; None if that file is gone or empty. Raises NeveError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file. Raises NeveError where nobody can tell."""
        ...


class ManifestPaths(Protocol):
    """Decodes manifests into the paths of their live entries."""

    def paths(self, data: bytes, manifest: str) -> Iterator[str]:
        """The live paths of one manifest. Raises NeveError."""
        ...

    def summaries(
        self, jobs: Iterable[tuple[_Key, str, Callable[[], bytes]]], entries: int
    ) -> Iterator[tuple[_Key, tuple[int, tuple[str, ...]] | NeveError]]:
        """How many live entries each manifest has and their directories, or why nobody can say, in the order of the jobs.

        A job is a key of the caller's, the manifest's path, and what reads its bytes; `entries` is about how many there are.
        """
        ...


class FileIndexStore(Protocol):
    """Keeps the file index between runs. A table's entry is written and read as a whole."""

    def index_fingerprints(self, tables: Collection[str]) -> Mapping[str, str]:
        """The fingerprints that were kept for these tables."""
        ...

    def table_indexes(self, tables: Collection[str]) -> Mapping[str, TableIndex]:
        """What was kept for these tables."""
        ...

    def keep_table_indexes(self, found: Mapping[str, TableIndex], now_ms: int) -> None:
        """Replaces the entries of these tables, all or none."""
        ...

    def forget_table_indexes(self, catalog: str, keep: Collection[str]) -> None:
        """Removes entries of a catalog's other tables."""
        ...


class OrphanSearch(Protocol):
    """Lists what lies at a place, and compares it with what a table needs. Its methods are called in this order."""

    def list_files(self, root: str, rules: OrphanRules, inventory: str | None = None) -> None:
        """Lists everything below a place, wholly, or reads a list of it."""
        ...

    def judge(self) -> Judged:
        """What the files are, by the rules and by the table's metadata as it is loaded now."""
        ...

    def hold(self, paths: Iterable[str]) -> Judged:
        """What the files are if these are needed too, by versions of the table that its history does not have."""
        ...

    def drop(self, metadata_files: Iterable[str]) -> Judged:
        """What the files are if these metadata files, whatever their age, are of tables that were dropped."""
        ...

    def share(self, paths: Iterable[str]) -> Judged:
        """What the files are if these are needed too: by other tables, or by this one under another path."""
        ...

    def orphans(self) -> Iterator[Candidate]:
        """Metadata files of dropped tables, then the other orphans, each ordered by path, a batch at a time."""
        ...
