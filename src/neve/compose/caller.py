"""A place in the caller's own Spark session: its catalogs and its storage in place of those that settings describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from neve.compose.place import Place
from neve.core.model import TableName
from neve.engines.spark.callers import open_caller
from neve.ports import TableReader
from neve.settings import Settings


class CallerPlace(Place):
    """The session is used as it is, and left so; settings tell the policy, the state store and the cache."""

    def __init__(self, settings: Settings, spark: Any, *, environ: Mapping[str, str], resources: ExitStack) -> None:
        super().__init__(settings, {}, None, environ=environ, resources=resources)
        self._caller = resources.enter_context(open_caller(spark, self._plain_reader))

    def name(self, table: str) -> TableName:
        """As Spark would read it in this session."""
        return self._caller.name(table)

    def tables(self, namespace: str | None = None) -> Iterator[TableName]:
        """Tables of the session's current catalog; `namespace` may begin with the name of another."""
        return self._caller.tables(tuple(namespace.split(".")) if namespace else None)

    def storage(self, name: TableName) -> dict[str, str]:
        """What the session itself uses for the table."""
        return self._caller.storage(name)

    def order_storage(self, table: str) -> dict[str, str]:
        """The same: every order names a table of the session."""
        return self.storage(self.name(table))

    def check_commits(self, name: TableName) -> None:
        """Refuses tables in a catalog where commits could be lost."""
        self._caller.refuse_commits(name)

    @property
    def spark(self) -> Any:
        """The caller's session."""
        return self._caller.spark

    def _open(self, name: TableName) -> TableReader:
        return self._caller.open(name)

    def _plain_reader(self, name: TableName, table: Any) -> TableReader:
        from neve.catalogs.reader import MetadataReader

        return MetadataReader(name, table, self._cache)
