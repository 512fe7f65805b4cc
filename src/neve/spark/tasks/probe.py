"""A probe query: what it answers and how long it takes, measured before a run and again after it.

Called by `operations.compact` around a run. Only queries are accepted; answers are compared without their order, and
floating-point numbers to ten digits, since other files mean another order of adding up.
"""

from __future__ import annotations

import re
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError
from neve.rewrite.content import Measured
from neve.spark.quoting import quoted
from neve.spark.runtime.job_failure import reason_of
from neve.spark.table.redirects import refuse_redirects
from neve.spark.tasks.content import fingerprint_frame
from neve.table.spark_sql import uncache
from neve.table.state import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 3
_CATALYST = "org.apache.spark.sql.catalyst.plans.logical"
_WRITES = (f"{_CATALYST}.Command", f"{_CATALYST}.ParsedStatement")
_HINT = "Give a single SELECT, or WITH ... SELECT, in Spark SQL."
_LEAD = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def require_query(sql: str) -> None:
    """Refuses what does not even begin like a query; asks no Spark, so that a bad option is refused before anything starts."""
    beginning = _LEAD.match(sql)
    word = re.match(r"\w*", sql[beginning.end() :] if beginning else sql)
    if word is None or word[0].upper() not in ("SELECT", "WITH"):
        begins = f"begins with {word[0]}" if word and word[0] else "is empty"
        raise BadRequestError(f"Cannot probe with {_short(sql)!r}: it {begins}, and only queries are run", hint=_HINT)


class Probe:
    """One query, and the table whose new files it must see."""

    def __init__(self, spark: SparkSession, sql: str, table: TableName, *, limit_seconds: float = 120.0) -> None:
        require_query(sql)
        self._spark, self._sql, self._limit = spark, sql, limit_seconds
        self._name = table
        self._table = quoted(table.catalog, *table.identifier)
        self._refuse_writes()

    def measure(self) -> Measured:
        """One run for the answer, which also warms up, then three for the time, fewer if the limit is reached first."""
        if self._spark.catalog.isCached(self._table):
            raise BadRequestError(
                f"Cannot probe with {_short(self._sql)!r}: {self._table} is cached, and its files would not be read",
                hint=f"Run `{uncache(self._name.catalog, *self._name.identifier)}` first.",
            )
        refuse_redirects(self._spark, self._properties(), self._table)
        try:
            return self._measure()
        except Exception as error:  # what a query can do wrong comes as many types
            raise self._refused(error) from error

    def _measure(self) -> Measured:
        # Spark's catalogs remember a table for a while, and would answer from the old files.
        self._spark.sql(f"REFRESH TABLE {self._table}")
        began = time.monotonic()
        answer = fingerprint_frame(_rounded(self._spark.sql(self._sql)))
        seconds = [self._timed()]
        while len(seconds) < RUNS and time.monotonic() - began < self._limit:
            seconds.append(self._timed())
        return Measured(sql=self._sql, answer=answer, seconds=median(seconds), runs=len(seconds))

    def _properties(self) -> dict[str, str]:
        jvm: Any = self._spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self._table)
        return dict(table.properties())

    def _timed(self) -> float:
        began = time.monotonic()
        self._spark.sql(self._sql).write.format("noop").mode("overwrite").save()
        return time.monotonic() - began

    def _refused(self, error: Exception) -> BadRequestError:
        return BadRequestError(f"Cannot probe with {_short(self._sql)!r}: {_headline(error)}", hint=_HINT)

    def _refuse_writes(self) -> None:
        """Spark takes WITH ... INSERT and the like for one statement: its own parser has the last word."""
        from pyspark.errors import ParseException

        try:
            plan: Any = self._spark._jsparkSession.sessionState().sqlParser().parsePlan(self._sql)
        except ParseException as error:
            raise self._refused(error) from error
        if self._writes(plan):
            raise BadRequestError(f"Cannot probe with {_short(self._sql)!r}: it would change something", hint=_HINT)

    def _writes(self, plan: Any) -> bool:
        from py4j.java_gateway import is_instance_of

        gateway = self._spark.sparkContext._gateway
        if any(is_instance_of(gateway, plan, name) for name in _WRITES):
            return True
        children = plan.children()
        return any(self._writes(children.apply(i)) for i in range(children.length()))


def _rounded(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    numbered = frame.toDF(*(str(i) for i in range(len(frame.columns))))
    columns = [
        functions.format_string("%.9e", numbered[name]).alias(name) if kind in ("double", "float") else numbered[name]
        for name, kind in numbered.dtypes
    ]
    return numbered.select(*columns)


def _headline(error: Exception) -> str:
    """What Spark's own errors say in their first line; of others, of which the first line says little, somewhat more."""
    from pyspark.errors import PySparkException

    text = str(error).strip()
    return text.splitlines()[0] if isinstance(error, PySparkException) and text else reason_of(error)


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 80 else f"{text[:77]}..."
