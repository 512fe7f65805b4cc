"""Two writers in one plain Spark: `python -m tests.histories.spark_actor SETTINGS TABLE`.

Lane `spark` inserts, updates and deletes by copy-on-write; lane `cdc` upserts with equality deletes as Flink does, and merges
on read. Each has a session of its own. Only the session is opened by the code under test; it is configured for the catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.histories.checker import CHANGE
from tests.histories.rows import row, zone_of
from tests.histories.serving import Tell, serve, take_host_name

_TRIES = 3
_REFUSALS = ("ValidationException", "CommitFailedException")
"""Of these it is certain that nothing was committed."""
Rows = list[tuple[int, int]]
"""Ids with their versions."""


class Writer:
    """A session that writes to the table."""

    def __init__(self, spark: Any, table: str) -> None:
        self._spark, self._name, self._sql_name = spark.newSession(), table, f"lake.{table}"

    def _sql(self, change: int, statement: str) -> None:
        """A statement that lost against another commit is planned again on the new head."""
        from py4j.protocol import Py4JJavaError

        self._spark.conf.set(f"spark.sql.iceberg.snapshot-property.{CHANGE}", str(change))
        for left in reversed(range(_TRIES)):
            self._spark.sql(f"REFRESH TABLE {self._sql_name}")
            try:
                self._spark.sql(statement).collect()
            except Py4JJavaError as error:
                if not left or error.java_exception.getClass().getSimpleName() not in _REFUSALS:
                    raise
            else:
                return

    def insert(self, change: int, rows: Rows, gone: list[int]) -> None:
        del gone
        self._sql(change, f"INSERT INTO {self._sql_name} (zone, id, v, text) VALUES {_values(rows)}")

    def update(self, change: int, rows: Rows, gone: list[int]) -> None:
        del gone
        text = f"lower(hex(id * 1000003 + {change} * 40503))"
        self._sql(change, f"UPDATE {self._sql_name} SET v = {change}, text = {text} WHERE {_chosen(key for key, _ in rows)}")

    def delete(self, change: int, rows: Rows, gone: list[int]) -> None:
        del rows
        self._sql(change, f"DELETE FROM {self._sql_name} WHERE {_chosen(gone)}")

    def merge(self, change: int, rows: Rows, gone: list[int]) -> None:
        """Merge on read: deletes by position."""
        source = _values(rows, "false") + "".join(f", ({zone_of(key)}, {key}, 0, '', true)" for key in gone)
        self._sql(
            change,
            f"MERGE INTO {self._sql_name} t USING (SELECT * FROM VALUES {source} AS s(zone, id, v, text, gone)) s "
            "ON t.zone = s.zone AND t.id = s.id WHEN MATCHED AND s.gone THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET t.v = s.v, t.text = s.text "
            "WHEN NOT MATCHED AND NOT s.gone THEN INSERT (zone, id, v, text) VALUES (s.zone, s.id, s.v, s.text)",
        )

    def upsert(self, change: int, rows: Rows, gone: list[int]) -> None:
        """New rows, and equality deletes of all older rows with these ids, in one commit. All keys are in one zone."""
        jvm, table = self._spark._jvm, self._table()
        keys = [*(key for key, _ in rows), *gone]
        partition = f"zone={zone_of(keys[0])}"
        delta = table.newRowDelta().set(CHANGE, str(change))
        if rows:
            path, size = self._write(table, [vars(row(*one)) for one in rows], ("zone", "id", "v", "text"))
            data = jvm.org.apache.iceberg.DataFiles.builder(table.spec()).withPath(path).withFormat("parquet")
            delta = delta.addRows(
                data.withFileSizeInBytes(size).withRecordCount(len(rows)).withPartitionPath(partition).build()
            )
        path, size = self._write(table, [{"id": key} for key in keys], ("id",))
        ids = self._spark.sparkContext._gateway.new_array(jvm.int, 1)
        ids[0] = table.schema().findField("id").fieldId()
        delete = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
        delete = delete.withFormat("parquet").withPath(path).withFileSizeInBytes(size).withRecordCount(len(keys))
        delta.addDeletes(delete.withPartitionPath(partition).build()).commit()

    def rows(self) -> list[list[Any]]:
        """Every row as Spark reads it."""
        self._spark.sql(f"REFRESH TABLE {self._sql_name}")
        return [list(found) for found in self._spark.sql(f"SELECT id, v, zone, text FROM {self._sql_name}").collect()]

    def _table(self) -> Any:
        # The catalogs of the active session count, and that is a matter of the thread.
        self._spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._spark._jsparkSession)
        util = self._spark._jvm.org.apache.iceberg.spark.Spark3Util
        table = util.loadIcebergTable(self._spark._jsparkSession, self._sql_name)
        table.refresh()
        return table

    def _write(self, table: Any, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> tuple[str, int]:
        """A Parquet file with field ids, written through the table's own file access."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"zone": pa.int32(), "id": pa.int64(), "v": pa.int64(), "text": pa.string()}
        ids = {name: str(table.schema().findField(name).fieldId()) for name in columns}
        schema = pa.schema([pa.field(name, kinds[name], metadata={"PARQUET:field_id": ids[name]}) for name in columns])
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
        content = sink.getvalue().to_pybytes()
        path = f"{table.location()}/data/cdc-{uuid4()}.parquet"
        stream = table.io().newOutputFile(path).create()
        stream.write(content)
        stream.close()
        return path, len(content)


def _values(rows: Rows, *more: str) -> str:
    made = [row(*one) for one in rows]
    return ", ".join(f"({', '.join((str(r.zone), str(r.id), str(r.v), repr(r.text), *more))})" for r in made)


def _chosen(keys: Iterable[int]) -> str:
    listed = list(keys)
    zones = sorted({zone_of(key) for key in listed})
    return f"zone IN ({', '.join(map(str, zones))}) AND id IN ({', '.join(map(str, listed))})"


def main() -> None:
    take_host_name()
    # The session ends with its connection, also when the garbage collector finds a connection that nobody holds.
    with ExitStack() as connections:
        serve(partial(start, connections))


def start(connections: ExitStack, _: Tell) -> Any:
    from neve.api import Neve
    from neve.settings import load_settings

    spark = connections.enter_context(Neve.open(load_settings(file=Path(sys.argv[1])))).spark
    spark.sql("SELECT 1").collect()
    inserting, changing = Writer(spark, sys.argv[2]), Writer(spark, sys.argv[2])
    calls = {
        "insert": inserting.insert,
        "update": inserting.update,
        "delete": inserting.delete,
        "rows": inserting.rows,
        "upsert": changing.upsert,
        "delete-equal": changing.upsert,
        "merge": changing.merge,
    }
    return calls, ["spark", "cdc"]


if __name__ == "__main__":
    main()
