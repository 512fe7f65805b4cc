"""Rows past their time, found and deleted through Spark (implements `ports.PastRows`).

Files are chosen and dropped by Iceberg's own scan and commit (`bridge`). Rows go by Spark's DELETE: it follows the table's
delete mode in every format version, keeps row ids, and no position has to pass the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from neve.core import time_format
from neve.core.live import DataFile, LiveFile
from neve.core.model import MAIN
from neve.core.ttl import Limits, TtlRule
from neve.engines.spark.bridge import TableBridge
from neve.engines.spark.methods import Methods
from neve.engines.spark.outcome import committing
from neve.engines.spark.staging import fresh_deletes, staged
from neve.errors import BadRequestError, CommitUnknownError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_ERROR = "java.lang.Exception"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SparkPastRows:
    """The rows of one table."""

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._bridge = spark, bridge

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: Limits) -> list[LiveFile]:
        """Data files that may hold some, with the bounds of the rule's column."""
        # Iceberg takes a plain number for microseconds, also where the column counts nanoseconds.
        high = int(limits.high) // 1000 if rule.type.endswith("_ns") else limits.high
        return self._bridge.below(snapshot_id, rule.field_id, high)

    def counts(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: Limits) -> Mapping[str, int]:
        """How many rows of each of these files are past and not deleted yet; files without any are left out."""
        if not paths:
            return {}
        from pyspark.errors import PySparkException
        from pyspark.sql.functions import input_file_name

        tasks = self._bridge.scan_tasks(snapshot_id, paths)
        with staged(self._spark, self._bridge, tasks) as set_id:
            try:
                frame = self._spark.read.format("iceberg").option("scan-task-set-id", set_id).load(set_id)
                found = frame.where(predicate(rule, limits)).groupBy(input_file_name().alias("path")).count().collect()
            except PySparkException as error:
                raise StorageError(f"Cannot count rows past their time: {str(error).splitlines()[0]}") from error
        return {row["path"]: row["count"] for row in found}

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], branch: str) -> None:
        """Takes whole files out of the table."""
        self._bridge.drop(files, summary, branch)

    def delete(self, rule: TtlRule, limits: Limits, summary: Mapping[str, str], branch: str) -> None:
        """Deletes the rows one by one, the way that the table's properties ask for."""
        from pyspark.errors import AnalysisException

        table = self._bridge.quoted if branch == MAIN else f"{self._bridge.quoted}.`branch_{branch}`"
        self._spark.sql(f"REFRESH TABLE {self._bridge.quoted}")
        try:
            with fresh_deletes(self._spark.conf), committing():
                self._run(f"DELETE FROM {table} WHERE {predicate(rule, limits)}", summary)  # noqa: S608 - literals only
        except CommitUnknownError as error:
            if isinstance(error.__cause__, AnalysisException):  # Spark did not even begin
                raise BadRequestError(f"Cannot delete rows: {str(error.__cause__).splitlines()[0]}") from error
            raise

    def _run(self, statement: str, summary: Mapping[str, str]) -> None:
        """A statement whose snapshot says this, and no other's of the session; its settings would say it for all writes, and
        Spark 3.5 does not ask them."""
        jvm, methods = self._bridge.jvm, Methods(self._spark)
        properties = jvm.java.util.HashMap()
        for key, value in summary.items():
            properties.put(key, value)
        call, errors = methods.calling(self._spark._jsparkSession, "sql", statement), jvm.java.lang.Class.forName(_ANY_ERROR)
        jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(properties, call, errors)


def predicate(rule: TtlRule, limits: Limits) -> str:
    """In Spark SQL, for which no time zone of the session matters."""
    column = ".".join(f"`{part.replace('`', '``')}`" for part in rule.column.split("."))
    low = "" if limits.low is None else f" AND {column} >= {limits.low}"
    match = f" AND {column} RLIKE {_text(time_format.expression(limits.pattern))}" if limits.pattern else ""
    return f"{column} < {_literal(rule, limits.high)}{low}{match}"


def _literal(rule: TtlRule, high: int | str) -> str:
    if isinstance(high, str):
        return _text(high)
    if rule.type == "date":
        return f"DATE '{date(1970, 1, 1) + timedelta(days=high)}'"
    if rule.type == "timestamptz":
        return f"timestamp_micros({high})"
    if rule.type == "timestamp":
        return f"TIMESTAMP_NTZ '{(_EPOCH + timedelta(microseconds=high)).strftime('%Y-%m-%d %H:%M:%S.%f')}'"
    if rule.type.endswith("_ns"):
        hint = "Whole files can go all the same: --ttl-by file."
        raise BadRequestError(f"Cannot look into files by {rule.column}: Spark reads no {rule.type}", hint=hint)
    return str(high)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
