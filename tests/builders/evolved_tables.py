"""Tables on Spark with every kind of schema and partition evolution, and data written at each stage of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.builders.spark_deletes import java_table
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NUMBERS = count()
MOMENTS = ("2024-12-31 23:59:59.999999", "2025-01-01 00:00:00", "1969-12-31 22:30:00")

COLUMNS = {
    "id": "id",
    "n": "IF(id % 4 = 0, NULL, CAST(-id AS INT))",
    "f": "CAST(IF(id % 5 = 0, 'NaN', id / 8) AS FLOAT)",
    "d": "CAST(IF(id % 3 = 0, NULL, id - 1000.25) AS DECIMAL(9, 2))",
    "name": "IF({null}, NULL, concat('größe ', id))",
    "gone": "concat('gone ', id)",
    "back": "CAST(id AS INT)",
    "region": "IF({null}, NULL, 'eu')",
    "ts": "IF({null}, NULL, TIMESTAMP '{moment}')",
    "s": "IF(id % 4 = 1, NULL, named_struct('x', IF(id % 3 = 0, NULL, CAST(id AS INT)), 'y', concat('y', id), 'z', 1))",
    "l": "IF(id % 4 = 2, NULL, array(named_struct('a', CAST(id AS INT), 'b', 'b'), NULL))",
    "m": "map('k', named_struct('k', CAST(id AS INT)), concat('n', id), NULL)",
    "must": "IF(id < 0, NULL, 'there')",
}
"""Each column of the first schema and a Spark expression for it; `null` tells which rows are in partitions of null."""

FIRST_SCHEMA = (
    "id BIGINT NOT NULL, n INT, f FLOAT, d DECIMAL(9, 2), name STRING, gone STRING, back INT, region STRING, ts TIMESTAMP, "
    "s STRUCT<x: INT, y: STRING, z: INT>, l ARRAY<STRUCT<a: INT, b: STRING>>, m MAP<STRING, STRUCT<k: INT>>, "
    "must STRING NOT NULL"
)


@dataclass
class Evolved:
    """A table on its way through the ages. In each there are two commits of one schema, and one after the next change."""

    bench: Bench
    first_version: int
    expressions: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    snapshots: list[int] = field(default_factory=list)
    rows: int = 0

    def age(self, spec: str, change: str = "", /, **expressions: str | None) -> None:
        """A new partition spec with two commits, then other columns with one more. Statements end in semicolons."""
        self._say(spec)
        self._insert()
        self._insert()
        self._say(change)
        self.expressions |= {name: text for name, text in expressions.items() if text is not None}
        for name in [name for name, text in expressions.items() if text is None]:
            del self.expressions[name]
        self._insert(in_null=False)

    def _say(self, statements: str) -> None:
        for statement in filter(None, (part.strip() for part in statements.split(";"))):
            self.bench.sql(f"ALTER TABLE {{}} {statement}")

    def _insert(self, *, in_null: bool = True) -> None:
        """Six rows, half of them in partitions of null unless told otherwise."""
        first, self.rows = self.rows, self.rows + 6
        fill = {"null": "id % 2 = 0" if in_null else "id < 0", "moment": MOMENTS[first // 18 % len(MOMENTS)]}
        columns = self.bench.spark.table(self.bench.sql_name).columns
        chosen = ", ".join(f"{self.expressions[name].format(**fill)} AS {name}" for name in columns)
        self.bench.sql(f"INSERT INTO {{}} SELECT {chosen} FROM range({first}, {first + 6}, 1, 1)")
        self.snapshots.append(int(java_table(self.bench).currentSnapshot().snapshotId()))

    def add_with_default(self, name: str, kind: str, value: Any) -> None:
        """A column that older files do not have and that is not null in them; Spark's SQL cannot say so."""
        jvm: Any = self.bench.spark._jvm
        type_ = jvm.org.apache.iceberg.types.Types.fromPrimitiveString(kind)
        literal = jvm.org.apache.iceberg.expressions.Expressions.lit(value).to(type_)
        java_table(self.bench).updateSchema().addColumn(name, type_, None, literal).commit()
        self.bench.sql("REFRESH TABLE {}")


def evolved(spark: SparkSession, warehouse: Path, first: int, last: int) -> Evolved:
    """Partition specs of every transform, data in nine of them, as many schemas, format versions from `first` to `last`."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.ages")
    table = Evolved(Bench(spark, warehouse, "ages", f"t{next(NUMBERS)}"), first)
    table.bench.sql(
        f"CREATE TABLE {{}} ({FIRST_SCHEMA}) USING iceberg PARTITIONED BY (region) TBLPROPERTIES "
        f"('format-version' = '{first}', 'write.distribution-mode' = 'none')"
    )
    table.age("", "ALTER COLUMN n TYPE BIGINT", n="IF(id % 4 = 0, NULL, -id * 10000000000)")
    table.age(  # a field that is dropped from the spec of a v1 table stays in it as void
        "DROP PARTITION FIELD region; ADD PARTITION FIELD bucket(2, id)",
        "RENAME COLUMN name TO title; DROP COLUMN gone",
        name=None,
        gone=None,
        title=COLUMNS["name"],
    )
    table.age(
        "SET TBLPROPERTIES ('format-version' = '2'); "
        "DROP PARTITION FIELD bucket(2, id); ADD PARTITION FIELD truncate(3, title)",
        "ALTER COLUMN f TYPE DOUBLE; ALTER COLUMN d TYPE DECIMAL(18, 2)",
        f="CAST(IF(id % 5 = 0, 'Infinity', id / 7) AS DOUBLE)",
        d="CAST(9999999999 + id AS DECIMAL(18, 2))",
    )
    table.age(
        "REPLACE PARTITION FIELD truncate(3, title) WITH years(ts)",
        "DROP COLUMN back; ADD COLUMN back STRING",
        back="concat('back ', id)",
    )
    table.age(
        "REPLACE PARTITION FIELD years(ts) WITH months(ts)",
        "ADD COLUMN s.added DATE; RENAME COLUMN s.y TO yy; DROP COLUMN s.z; ALTER COLUMN s.x TYPE BIGINT; "
        "ADD COLUMN l.element.c STRING; ALTER COLUMN l.element.a TYPE BIGINT; DROP COLUMN l.element.b; "
        "ADD COLUMN m.value.v DOUBLE; RENAME COLUMN m.value.k TO kk",
        s="IF(id % 4 = 1, NULL, named_struct('x', id, 'yy', 'Y', 'added', DATE '2024-02-29'))",
        l="array(named_struct('a', id, 'c', 'c'), NULL)",
        m="map('k', named_struct('kk', CAST(id AS INT), 'v', 0.5D))",
    )
    table.age(
        "REPLACE PARTITION FIELD months(ts) WITH days(ts); ADD PARTITION FIELD must",
        "ALTER COLUMN title FIRST; ALTER COLUMN region AFTER id; ALTER COLUMN s.added FIRST; ALTER COLUMN must DROP NOT NULL",
        must="IF(id % 2 = 0, NULL, 'there')",
        s="named_struct('added', DATE '2024-02-29', 'x', id, 'yy', 'Y')",
    )
    table.age("DROP PARTITION FIELD must; REPLACE PARTITION FIELD days(ts) WITH hours(ts)", "ADD COLUMN last INT", last="7")
    table.age("DROP PARTITION FIELD hours(ts)", f"SET TBLPROPERTIES ('format-version' = '{last}')")
    if last >= 3:
        table.add_with_default("fallback", "string", "from the start")
        table.expressions["fallback"] = "IF(id % 2 = 0, NULL, 'given')"
    table.age("ADD PARTITION FIELD days(ts); ADD PARTITION FIELD bucket(2, title)")
    return table
