"""The unit of work that is shipped: an order says everything its worker needs, a result everything the driver needs.

Made by `operations.execute`, run by `kernels.orders` in a Spark task or in a process of its own (`neve work`). An order knows
nothing of its siblings and holds no secret; it names storage by location only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from neve.rewrite.group import Kernel
from neve.rewrite.kernel_choice import MAX_CHUNKS, MIN_CHUNK_BYTES
from neve.table.frozen import Frozen
from neve.table.layout import Layout
from neve.table.metrics import ColumnMetrics
from neve.table.positions import PositionMap
from neve.table.units import MIB

FORMAT_VERSION = 4


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_base64(value: Any) -> Any:
    return base64.b64decode(value) if isinstance(value, str) else value


Binary = Annotated[bytes | None, BeforeValidator(_from_base64), PlainSerializer(_to_base64, when_used="json")]


class Metrics(Frozen):
    """A column's metrics in a form that travels."""

    size_bytes: int | None = None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: Binary = None
    upper: Binary = None

    @classmethod
    def of(cls, metrics: ColumnMetrics) -> Metrics:
        """From the value that kernels use."""
        return cls(**vars(metrics))

    @property
    def plain(self) -> ColumnMetrics:
        """As kernels use it."""
        return ColumnMetrics(**self.model_dump())


class DeleteKind(StrEnum):
    """How a delete says which rows are gone."""

    POSITIONS = "positions"  # a file of paths and positions
    VECTOR = "vector"  # a bitmap of one data file's positions, in a Puffin file
    EQUALITY = "equality"  # a file of keys: older rows that have one are gone


class DeleteFile(Frozen):
    """Rows to leave out, as the table has them. A vector is the part of its Puffin file that begins at `offset`.

    `content` holds these bytes where they are few: read once by the driver instead of once by every task.
    """

    kind: DeleteKind
    path: str
    format: str = "parquet"
    size_bytes: int
    records: int
    sequence_number: int
    offset: int | None = None
    referenced: str | None = None
    equality_ids: tuple[int, ...] = ()
    content: Binary = None


class InputFile(Frozen):
    """One file to rewrite. `constants` are identity partition values by field id, in Iceberg's JSON spelling.

    `deletes` are its position deletes and its vector, by their place in the order; equality deletes of the order apply where
    they are newer than `sequence_number`, the file's data sequence number.
    """

    path: str
    size_bytes: int
    records: int
    constants: dict[int, Any] = {}
    deletes: tuple[int, ...] = ()
    sequence_number: int | None = None
    first_row_id: int | None = None


class WriteSettings(Frozen):
    """How outputs are written: the table's own write properties, resolved."""

    codec: str = "zstd"
    level: int | None = None
    target_bytes: int = 128 * MIB
    row_group_bytes: int = 128 * MIB
    row_group_rows: int | None = None
    page_bytes: int = MIB
    page_rows: int = 20_000
    dictionary_bytes: int = 2 * MIB
    memory_bytes: int = 512 * MIB
    min_chunk_bytes: int = MIN_CHUNK_BYTES
    max_chunks: int = MAX_CHUNKS


class WorkOrder(Frozen):
    """Rewrite these files of a table. `kernels` are tried in turn: one that refuses hands over to the next, with the reason."""

    format_version: int = FORMAT_VERSION
    order_id: str
    table: str = ""
    group_id: int
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    inputs: tuple[InputFile, ...] = Field(min_length=1)
    table_schema: dict[str, Any]
    name_mapping: list[Any] | None = None
    output_prefix: str
    write: WriteSettings = WriteSettings()
    deletes: tuple[DeleteFile, ...] = ()
    """All inputs are of one partition and spec, so that every equality delete here concerns each that is older."""
    key_fields: tuple[dict[str, Any], ...] = ()
    """The columns that equality deletes compare, in Iceberg's JSON, from an older schema where the table has dropped them."""
    row_lineage: bool = False
    layout: Layout | None = None
    """The order of rows in the outputs, which follow one another without overlap; None keeps the order of the inputs."""
    inputs_sorted: bool = False
    """Whether each input already has the layout's order, so that merging them is enough."""
    output_spec_id: int | None = None
    """The table's current spec where the inputs have an older one: rows go to the partitions that it gives them."""

    @property
    def digest(self) -> str:
        """What names the inputs, so that a result cannot be taken for another order's."""
        return digest_of(file.path for file in self.inputs)


def digest_of(paths: Iterable[str]) -> str:
    """A digest of input locations; their order does not matter."""
    return hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()


class OpenedFile(Frozen):
    """What a reader that did not write a file found when it opened it, complete and from where it is stored."""

    reader: str
    size_bytes: int
    rows: int | None = None
    row_groups: int | None = None
    columns: int | None = None
    """Leaf columns of its schema. What a reader does not tell is None: of ORC files row groups and columns, of Avro files all
    but the size."""


class OutputFile(Frozen):
    """One file that was written. Metrics are exact; what the manifest keeps of them is decided by the driver."""

    path: str
    file_format: str | None = None
    """As manifests name it; None where it is that of the inputs."""
    size_bytes: int
    records: int
    row_groups: int
    split_offsets: tuple[int, ...]
    sort_order_id: int = 0
    metrics: dict[int, Metrics]
    spec_id: int | None = None
    partition: tuple[Any, ...] = ()
    """Of a file that has another spec than the inputs, in Iceberg's JSON."""
    opened: OpenedFile | None = None
    """None where it did not open, or nobody has tried: such a file is never committed."""
    not_opened: str = "nobody has opened it since it was written"
    """Why `opened` is None."""

    def seen_as(self, opened: OpenedFile | str) -> OutputFile:
        """The same file after a reader has opened it, or has not, with the reason."""
        seen = {"opened": None, "not_opened": opened} if isinstance(opened, str) else {"opened": opened}
        return self.model_copy(update=seen)


class Counted(Frozen):
    """Entries of one column as a kernel counted them while streaming."""

    values: int
    nulls: int | None = None
    nans: int | None = None


class FailedOrder(Frozen):
    """An order that could not be carried out, and why."""

    group_id: int
    reason: str
    traceback: str | None = None


class WorkResult(Frozen):
    """What an order came to: the files, what was counted on the way, and what it took."""

    format_version: int = FORMAT_VERSION
    order_id: str
    group_id: int
    inputs_digest: str
    kernel: Kernel
    refusals: tuple[str, ...] = ()
    outputs: tuple[OutputFile, ...]
    rows_read: int
    rows_dropped: int = 0
    kept: dict[int, Counted]
    dropped: dict[int, Counted] = {}
    positions: PositionMap | None = None
    """Where each row went, if the kernel can tell: what deletes that come too late are moved by."""
    delete_reads: int = 0
    seconds: float
    cpu_seconds: float | None = None
    """None if it was not measured: Spark's own reader and writer run in Spark's tasks."""
    peak_memory_bytes: int | None = None
    requests: dict[str, int] | None = None
    """Sent to storage, by kind; None if they were not counted."""
