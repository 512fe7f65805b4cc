"""Rows for `make_files` that describe data files and the delete files that apply to them."""

from __future__ import annotations

from typing import Any

from neve.table.files import EQUALITY_DELETES, POSITION_DELETES

Row = dict[str, Any]
P0, P1, P0_OF_ANOTHER_SPEC, UNPARTITIONED = range(4)


def data(path: str, number: int, partition: int = P0) -> Row:
    return {"path": path, "sequence_number": number, "partition": partition}


def positions(path: str, number: int, partition: int = P0, *, of: str = "") -> Row:
    return {**data(path, number, partition), "content": POSITION_DELETES, "referenced": of}


def vector(path: str, number: int, partition: int = P0, *, of: str, offset: int = 4) -> Row:
    return {**positions(path, number, partition, of=of), "format": "puffin", "content_offset": offset}


def equality(path: str, number: int, partition: int = P0) -> Row:
    return {**data(path, number, partition), "content": EQUALITY_DELETES, "equality_ids": "1"}
