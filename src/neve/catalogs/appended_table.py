"""An Iceberg table that this process appends rows to, once each. Made by `service.history_writer`, for its own tables alone.

How far the rows go is a property of the table that changes in the same commit as the rows, so that a lost answer neither loses
rows nor appends them twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, CommitConflictError

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.catalogs.opening import IcebergCatalog
    from neve.table.state import TableName

_UNTIL = "neve-history.until-ms"
"""Not among the `neve.` properties, which are settings of the table."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RETRIES = "commit.retry.num-retries"


class AppendedTable:
    """One table. `moment` is its column of times; it is partitioned by the values of `partition`."""

    def __init__(self, catalog: IcebergCatalog, name: TableName, schema: pa.Schema, *, moment: str, partition: str) -> None:
        self._catalog, self._name, self._schema = catalog, name, schema
        self._moment, self._partition = moment, partition
        self._table: Any = None

    def open(self, properties: Mapping[str, str]) -> None:
        """Loads the table, with columns added that it lacks; creates it, and its namespace, if there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        with self._catalog.reaching(self._name):
            try:
                self._table = self._catalog.client.load_table(self._name.identifier)
            except NoSuchTableError:
                self._table = self._created(properties)
            if not set(self._schema.names) <= {field.name for field in self._table.schema().fields}:
                with self._table.update_schema() as update:
                    update.union_by_name(self._schema)

    def _created(self, properties: Mapping[str, str]) -> Any:
        from pyiceberg.transforms import IdentityTransform

        client = self._catalog.client
        try:
            client.create_namespace_if_not_exists(self._name.namespace)
            making = client.create_table_transaction(self._name.identifier, self._schema, properties=dict(properties))
        except NotImplementedError:
            raise BadRequestError(
                f"Cannot keep history in {self._name}: tables of this catalog are made by Spark alone",
                hint="Set service.history-namespace to a namespace of a SQL or REST catalog.",
            ) from None
        with making as transaction, transaction.update_spec() as spec:
            spec.add_field(self._partition, IdentityTransform(), self._partition)
        return client.load_table(self._name.identifier)

    @property
    def until_ms(self) -> int:
        """Until when rows were appended; 0 for a new table."""
        text = self._table.properties.get(_UNTIL, "0")
        return int(text) if text.isdecimal() else 0

    def keys_since(self, columns: Sequence[str], since_ms: int) -> set[tuple[Any, ...]]:
        """What identifies the rows that are there since a moment."""
        from pyiceberg.expressions import GreaterThanOrEqual

        since = (_EPOCH + timedelta(milliseconds=since_ms)).isoformat()
        with self._catalog.reaching(self._name):
            found = self._table.scan(
                row_filter=GreaterThanOrEqual(self._moment, since), selected_fields=tuple(columns)
            ).to_arrow()
        return set(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

    def append(self, rows: pa.Table, *, until_ms: int) -> None:
        """Appends rows and notes how far they go, in one commit. Raises CommitConflictError if others changed the table."""
        from pyiceberg.exceptions import CommitFailedException

        # Set in this copy alone: a retry by the library would append to a head whose rows nobody has compared with these.
        self._table.metadata.properties[_RETRIES] = "0"
        with self._catalog.reaching(self._name):
            try:
                with self._table.transaction() as transaction:
                    transaction.set_properties({_UNTIL: str(until_ms)})
                    transaction.append(rows)
            except CommitFailedException as error:
                raise CommitConflictError(f"Cannot append to {self._name}: {error}") from error
