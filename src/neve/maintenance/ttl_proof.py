"""Whether a file's own footer confirms what metadata says of it, before TTL drops the file as a whole. Pure.

Called by `operations.ttl` for files whose partition or bounds say that every row is past its time. Metadata of imported files
can be wrong: `add_files` records milliseconds as microseconds, keeps bounds under a field id that readers no longer find in the
file, and takes partition values from paths. A file that is not confirmed is read row by row; one of which readers see
different values is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve.maintenance.ttl import TtlLimits, TtlRule, UnprovedFile, identity_value, is_past_by_partition
from neve.rewrite.live_files import LiveFile
from neve.table.state import PartitionSpec


@dataclass(frozen=True)
class StoredColumn:
    """A column in the footer of one file. `kind` is the Iceberg type whose values it holds as Iceberg writes them, otherwise
    what the file says. Statistics cover all row groups and are None where one row group has none."""

    kind: str
    nulls: int | None = None
    lower: int | str | None = None
    upper: int | str | None = None


@dataclass(frozen=True)
class FooterFinding:
    """What the footer of a file says of one column. `column` is None where readers find no such column in the file; `unknown`
    is the reason why the file could not tell."""

    column: StoredColumn | None = None
    unknown: str | None = None
    is_damaged: bool = False


def why_unproved(
    file: LiveFile, stored: FooterFinding, rule: TtlRule, limits: TtlLimits, spec: PartitionSpec | None
) -> UnprovedFile | None:
    """Why a file may not be dropped as a whole; None if its footer confirms that every row is past its time."""
    if stored.unknown is not None:
        return UnprovedFile(path=file.path, reason=stored.unknown, left=stored.is_damaged, unreadable=stored.is_damaged)
    value = identity_value(file, rule, spec)
    if value is not None:
        if stored.column is None or _holds_only(stored.column, rule, value):
            return None  # a column that is only in the partition, as in Hive, has its value for every reader
        reason = f"its rows do not confirm its partition value of {rule.column}, so readers may see different values"
        return UnprovedFile(path=file.path, reason=reason, left=True)
    objection = _objection(stored.column, rule, limits)
    if objection is None:
        return None
    # Spark deletes whole partitions by their value and does not read the rows.
    is_contradicted = is_past_by_partition(file, rule, limits, spec) and _is_known(stored.column, rule)
    return UnprovedFile(path=file.path, reason=objection, left=is_contradicted)


def _holds_only(column: StoredColumn, rule: TtlRule, value: int | str) -> bool:
    return _is_same_type(column.kind, rule) and column.nulls == 0 and column.lower == column.upper == value


def _objection(column: StoredColumn | None, rule: TtlRule, limits: TtlLimits) -> str | None:
    if column is None:
        return f"it has no column that readers take for {rule.column}"
    if not _is_same_type(column.kind, rule):
        return f"it has {rule.column} as {column.kind}, the table as {rule.type}, so its bounds may be wrong"
    if column.nulls is None or not isinstance(column.lower, int) or not isinstance(column.upper, int):
        return f"its footer has no statistics of {rule.column}"
    if column.nulls or not limits.hold_between(column.lower, column.upper):
        return (
            f"the table's metadata says that every row is past its time, the statistics of {rule.column} in its footer do not"
        )
    return None


def _is_known(column: StoredColumn | None, rule: TtlRule) -> bool:
    return column is not None and _is_same_type(column.kind, rule) and column.nulls is not None and column.lower is not None


def _is_same_type(kind: str, rule: TtlRule) -> bool:
    return kind == rule.type or (kind, rule.type) == ("int", "long")
