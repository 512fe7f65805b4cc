"""Rows past their time, found and deleted through Spark (implements `ttl_ports.PastRows`).

Files are chosen and dropped by Iceberg's own scan and commit (`bridge`). Rows go by Spark's DELETE: it follows the table's
delete mode in every format version, keeps row ids, and no position has to pass the driver. SQL knows columns by name only, so
each statement is built from the name that the field id has in the table as Spark sees it at that moment (`_destroy`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, CommitUnknownError, StorageError, VerificationError
from neve.maintenance.ttl import Tally, TtlLimits, TtlRule, TtlTarget, field_of
from neve.maintenance.ttl_proof import FooterFinding
from neve.rewrite.live_files import DataFile, LiveFile
from neve.spark.quoting import quoted
from neve.spark.table.bridge import TableBridge
from neve.spark.table.descriptions import java_class
from neve.spark.table.methods import Methods
from neve.spark.table.opening import FileIOSources, stored_columns
from neve.spark.table.outcome import committing, patiently
from neve.spark.table.redirects import refuse_redirects
from neve.spark.tasks.staging import exact_times, fresh_deletes, staged, without_deletes
from neve.table import time_format
from neve.table.calendar import DAY_SECONDS, iso_moment
from neve.table.units import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME_MAPPING = "schema.name-mapping.default"
_ANY_ERROR = "java.lang.Exception"


class SparkPastRows:
    """The rows of one table."""

    def __init__(self, spark: SparkSession, bridge: TableBridge) -> None:
        self._spark, self._bridge = spark, bridge
        self._mapping: str | None = None
        self._stored: dict[tuple[str, int], FooterFinding] = {}

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: TtlLimits) -> list[LiveFile]:
        """Data files that may hold some, with the bounds of the rule's column."""
        # Iceberg takes a plain number for microseconds, also where the column counts nanoseconds.
        high = int(limits.high) // 1000 if rule.type.endswith("_ns") else limits.high
        return self._bridge.below(snapshot_id, rule.field_id, high)

    def tallies(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: TtlLimits) -> Mapping[str, Tally]:
        """The rows of each of these files that are not deleted yet; files without any are left out."""
        if not paths:
            return {}
        from pyspark.errors import PySparkException
        from pyspark.sql.functions import expr, input_file_name

        tasks = self._bridge.scan_tasks(snapshot_id, paths)
        past = f"coalesce({predicate(rule, limits, column_of(self._bridge.schema_json(), rule))}, false)"
        sums = [expr(f"count_if({past})").alias("past"), expr(f"count_if(NOT {past})").alias("kept")]
        with exact_times(self._spark.conf), staged(self._spark, self._bridge, tasks) as set_id:
            try:
                reader = self._spark.read.format("iceberg").option("scan-task-set-id", set_id)
                # `exact_times`, also against the session's spark.datasource.iceberg.*, which go before its other settings.
                frame = reader.option("vectorization-enabled", "false").load(set_id)
                found = frame.groupBy(input_file_name().alias("path")).agg(*sums).collect()
                self._confirm_every_row(tasks, sum(row["past"] + row["kept"] for row in found))
            except PySparkException as error:
                raise StorageError(f"Cannot count rows past their time: {str(error).splitlines()[0]}") from error
        return {row["path"]: Tally(row["past"], row["kept"]) for row in found}

    def _confirm_every_row(self, tasks: Any, seen: int) -> None:
        """Raises StorageError if Iceberg's reader leaves out rows of these files: a delete that rewrites one would lose them.

        `seen` are the rows that are not deleted. Where deletes apply, all rows are counted, for which footers are opened alone.
        """
        found, every = seen, without_deletes(self._spark, tasks)
        if every is not None:
            with staged(self._spark, self._bridge, every) as set_id:
                found = self._spark.read.format("iceberg").option("scan-task-set-id", set_id).load(set_id).count()
        expected = sum(task.file().recordCount() for task in tasks)
        if missed_rows(found, expected):
            files = counted(len(tasks), "data file")
            told = f"Iceberg's reader finds {counted(found, 'row')} in {files} and the table has {expected:,}"
            raise StorageError(f"Cannot count rows past their time: {told}")

    def stored(self, files: Sequence[LiveFile], rule: TtlRule) -> Mapping[str, FooterFinding]:
        """What the footers of these files say of the rule's column, by path. Files never change, so each is opened once, unless
        the table's name mapping changes."""
        mapping = self._bridge.properties().get(_NAME_MAPPING)
        if mapping != self._mapping:
            self._mapping, self._stored = mapping, {}
        new = {file.path: file for file in files if (file.path, rule.field_id) not in self._stored}
        found = stored_columns(list(new.values()), rule.field_id, FileIOSources(self._bridge.table), mapping)
        self._stored |= {(path, rule.field_id): stored for path, stored in found.items()}
        return {file.path: self._stored[file.path, rule.field_id] for file in files}

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], target: TtlTarget) -> None:
        """Removes whole files from the table."""
        self._destroy(target, lambda _: self._bridge.drop(files, summary, target.branch))

    def delete(
        self, rule: TtlRule, limits: TtlLimits, summary: Mapping[str, str], target: TtlTarget, left_alone: Sequence[str] = ()
    ) -> None:
        """Deletes the rows one by one, the way that the table's properties ask for, but none of the files in `left_alone`."""
        table = self._quoted_branch(target.branch)

        def send(column: str) -> None:
            statement = f"DELETE FROM {table} WHERE {row_by_row(rule, limits, column)}{outside(left_alone)}"  # noqa: S608 - literals
            self._send(statement, summary)

        self._destroy(target, send)

    def _quoted_branch(self, branch: str) -> str:
        """The branch as SQL takes it. A statement without one goes to the branch that the session's settings name."""
        return f"{self._bridge.quoted}.{quoted(f'branch_{branch}')}"

    def _destroy(self, target: TtlTarget, send: Callable[[str], None]) -> None:
        """The only way to a destructive statement. Confirms the table's uuid and the column's field id, name and type in the
        table as Spark sees it, and that no setting of the session sends writes to another branch; then sends.

        `send` is given the column as SQL takes it.
        """
        self._spark.sql(f"REFRESH TABLE {self._bridge.quoted}")
        uuid, schema, properties = patiently("load the table that rows are deleted from", self._seen_by_spark)
        refuse_redirects(self._spark, properties, self._bridge.quoted)
        confirm_target(target, uuid, schema)
        send(current_column(target, schema))

    def _seen_by_spark(self) -> tuple[str, dict[str, Any], dict[str, str]]:
        """The table's uuid, schema and properties, loaded by the name that statements have."""
        jvm, session = self._bridge.jvm, self._spark._jsparkSession
        table = java_class(jvm, "spark.Spark3Util").loadIcebergTable(session, self._bridge.quoted)
        schema = json.loads(java_class(jvm, "SchemaParser").toJson(table.schema()))
        properties = {str(key): str(value) for key, value in dict(table.properties()).items()}
        return str(table.operations().current().uuid()), schema, properties

    def _send(self, statement: str, summary: Mapping[str, str]) -> None:
        from pyspark.errors import AnalysisException

        try:
            with exact_times(self._spark.conf), fresh_deletes(self._spark.conf), committing():
                self._run(statement, summary)
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


def missed_rows(found: int, expected: int) -> bool:
    """Whether a reader found other rows in files than the table's metadata has of them."""
    return found != expected


def confirm_target(target: TtlTarget, table_uuid: str, schema: Mapping[str, Any]) -> None:
    """Raises VerificationError if a table with this uuid and schema is not the one that was planned for."""
    if (objection := target.objection(table_uuid, schema)) is not None:
        hint = "Nothing was deleted. Preview the limit again: `neve ttl TABLE`."
        raise VerificationError(f"Cannot delete rows by {target.column}: {objection}", hint=hint)


def current_column(target: TtlTarget, schema: Mapping[str, Any]) -> str:
    """The name that the target's field id has in this schema, as SQL takes it; empty if the field is gone."""
    found = field_of(schema, target.field_id)
    return quoted(*found[0]) if found else ""


def column_of(schema: Mapping[str, Any], rule: TtlRule) -> str:
    """The name that the rule's field id has in this schema, as SQL takes it."""
    found = field_of(schema, rule.field_id)
    if found is None:
        raise VerificationError(f"Cannot count rows by {rule.column}: field {rule.field_id} is no longer in the table")
    return quoted(*found[0])


def predicate(rule: TtlRule, limits: TtlLimits, column: str) -> str:
    """In Spark SQL, for which neither time zone nor string escapes of the session matter."""
    low = "" if limits.low is None else f" AND {column} >= {limits.low}"
    text = column if rule.type == "string" else f"CAST({column} AS STRING)"
    match = f" AND {text} RLIKE {_text(time_format.expression(limits.pattern))}" if limits.pattern else ""
    return f"{column} < {_literal(rule, limits.high)}{low}{match}"


def row_by_row(rule: TtlRule, limits: TtlLimits, column: str) -> str:
    """The same rows, by a condition that Iceberg cannot answer from metadata alone. Its metadata delete writes no run id of
    ours into the snapshot: it would count as a write of somebody else, and could not be found again after a lost answer."""
    return f"{predicate(rule, limits, column)} AND hash({column}) % 2 < 2"


def outside(paths: Sequence[str]) -> str:
    """The further condition that a row is in none of these files, if there are any."""
    return f" AND `_file` NOT IN ({', '.join(map(_text, paths))})" if paths else ""


def _literal(rule: TtlRule, high: int | str) -> str:
    if isinstance(high, str):
        return _text(high)
    if rule.type == "date":
        return f"DATE '{iso_moment(high * DAY_SECONDS).partition('T')[0]}'"
    if rule.type == "timestamptz":
        return f"timestamp_micros({high})"
    if rule.type == "timestamp":
        return f"TIMESTAMP_NTZ '{iso_moment(high // 10**6, f'{high % 10**6:06d}')}'"
    if rule.type.endswith("_ns"):
        hint = "Whole files can go all the same: --ttl-by file."
        raise BadRequestError(f"Cannot look into files by {rule.column}: Spark reads no {rule.type}", hint=hint)
    return str(high)


def _text(value: str) -> str:
    """A text as SQL takes it, by its bytes: what a backslash means in a literal is a setting of the session."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"
