"""The values that pass between stages: frozen, typed, and equal to themselves after a trip through JSON.

Adapters build them, the flow hands them on, surfaces render them. Files travel as columns (`neve.table.files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from neve.errors import BadRequestError
from neve.table.depth import Depth
from neve.table.files import FileColumns
from neve.table.frozen import Frozen
from neve.table.location import address
from neve.table.units import whole_number

MAIN = "main"
"""The branch that readers see unless they ask for another."""

RUN_ID = "neve.run-id"
"""Stands in the summary of every snapshot that we commit."""


class TableName(Frozen):
    """`[catalog.]namespace.table`; the namespace may have several levels."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, self.name))

    @property
    def identifier(self) -> tuple[str, ...]:
        """The name as the catalog knows it."""
        return (*self.namespace, self.name)

    @classmethod
    def parse(cls, text: str, *, catalogs: frozenset[str], default_catalog: str) -> Self:
        """Reads a name; a first part that names a known catalog is the catalog, as in Spark."""
        parts = text.split(".")
        if any(not part for part in parts):
            raise BadRequestError(
                f"Cannot read table name {text!r}: empty part",
                hint="Write [catalog.]namespace.table, such as db.events.",
            )
        if parts[0] in catalogs and len(parts) > 2:
            return cls(catalog=parts[0], namespace=tuple(parts[1:-1]), name=parts[-1])
        if len(parts) < 2:
            raise BadRequestError(
                f"Cannot read table name {text!r}: a namespace is missing",
                hint=f"Write [catalog.]namespace.table, such as db.{text}.",
            )
        return cls(catalog=default_catalog, namespace=tuple(parts[:-1]), name=parts[-1])


class RefKind(StrEnum):
    """What a named reference is."""

    BRANCH = "branch"
    TAG = "tag"


class Ref(Frozen):
    """A branch or a tag, with what it says itself of how long it and its snapshots are to be kept; None where it is silent."""

    name: str
    kind: RefKind
    snapshot_id: int
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    """From which age of its snapshot on an expiry drops it; None for what the table says of all."""


class Snapshot(Frozen):
    """One commit. `summary` keeps Iceberg's own keys and values, the operation apart."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: dict[str, str]

    def count(self, key: str) -> int | None:
        """A number from the summary, or None where the writer left it out."""
        value = self.summary.get(key, "")
        number = whole_number(value.removeprefix("-"))
        return -number if number is not None and value.startswith("-") else number


def ancestry(by_id: Mapping[int, Snapshot], head: int | None) -> Iterator[Snapshot]:
    """From a snapshot back to its oldest ancestor that has not been expired."""
    seen, current = set[int](), by_id.get(head) if head is not None else None
    while current is not None and current.snapshot_id not in seen:
        seen.add(current.snapshot_id)
        yield current
        current = by_id.get(current.parent_id) if current.parent_id is not None else None


class PartitionRange(Frozen):
    """What a manifest's files have in one field of their partition spec: Iceberg's bytes, in hexadecimal."""

    lower: str | None = None
    upper: str | None = None


class Manifest(Frozen):
    """One line of the manifest list. Counts are None where a v1 writer left them out."""

    path: str
    length_bytes: int
    holds_deletes: bool
    spec_id: int
    sequence_number: int
    added_snapshot_id: int | None
    live_files: int | None
    first_row_id: int | None = None
    """The row id from which files without one of their own are counted (v3)."""
    ranges: tuple[PartitionRange, ...] = ()
    """One for each field of its spec, where its writer told them."""


class PartitionField(Frozen):
    """One field of a partition spec."""

    name: str
    transform: str
    source_id: int
    field_id: int


class PartitionSpec(Frozen):
    """A partition spec, current or past."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    def __str__(self) -> str:
        return ", ".join(f"{f.name}: {f.transform}" for f in self.fields) or "unpartitioned"


class Column(Frozen):
    """A column that holds values: a primitive, maybe inside structs, by its name with dots between levels. `type` is Iceberg's
    spelling, such as `decimal(9, 2)`. What is inside a list or a map has no bounds and is not listed."""

    field_id: int
    name: str
    type: str


class SortOrder(Frozen):
    """A sort order of the table; each field as `table.layout.SortField` spells it."""

    order_id: int
    fields: tuple[str, ...]


class Sketch(Frozen):
    """How many different values a column has, as a statistics file says; None where that names no number."""

    field_ids: tuple[int, ...]
    kind: str
    distinct: int | None = None


class StatisticsFile(Frozen):
    """Statistics of the table at one snapshot: of its columns, or, without sketches, of its partitions."""

    snapshot_id: int
    path: str
    size_bytes: int
    sketches: tuple[Sketch, ...] = ()


class TableState(Frozen):
    """What the metadata says of a table at one moment. Depths beyond the one asked for are None."""

    name: TableName
    uuid: str
    format_version: int
    location: str
    metadata_location: str
    metadata_bytes: int | None
    metadata_log_entries: int
    properties: dict[str, str]
    schema_id: int
    columns: int
    fields: tuple[Column, ...] = ()
    nested: dict[int, str] = {}
    """Columns inside structs by field id, of every schema that the table had: equality deletes may compare them."""
    specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    sort_orders: tuple[SortOrder, ...]
    default_sort_order_id: int
    snapshot_id: int | None
    snapshots: tuple[Snapshot, ...]
    refs: tuple[Ref, ...]
    statistics_files: int
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[StatisticsFile, ...] = ()
    history: tuple[tuple[int, int], ...] = ()
    """When which snapshot became the current one, in milliseconds, oldest first; as far back as the table remembers."""
    from_cache: bool = False
    """Whether nothing was read from storage: the files' metadata comes from the cache alone."""
    manifests: tuple[Manifest, ...] | None = None
    files: Annotated[FileColumns | None, Field(repr=False)] = None

    @property
    def is_remote(self) -> bool:
        """Whether its files lie in an object store, where every read is a request of some milliseconds."""
        return address(self.location).kind not in {"file", "hdfs", "viewfs"}

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot, None for a table without one."""
        return next((s for s in self.snapshots if s.snapshot_id == self.snapshot_id), None)

    @property
    def ancestors(self) -> tuple[Snapshot, ...]:
        """The current snapshot and those before it on its branch, newest first, as far as they are not expired."""
        return tuple(ancestry({s.snapshot_id: s for s in self.snapshots}, self.snapshot_id))

    @property
    def depth(self) -> Depth:
        """The deepest level that this state holds."""
        if self.files is not None:
            return Depth.FILES
        return Depth.MANIFESTS if self.manifests is not None else Depth.SUMMARY

    def spec(self, spec_id: int) -> PartitionSpec:
        """The spec with that id."""
        return next(s for s in self.specs if s.spec_id == spec_id)
