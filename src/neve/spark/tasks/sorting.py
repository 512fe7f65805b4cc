"""Rows brought into a layout's order by Spark, whatever their amount: a sample, cuts between parts, one shuffle, sorted parts.

Called by `spark_kernel`. Parts follow one another without overlap; each becomes a file, or several that follow one another make
one, so that a task never sorts much more than `PART_BYTES` at a time. Spark's own range partitioning would read everything
twice, and give all rows of a key to one task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.spark.quoting import quoted
from neve.spark.tasks.curve_columns import ArrowCurve, SqlCurve
from neve.spark.tasks.cuts import choose, find_cuts
from neve.spark.tasks.shipping import prepare
from neve.table.layout import Layout, LayoutKind, SortField
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PART_BYTES = 128 * MIB
"""What a task sorts at a time, decoded: less than a core's share of the smallest executors in use."""
MAX_PARTS = 4096
SAMPLE_ROWS = 100_000
_SEED = 6

_DECODED_RATIO = 3
"""Of a file's size, at least; what the types of the columns say is only right for short text."""
_TEXT_BYTES = 40
_KEY, _PLACE = "__neve_key", "__neve_place"
_FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


@dataclass(frozen=True)
class Amount:
    """What is to be laid out, and in how many files."""

    rows: int
    size_bytes: int
    files: int

    def parts_per_file(self, columns: Sequence[Any]) -> int:
        """Into how many parts a file is cut for sorting."""
        width = sum(8 if column.dataType.typeName() in _FIXED else _TEXT_BYTES for column in columns)
        decoded = max(self.rows * width, self.size_bytes * _DECODED_RATIO)
        return max(1, min(math.ceil(decoded / (self.files * PART_BYTES)), MAX_PARTS // self.files))


_FIXED = {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"}


class Sorter:
    """Lays out frames of one table, whose catalog has Iceberg's functions."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog

    def laid_out(self, frame: DataFrame, layout: Layout, amount: Amount) -> DataFrame:
        """The rows in the layout's order, as many partitions as files."""
        names = frame.columns
        fields = tuple(field for field in layout.fields if field.transform != "void")
        if not fields or not amount.rows:
            return frame.coalesce(amount.files)
        frame, terms = self._with_terms(frame, fields)
        parts_per_file = amount.parts_per_file(frame.schema.fields) if self._can_gather else 1
        parts = amount.files * parts_per_file
        is_curve = layout.kind is not LayoutKind.SORT and len(fields) > 1
        columns, places = self._sample(frame, terms, amount.rows) if is_curve or parts > 1 else ([], pa.array([]))
        if is_curve:
            curve = (ArrowCurve if self._has_arrow else SqlCurve).of(layout.kind, columns)
            frame = curve.on(frame, terms, _KEY)
            columns, terms, fields = [curve.keys(columns)], [_KEY], (SortField(name=_KEY),)
        cuts = find_cuts(columns, places, fields, parts, is_curve=is_curve)
        if not cuts:
            frame = frame.coalesce(1)
        else:
            part = choose(terms, fields, _PLACE, cuts=cuts, parts=self._numbers(parts))
            frame = frame.selectExpr("*", f"monotonically_increasing_id() AS {_PLACE}").repartition(parts, _expr(part))
        frame = frame.sortWithinPartitions(*map(_ordering, terms, fields)).select(*map(quoted, names))
        return self._gathered(frame, amount.files, parts_per_file) if cuts else frame

    def _with_terms(self, frame: DataFrame, fields: Sequence[SortField]) -> tuple[DataFrame, list[str]]:
        """SQL for each field's value; those that are computed become columns, since sorting asks for them again and again."""
        paths = [_path(frame.schema, field.name) for field in fields]
        computed = {at: self._computed(field, paths[at]) for at, field in enumerate(fields) if field.transform != "identity"}
        frame = frame.selectExpr("*", *(f"{text} AS __neve_{at}" for at, text in computed.items()))
        return frame, [f"__neve_{at}" if at in computed else path for at, path in enumerate(paths)]

    def _computed(self, field: SortField, path: str) -> str:
        """Iceberg's own functions do what Iceberg's transforms do."""
        name, _, number = field.transform.rstrip("]").partition("[")
        arguments = f"{number}, {path}" if number else path
        return f"{quoted(self._catalog)}.system.{_FUNCTIONS.get(name, name)}({arguments})"

    def _sample(self, frame: DataFrame, terms: Sequence[str], rows: int) -> tuple[list[pa.Array], pa.Array]:
        """The fields of some rows, and their places in the inputs. Only these columns are read."""
        named = [f"{term} AS f{at}" for at, term in enumerate(terms)]
        chosen = frame.selectExpr(*named, f"monotonically_increasing_id() AS {_PLACE}")
        if rows > SAMPLE_ROWS:
            chosen = chosen.sample(SAMPLE_ROWS / rows, seed=_SEED)
        table = _collected(chosen)
        *columns, places = (table.column(name).combine_chunks() for name in table.column_names)
        return columns, places

    @property
    def _has_arrow(self) -> bool:
        """Whether executors can compute a curve by our own code: Spark 3.5 has no functions over Arrow."""
        from pyspark.sql import functions

        return hasattr(functions, "arrow_udf") and prepare(self._spark.sparkContext) is None

    def _numbers(self, parts: int) -> list[int]:
        """For each part a number that Spark's hash sends to the partition of that number."""
        number = "CAST(id AS INT)"
        hashed = self._spark.range(0, 32 * parts, 1, 1).selectExpr(f"{number} AS n", f"pmod(hash({number}), {parts}) AS part")
        found = {row.part: row.n for row in hashed.collect()}
        return [found[part] for part in range(parts)]

    @property
    def _can_gather(self) -> bool:
        return bool(self._jvm.org.apache.iceberg.spark.Spark3Util.extensionsEnabled(self._spark._jsparkSession))

    def _gathered(self, frame: DataFrame, files: int, parts_per_file: int) -> DataFrame:
        """Neighbours in one task, one after the other, by the node that Iceberg's extensions bring for it: Spark's own
        `coalesce` takes those that are close at hand."""
        if parts_per_file == 1:
            return frame
        from pyspark.sql import DataFrame

        sql, logical = self._jvm.org.apache.spark.sql, self._jvm.org.apache.spark.sql.catalyst.plans.logical
        plan = frame._jdf.queryExecution().logical()
        gathered = logical.OrderAwareCoalesce(files, logical.OrderAwareCoalescer(parts_per_file), plan)
        datasets = sql.classic.Dataset if self._spark.version >= "4" else sql.Dataset
        return DataFrame(datasets.ofRows(self._spark._jsparkSession, gathered), self._spark)

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm


def _collected(frame: Any) -> pa.Table:
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())  # Spark 3.5 has only the private name


def _expr(text: str) -> Column:
    from pyspark.sql.functions import expr

    return expr(text)


def _ordering(term: str, field: SortField) -> Column:
    column = _expr(term)
    if field.descending:
        return column.desc_nulls_first() if field.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if field.nulls_first else column.asc_nulls_last()


def _path(struct: Any, name: str) -> str:
    """A column as SQL takes it, by Iceberg's name: dots between levels, and a level's own name may have dots too."""
    return quoted(*(_levels(struct, name) or name.split(".")))


def _levels(struct: Any, name: str) -> list[str] | None:
    for field in struct.fields:
        if field.name == name:
            return [field.name]
        inside = field.dataType if field.dataType.typeName() == "struct" else None
        if inside is not None and name.startswith(f"{field.name}."):
            below = _levels(inside, name.removeprefix(f"{field.name}."))
            if below is not None:
                return [field.name, *below]
    return None
