"""A connection through the caller's own Spark session: its catalogs and storage instead of those that settings describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neve.context.connection import Connection
from neve.errors import NeveError
from neve.index_ports import References
from neve.maintenance.file_index import fingerprint
from neve.ports import Clock, TableEntry, TableReader
from neve.settings import Loaded
from neve.spark.caller.catalogs import open_caller
from neve.spark.caller.table import CallerTable
from neve.table.state import Manifest, TableName


@dataclass(frozen=True)
class OtherFormat:
    """A table that is not Iceberg, such as Parquet files in a directory (implements `index_ports.References`).

    No metadata names its files, and its whole directory is its own.
    """

    uuid: str
    own: tuple[str, ...]
    lists: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    trouble: str | None = None

    @property
    def fingerprint(self) -> str:
        """Changes with the location."""
        return fingerprint(self.uuid, self.own[0], (), ())

    def manifests(self, manifest_list: str) -> tuple[Manifest, ...]:
        """It has none."""
        raise NotImplementedError(manifest_list)

    def read(self, path: str, length: int) -> bytes:
        """It has none to read."""
        raise NotImplementedError(path, length)


class CallerConnection(Connection):
    """The session is used as it is, and left so; policy, state store and cache come from settings."""

    def __init__(self, loaded: Loaded, spark: Any, *, environ: Mapping[str, str], clock: Clock) -> None:
        super().__init__(loaded, {}, None, environ=environ, clock=clock)
        self._caller = self.resources.enter_context(open_caller(spark, self._plain_reader))
        self.session = spark

    def name(self, table: str) -> TableName:
        """As Spark would read it in this session."""
        return self._caller.name(table)

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the session's current catalog; `namespace` may begin with the name of another."""
        return self._caller.tables(tuple(namespace.split(".")) if namespace else None)

    def survey(self) -> Iterator[TableName | tuple[str, NeveError]]:
        """Every table of the session's Iceberg catalogs, and those of them that cannot be listed."""
        for catalog in sorted(self._caller.iceberg_names):
            try:
                yield from list(self._caller.survey(catalog))
            except NeveError as error:
                yield catalog, error

    def databases(self) -> Iterator[str]:
        """URLs of the state store and of the session's catalogs that are SQLite files."""
        yield self.state_url
        for catalog in self._caller.iceberg_names:
            yield self._caller.uri(catalog).replace("jdbc:sqlite:", "sqlite:///")

    def storage(self, name: TableName) -> dict[str, str]:
        """What the session itself uses for the table."""
        return self._caller.storage(name)

    def order_storage(self, table: str) -> dict[str, str]:
        """The same: every order names a table of the session."""
        return self.storage(self.name(table))

    def entry(self, name: TableName) -> TableEntry | None:  # noqa: ARG002 - the session has it all
        """None: the session is there, and its catalogs are not described."""
        return None

    def check_commits(self, name: TableName) -> None:
        """Refuses tables in a catalog where commits could be lost."""
        self._caller.refuse_commits(name)

    @property
    def spark(self) -> Any:
        """The caller's session."""
        self.session_uses += 1
        return self._caller.spark

    def references(self, name: TableName) -> References | None:
        """All that a table's metadata names, as the session loads it. Of a table that is certainly not Iceberg only its
        location counts, and a view has no files. If it is not certain what it is, this raises NeveError."""
        from neve.catalogs.references import TableReferences

        try:
            table = self._caller.table(name)
        except NeveError:
            if (places := self._caller.other_format(name)) is None:
                raise
            return OtherFormat(str(name), places) if places else None
        return TableReferences(table.outline(), table.io)

    def _open(self, name: TableName) -> TableReader:
        return self._caller.open(name)

    def _plain_reader(self, name: TableName, table: CallerTable) -> TableReader:
        from neve.catalogs.reader import MetadataReader

        return MetadataReader(name, table, self._cache)
