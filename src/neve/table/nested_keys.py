"""Equality deletes that compare a column inside a struct: no rewrite can be proved to keep what they mean. Pure.

Iceberg contradicts itself about them (tried with 1.12.0 on Spark 4.1): a query that reads the struct sees the rows that remain,
one that does not read it sees no row of the file, or fails, whether a key is null or not, the struct optional or required. So
there is no set of rows that a rewrite could keep. Used by `rewrite.planner`, `operations.execute` and
`operations.delete_files`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.errors import UnprovableDeletesError
from neve.table.delete_index import DeleteIndex, unpartitioned
from neve.table.files import EQUALITY_DELETES, FileColumns, read_ids
from neve.table.state import PartitionSpec

Mask = npt.NDArray[np.bool_]
Names = Mapping[int, str]
"""Columns inside structs, by field id, with dots between levels."""


def nested_columns(schemas: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """The columns inside structs of all these schemas, in Iceberg's JSON: a delete may compare one that was dropped since."""
    return {i: name for schema in schemas for field in schema["fields"] for i, name in _inside(field["type"], field["name"])}


def _inside(kind: Any, prefix: str) -> Iterator[tuple[int, str]]:
    if isinstance(kind, str) or kind["type"] != "struct":
        return
    for field in kind["fields"]:
        name = f"{prefix}.{field['name']}"
        yield field["id"], name
        yield from _inside(field["type"], name)


def compared(equality_ids: Iterable[Collection[int]], nested: Names) -> list[str]:
    """The columns inside structs that these deletes compare, by name."""
    return sorted({nested[i] for ids in equality_ids for i in ids if i in nested})


def reason(names: Collection[str]) -> str:
    """Why files are left alone, in words."""
    listed = ", ".join(sorted(names))
    return f"equality deletes compare the nested column {listed}, and Iceberg contradicts itself about which rows these delete"


def check_provable(equality_ids: Iterable[Collection[int]], nested: Names) -> None:
    """Raises UnprovableDeletesError if any of these deletes compares a column inside a struct."""
    if names := compared(equality_ids, nested):
        raise UnprovableDeletesError(
            f"Cannot rewrite these files: {reason(names)}",
            hint="Let the writer use a top-level column as its key, and write these rows again; see docs/guide/deletes.md.",
        )


def compares_nested(files: FileColumns, nested: Names) -> Mask:
    """Which files are equality deletes that compare a column inside a struct."""
    mask: Mask = np.zeros(len(files), dtype=bool)
    mask[list(_nested_keys(files, nested))] = True
    return mask


def left_alone(files: FileColumns, specs: Iterable[PartitionSpec], nested: Names) -> dict[int, str]:
    """By partition, why it is left alone: such a delete applies to a data file of it."""
    bad = _nested_keys(files, nested)
    if not bad:
        return {}
    index = DeleteIndex.of(files, unpartitioned_specs=unpartitioned(specs))
    concerned = index.applies_to(compares_nested(files, nested))
    told = reason({name for names in bad.values() for name in names})
    return dict.fromkeys(np.unique(files.column("partition")[concerned]).tolist(), told)


def _nested_keys(files: FileColumns, nested: Names) -> dict[int, list[str]]:
    """Such deletes by row, with the columns that they compare."""
    rows = np.flatnonzero(files.column("content") == EQUALITY_DELETES) if nested else np.zeros(0, np.int64)
    ids = files.table.column("equality_ids").take(rows).to_pylist() if len(rows) else []
    return {int(row): names for row, text in zip(rows, ids, strict=True) if (names := compared([read_ids(text)], nested))}
