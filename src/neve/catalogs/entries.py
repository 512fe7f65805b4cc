"""A table's entry in its catalog, read and changed in plain Python (implements `ports.TableEntry`).

Opened by `opening.IcebergCatalog.entry`. An `EntrySource` is the catalog's part: `sql_entries` and `rest_entries`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from neve.commit.property_swap import Loaded, swap_until_settled
from neve.errors import CorruptMetadataError, NeveError, TableGoneError, TableNotFoundError
from neve.table.document import TableOutline
from neve.table.state import TableName

log = logging.getLogger(__name__)

_WAITS = (0.1, 0.5, 2.0)
_MOST = 200
"""Tables of a namespace that are loaded to find one that was renamed."""


@dataclass(frozen=True)
class Version:
    """A table as its catalog has it at one moment."""

    outline: TableOutline
    source: Any = None
    """What the catalog's part needs of it: the metadata file's bytes, or the answer of a server."""

    @property
    def uuid(self) -> str:
        """The table's identity."""
        return str(self.outline.uuid)


class EntrySource(Protocol):
    """How one catalog loads and changes the entries of its tables."""

    def load(self, name: TableName) -> Version:
        """The newest version. Raises TableNotFoundError."""
        ...

    def check(self, name: TableName, version: Version) -> None:
        """Raises NotUnderstoodError for a table that only Iceberg's Java may change."""
        ...

    def send(self, name: TableName, base: Version, values: Mapping[str, str | None]) -> Version | None:
        """Sets properties on top of `base`, or removes them; None if that certainly did not happen since the table has changed.

        Raises CommitUnknownError if it may have happened.
        """
        ...

    def tables_in(self, namespace: tuple[str, ...]) -> Iterable[TableName]:
        """The tables of a namespace."""
        ...


class PlainEntry:
    """One table. A table that was found gone stays gone, whatever has its name later."""

    def __init__(self, name: TableName, entries: EntrySource) -> None:
        """Raises NotUnderstoodError for a table that only Iceberg's Java may change."""
        self._name, self._entries = name, entries
        self._version = self._loaded()
        entries.check(name, self._version)
        self._uuid = self._version.uuid.lower()
        self._gone: TableGoneError | None = None
        self._lock = threading.RLock()
        """A lease is renewed by a thread of its own: what was loaded last must be what is newest."""

    def refresh(self) -> None:
        """Loads the newest metadata. Raises TableGoneError if the table was dropped, renamed or replaced."""
        self._newest()

    def uuid(self) -> str | None:
        """Of the table that was loaded."""
        return self._version.uuid

    def metadata_location(self) -> str:
        """The location of the loaded metadata file."""
        return self._version.outline.metadata_location

    def location(self) -> str:
        """The table's own location."""
        return self._version.outline.location

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._version.outline.properties)

    def follow(self) -> str | None:
        """After a rename: moves on to the same table under its new name in the same namespace, and returns that name."""
        try:
            others = list(islice(self._entries.tables_in(self._name.namespace), _MOST))
        except NeveError as error:
            log.warning("%s", error)
            return None
        for name in others:
            if (found := self._found(name)) is not None and found.uuid.lower() == self._uuid:
                self._name, self._version, self._gone = name, found, None
                return str(name)
        return None

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        """Changes one property if it is as expected, in one step; False if it is not. None stands for no such property."""
        return self.swap_properties({key: expected}, {key: value})

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        """The same for several properties at once; `expected` may name others than those that change."""

        def load() -> Loaded:
            base = self._newest()
            return base.outline.properties, lambda: self._sent(base, values)

        with self._lock:
            return swap_until_settled(load, expected, values)

    def _sent(self, base: Version, values: Mapping[str, str | None]) -> bool:
        changed = self._entries.send(self._name, base, values)
        self._version = changed or self._version
        return changed is not None

    def _newest(self) -> Version:
        """The newest version of the table that was loaded, and of no other."""
        if self._gone is not None:
            raise self._gone
        with self._lock:
            try:
                found = self._loaded()
            except TableNotFoundError as error:
                self._gone = self._gone_by("it was dropped or renamed")
                raise self._gone from error
            if found.uuid.lower() != self._uuid:
                self._gone = self._gone_by(f"another table has its name ({found.uuid} instead of {self._version.uuid})")
                raise self._gone
            self._version = found
            return found

    def _gone_by(self, why: str) -> TableGoneError:
        return TableGoneError(
            f"Cannot go on with {self._name}: {why} during the run",
            hint="Nothing more was committed, and no file was removed. Files that are in the quarantine stay there.",
        )

    def _loaded(self) -> Version:
        return _patiently(lambda: self._entries.load(self._name))

    def _found(self, name: TableName) -> Version | None:
        try:
            return self._entries.load(name)
        except NeveError:
            return None


def _patiently(load: Callable[[], Version]) -> Version:
    """A catalog that does not answer is asked again, and so is one whose metadata file went while it was read."""
    for seconds in _WAITS:
        try:
            return load()
        except NeveError as error:
            if not error.retryable and not isinstance(error, CorruptMetadataError):
                raise
            log.info("tried again in %s s: %s", seconds, error)
            time.sleep(seconds)
    return load()
