"""A data file as Iceberg's own JSON describes it, with the deletes attached to it: what plans and commits compare.

Read from an unfiltered scan by the engine; new files are described by changing what differs in a description of an old one, so
that spec, partition and every property we do not know of stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from neve.core.metrics import ColumnMetrics
from neve.core.work import OutputFile

DataFile = dict[str, Any]
DeleteKey = tuple[str, int]
"""A delete file, or a vector by its Puffin file and offset."""

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
    removed_deletes: Callable[[], Mapping[DeleteKey, int]] = field(default=dict, compare=False)


@dataclass(frozen=True)
class LiveFile:
    """A live data file and its deletes."""

    data_file: DataFile
    deletes: frozenset[DeleteKey] = frozenset()
    equality_deletes: frozenset[DeleteKey] = frozenset()

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


def describe_output(model: LiveFile, output: OutputFile, metrics: Mapping[int, ColumnMetrics]) -> DataFile:
    """The description of a new file beside `model`, with these metrics; recorded as sorted only if its writer sorted it."""
    kept: DataFile = {
        key: model.data_file[key] for key in ("spec-id", "content", "file-format", "partition") if key in model.data_file
    }
    described: DataFile = {
        **kept,
        "file-path": output.path,
        "file-size-in-bytes": output.size_bytes,
        "record-count": output.records,
        "split-offsets": list(output.split_offsets),
        "sort-order-id": output.sort_order_id,
    }
    for name, key in (_COUNTS | _BOUNDS).items():
        found = {i: value for i, column in sorted(metrics.items()) if (value := getattr(column, name)) is not None}
        values = [value.hex().upper() if isinstance(value, bytes) else value for value in found.values()]
        if found:
            described[key] = {"keys": list(found), "values": values}
    return described
