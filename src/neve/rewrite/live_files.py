"""A data file as Iceberg's own JSON describes it, with the deletes attached to it: what plans and commits compare.

Read from an unfiltered scan by the engine; new files are described by changing what differs in a description of an old one, so
that spec, partition and every property we do not know of stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from neve.rewrite.work_order import DeleteFile, DeleteKind, OutputFile
from neve.table.metrics import ColumnMetrics

DataFile = dict[str, Any]
DeleteKey = tuple[str, int]
"""A delete file, or a vector by its Puffin file and offset."""

EQUALITY = "equality-deletes"
"""What a description of an equality delete says it contains."""

_COUNTS = {
    "size_bytes": "column-sizes",
    "values": "value-counts",
    "nulls": "null-value-counts",
    "nans": "nan-value-counts",
}
_BOUNDS = {"lower": "lower-bounds", "upper": "upper-bounds"}


@dataclass(frozen=True)
class Ancestor:
    """A snapshot on the way from the plan to the head.

    `removed_deletes` gives the delete files that it took out of the table, with their sequence numbers. It reads manifests, so
    it is a question and not an answer: ask only where the summary says that some were removed.
    """

    snapshot_id: int
    parent_id: int | None
    operation: str
    summary: Mapping[str, str]
    timestamp_ms: int = 0
    removed_deletes: Callable[[], Mapping[DeleteKey, int]] = field(default=dict, compare=False)


@dataclass(frozen=True)
class SharedDeletes:
    """Equality deletes that many files have, with what is asked of them made once and not for each file."""

    deletes: tuple[DataFile, ...] = ()

    @cached_property
    def described(self) -> dict[DeleteKey, DataFile]:
        """By key."""
        return {delete_key(delete): delete for delete in self.deletes}

    @cached_property
    def keys(self) -> frozenset[DeleteKey]:
        """Their keys."""
        return frozenset(self.described)


_NOTHING_SHARED = SharedDeletes()


@dataclass(frozen=True)
class LiveFile:
    """A live data file and the deletes attached to it, in Iceberg's JSON.

    Thousands of deletes may be attached to each of thousands of files. So those that many files have are held once, and sets
    of keys are made when they are asked for: kept, they would be most of a scan's memory.
    """

    data_file: DataFile
    own: tuple[DataFile, ...] = ()
    """Deletes that few other files have, if any."""
    shared: SharedDeletes = field(default=_NOTHING_SHARED, repr=False)

    @property
    def parts(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """All its deletes, in two parts that other files may have as well, the very same."""
        return self.own, self.shared.deletes

    @property
    def has_deletes(self) -> bool:
        """Whether any delete is attached to it."""
        return any(self.parts)

    @property
    def described_deletes(self) -> dict[DeleteKey, DataFile]:
        """Its deletes by key."""
        return {delete_key(delete): delete for delete in self.own} | self.shared.described

    @property
    def deletes(self) -> frozenset[DeleteKey]:
        """The keys of its deletes."""
        return self.shared.keys.union([delete_key(delete) for delete in self.own])

    @property
    def equality_deletes(self) -> frozenset[DeleteKey]:
        """The keys of those that delete by equality."""
        own = [delete_key(delete) for delete in self.own if delete["content"] == EQUALITY]
        return self.shared.keys.union(own) if own else self.shared.keys

    @property
    def position_deletes(self) -> frozenset[DeleteKey]:
        """The keys of the others: its vector, or files of positions."""
        return frozenset(map(delete_key, self.position_delete_files))

    @property
    def position_delete_files(self) -> tuple[DataFile, ...]:
        """These, described."""
        return tuple(delete for delete in self.own if delete["content"] != EQUALITY)

    @property
    def path(self) -> str:
        """The location, as the metadata spells it: paths compare as raw strings."""
        return str(self.data_file["file-path"])

    @property
    def size_bytes(self) -> int:
        """The file's length."""
        return int(self.data_file["file-size-in-bytes"])

    @property
    def records(self) -> int:
        """Its rows, deleted ones included."""
        return int(self.data_file["record-count"])

    @cached_property
    def metrics(self) -> dict[int, ColumnMetrics]:
        """Column metrics by field id, as far as the manifest has them."""
        fields: dict[int, dict[str, Any]] = {}
        for name, key in (_COUNTS | _BOUNDS).items():
            found = self.data_file.get(key) or {"keys": [], "values": []}
            for field_id, value in zip(found["keys"], found["values"], strict=True):
                fields.setdefault(field_id, {})[name] = bytes.fromhex(value) if name in _BOUNDS else value
        return {field_id: ColumnMetrics(**values) for field_id, values in fields.items()}


def delete_key(delete: DataFile) -> DeleteKey:
    """The key of a delete from its description."""
    return delete["file-path"], delete.get("content-offset", 0)


def describe_output(model: LiveFile, output: OutputFile, metrics: Mapping[int, ColumnMetrics]) -> DataFile:
    """The description of a new file beside `model`, with these metrics; recorded as sorted only if its writer sorted it."""
    kept: DataFile = {
        key: model.data_file[key] for key in ("spec-id", "content", "file-format", "partition") if key in model.data_file
    }
    if output.file_format is not None:
        kept |= {"file-format": output.file_format}
    if output.spec_id is not None:
        kept |= {"spec-id": output.spec_id, "partition": list(output.partition)}
    described: DataFile = {
        **kept,
        "file-path": output.path,
        "file-size-in-bytes": output.size_bytes,
        "record-count": output.records,
        "split-offsets": list(output.split_offsets),
        "sort-order-id": output.sort_order_id,
    }
    return described | describe_metrics(metrics)


def describe_metrics(metrics: Mapping[int, ColumnMetrics]) -> DataFile:
    """Metrics by field id as part of a file's description; what nobody knows is left out."""
    described: DataFile = {}
    for name, key in (_COUNTS | _BOUNDS).items():
        found = {i: value for i, column in sorted(metrics.items()) if (value := getattr(column, name)) is not None}
        values = [value.hex().upper() if isinstance(value, bytes) else value for value in found.values()]
        if found:
            described[key] = {"keys": list(found), "values": values}
    return described


def describe_delete(home: DataFile, path: str, *, form: str, size_bytes: int, records: int) -> DataFile:
    """The description of a new delete of rows of one data file: it has that file's spec and partition."""
    return {
        "spec-id": home["spec-id"],
        "partition": home.get("partition") or [],
        "content": "position-deletes",
        "referenced-data-file": home["file-path"],
        "file-path": path,
        "file-format": form,
        "file-size-in-bytes": size_bytes,
        "record-count": records,
    }


def describe_vector(home: DataFile, path: str, *, size_bytes: int, offset: int, length: int, cardinality: int) -> DataFile:
    """The same of a vector, which is a part of the Puffin file at `path`."""
    described = describe_delete(home, path, form="puffin", size_bytes=size_bytes, records=cardinality)
    return described | {"content-offset": offset, "content-size-in-bytes": length}


def delete_of(described: DataFile, sequence_number: int) -> DeleteFile:
    """A delete as orders spell it."""
    is_vector = described["file-format"].lower() == "puffin"
    kind = DeleteKind.EQUALITY if described["content"] == EQUALITY else DeleteKind.POSITIONS
    return DeleteFile(
        kind=DeleteKind.VECTOR if is_vector else kind,
        path=described["file-path"],
        format=described["file-format"].lower(),
        size_bytes=described["content-size-in-bytes"] if is_vector else described["file-size-in-bytes"],
        records=described["record-count"],
        sequence_number=sequence_number,
        offset=described.get("content-offset"),
        referenced=described.get("referenced-data-file"),
        equality_ids=tuple(described.get("equality-ids") or ()),
    )
