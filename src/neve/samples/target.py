"""Where samples are written, and the few verbs that every sample needs: name, create, append.

Called by the samples; callers of `neve.samples` make a `Target`. A sample's table bears the sample's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from neve.errors import BadRequestError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionKey, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Target:
    """A catalog as pyiceberg opens it and, for samples that need Spark, a session that knows it as `spark_catalog`."""

    catalog: Catalog
    spark: Any | None = None
    spark_catalog: str = "local"
    namespace: str = "db"

    def identifier(self, name: str) -> tuple[str, ...]:
        """A table's name for pyiceberg."""
        return (*self.namespace.split("."), name)

    def spark_name(self, name: str) -> str:
        """A table's name in Spark SQL."""
        return ".".join(f"`{part}`" for part in (self.spark_catalog, *self.identifier(name)))

    def session(self, purpose: str) -> Any:
        """The Spark session, for a purpose such as "build sample 'cdc'" that cannot do without."""
        if self.spark is None:
            raise BadRequestError(
                f"Cannot {purpose}: it needs a Spark session",
                hint="Give the target a session, or choose a sample that pyiceberg writes alone.",
            )
        return self.spark

    def load(self, name: str) -> Table:
        """The table as the catalog has it now."""
        return self.catalog.load_table(self.identifier(name))

    def refresh(self, name: str) -> None:
        """Makes Spark see what others have committed; its catalogs remember tables for a while."""
        if self.spark is not None:
            self.spark.sql(f"REFRESH TABLE {self.spark_name(name)}")

    def purge(self, name: str) -> None:
        """Drops a table with its files. Through Spark if it is there, whose cache would keep the table alive."""
        if self.spark is not None:
            self.spark.sql(f"DROP TABLE {self.spark_name(name)} PURGE")
        else:
            self.catalog.purge_table(self.identifier(name))

    def create(
        self, name: str, schema: Schema, *, spec: PartitionSpec | None = None, properties: Mapping[str, str] | None = None
    ) -> Table:
        """An empty table; format version 2 unless the properties say otherwise."""
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

        return self.catalog.create_table(
            self.identifier(name),
            schema,
            partition_spec=spec or UNPARTITIONED_PARTITION_SPEC,
            properties={"format-version": "2", **(properties or {})},
        )


def append(table: Table, rows: Rows) -> None:
    """One commit: one file for each partition that the rows fall into. Identity partitions only."""
    table.append(_arrow(table, rows))


def append_files(table: Table, groups: Iterable[Rows]) -> None:
    """One commit, one file for each group; a group's rows share a partition. Works for every transform."""
    from pyiceberg.io.pyarrow import write_file
    from pyiceberg.table import WriteTask

    write_id = uuid4()
    tasks = [
        WriteTask(
            write_uuid=write_id,
            task_id=n,
            schema=table.schema(),
            record_batches=_arrow(table, rows).to_batches(),
            partition_key=_partition_key(table, rows[0]),
        )
        for n, rows in enumerate(groups)
    ]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for file in write_file(io=table.io, table_metadata=table.metadata, tasks=iter(tasks)):
            snapshot.append_data_file(file)


def _arrow(table: Table, rows: Rows) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())


def _partition_key(table: Table, row: Mapping[str, Any]) -> PartitionKey | None:
    """The partition of a row. pyiceberg's own way needs a compiled library for anything but identity."""
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

    spec, schema = table.spec(), table.schema()
    if spec.is_unpartitioned():
        return None
    values = []
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        transformed = field.transform.transform(source.field_type)(_internal(row[source.name]))
        values.append(PartitionFieldValue(field=field, value=transformed))
    return PartitionKey(field_values=values, partition_spec=spec, schema=schema)


def _internal(value: Any) -> Any:
    from pyiceberg.utils.datetime import datetime_to_micros

    return datetime_to_micros(value) if isinstance(value, datetime) else value
