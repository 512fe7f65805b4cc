"""Whether files can share one footer, and what that footer then says of all of them.

Used by `copying`. What steers readers must be equal in every file, or the copy is refused: schema, column orders, key-value
metadata (Arrow's schema, Spark's calendar and time zone). Where row lineage is to be kept, a file
that lacks it counts as if it had it, since `splicing` adds it. `iceberg.schema` and `writer.model.name` tell how one file came
to be and steer nobody: kept when all files have the same, dropped otherwise, since rows written under two table schemas belong
to neither.
"""

from __future__ import annotations

from functools import lru_cache

from neve.kernels.faults import Objection
from neve.kernels.parquet import thrift
from neve.kernels.parquet.footer import Footer
from neve.kernels.parquet.schema import LINEAGE_IDS, PhysicalSchema, with_lineage
from neve.kernels.parquet.writers import ParquetWriter, writer_of

MAX_ROW_GROUPS = 32_767
"""A row group's ordinal is a signed 16-bit number."""

_TABLE_SCHEMA, _ARROW_SCHEMA = b"iceberg.schema", b"ARROW:schema"
_ABOUT_ONE_FILE = frozenset({_TABLE_SCHEMA, b"writer.model.name"})
_BY_TYPE = b"\x1c\0\0"
"""The order of a column whose values compare as their type does."""

_KEY = (1, thrift.BINARY)

_writer_of = lru_cache(maxsize=64)(writer_of)


class Agreement:
    """Takes one footer after the other and keeps what they have in common."""

    def __init__(self, *, row_lineage: bool = False) -> None:
        self._row_lineage = row_lineage
        self._first: Footer | None = None
        self._dropped: set[bytes] = set()
        self._seen_key_values: set[bytes | None] = set()
        self._writer: ParquetWriter | None = None
        self._groups = 0
        self.version = 0

    def objection_to(self, footer: Footer) -> str | None:
        """Why this file cannot join those before it, or None once it has joined."""
        if footer.objection is not None:
            return f"{footer.path}: {footer.objection}"
        if self._row_lineage and (reason := self._lineage_objection(footer)) is not None:
            return f"{footer.path}: {reason}"
        if self._first is None:
            self._first = footer
            self._seen_key_values.add(footer.key_values)
        return self._schema_objection(footer) or self._writer_objection(footer) or self._count_objection(footer)

    @property
    def is_empty(self) -> bool:
        """Whether no footer has joined yet."""
        return self._first is None

    @property
    def first(self) -> Footer:
        """The file whose schema stands for all."""
        if self._first is None:
            raise LookupError("no footer has joined yet")
        return self._first

    @property
    def schema(self) -> PhysicalSchema:
        """The schema of the output."""
        return self._schema_of(self.first)

    @property
    def column_orders(self) -> bytes | None:
        """How the bounds of the output's columns are ordered."""
        return self._orders_of(self.first)

    @property
    def created_by(self) -> str:
        """The oldest of the writers, parquet-mr before all others."""
        return self._writer.created_by if self._writer else ""

    def key_values(self) -> bytes | None:
        """The encoded metadata that all files share."""
        raw = self.first.key_values
        if raw is None or not self._dropped:
            return raw
        kept = [entry for key, entry in _entries(raw) if key not in self._dropped]
        return thrift.list_head(len(kept), thrift.STRUCT) + b"".join(kept) if kept else None

    def _schema_objection(self, footer: Footer) -> str | None:
        first = self.first
        if (difference := self.schema.difference(self._schema_of(footer))) is not None:
            return f"the schemas of {first.path} and {footer.path} differ: {difference}"
        if self._orders_of(footer) != self.column_orders:
            return f"{first.path} and {footer.path} differ in how their columns' bounds are ordered"
        if footer.key_values not in self._seen_key_values:
            if (key := self._steering_difference(footer)) is not None:
                return f"{first.path} and {footer.path} differ in the metadata key {key}"
            self._seen_key_values.add(footer.key_values)
        return None

    def _lineage_objection(self, footer: Footer) -> str | None:
        try:
            full = with_lineage(footer.schema)
        except Objection as objection:
            return str(objection)
        if full is not footer.schema:
            self._dropped.add(_TABLE_SCHEMA)
            if any(key == _ARROW_SCHEMA for key, _ in _entries(footer.key_values)):
                return "its metadata key ARROW:schema lists its columns, without row lineage"
        return None

    def _schema_of(self, footer: Footer) -> PhysicalSchema:
        return with_lineage(footer.schema) if self._row_lineage else footer.schema

    def _orders_of(self, footer: Footer) -> bytes | None:
        if footer.column_orders is None or self._schema_of(footer) is footer.schema:
            return footer.column_orders
        count, kind, start = thrift.read_list_head(footer.column_orders, 0)
        added = len(LINEAGE_IDS)
        return thrift.list_head(count + added, kind) + footer.column_orders[start:] + _BY_TYPE * added

    def _steering_difference(self, footer: Footer) -> str | None:
        mine, theirs = _entries(self.first.key_values), _entries(footer.key_values)
        differing = {key for key, _ in set(mine) ^ set(theirs)}
        steering = differing - _ABOUT_ONE_FILE
        if steering:
            return min(steering).decode("utf-8", "replace")
        self._dropped |= differing
        return None

    def _writer_objection(self, footer: Footer) -> str | None:
        writer = _writer_of(footer.created_by)
        if writer is None:
            return f"{footer.path} was written by {footer.created_by or 'an unnamed program'}, which is no known-good writer"
        self._writer = self._writer or writer
        if writer.name != self._writer.name and footer.schema.has_int96:
            # Hive, Spark and Impala can be told to shift INT96 timestamps unless parquet-mr wrote them.
            return f"{self._writer.name} and {writer.name} both wrote INT96 timestamps, which readers tell apart by the writer"
        self._writer = min(self._writer, writer)
        self.version = max(self.version, footer.version)
        return None

    def _count_objection(self, footer: Footer) -> str | None:
        self._groups += len(footer.groups)
        if self._groups > MAX_ROW_GROUPS:
            return f"{self._groups} row groups are more than the {MAX_ROW_GROUPS} that one file can number"
        return None


def _entries(raw: bytes | None) -> list[tuple[bytes, bytes]]:
    """Each key and its whole encoded entry."""
    if raw is None:
        return []
    count, _, at = thrift.read_list_head(raw, 0)
    found = []
    for _ in range(count):
        spans, end = thrift.spans(raw, at)
        key = next((thrift.read_binary(raw, span.start) for span in spans if span[:2] == _KEY), b"")
        found.append((key, raw[at:end]))
        at = end
    return found
