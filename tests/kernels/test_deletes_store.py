"""Deletes as the driver reads and writes them: each delete file once for many data files, rows of one file at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neve.errors import BadRequestError
from neve.kernels.deletes.position_files import write_positions
from neve.kernels.deletes.store import StoredDeletes
from neve.kernels.faults import UnreadableOutputError
from neve.rewrite.live_files import DataFile
from neve.table.positions import Longs
from tests.builders.delete_orders import GarblingStorage, MemoryStorage

HOMES: dict[str, DataFile] = {
    name: {"file-path": name, "spec-id": i, "partition": [name]} for i, name in enumerate(("a.parquet", "b.parquet"))
}


def longs(*rows: int) -> Longs:
    return np.array(rows, np.int64)


class Shelf:
    """Delete files in memory."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()

    def file(self, path: str, **rows: list[int]) -> DataFile:
        output = write_positions(self.storage.sink(path), {f"{name}.parquet": longs(*found) for name, found in rows.items()})
        return {
            "file-path": path,
            "file-format": "PARQUET",
            "file-size-in-bytes": output.size_bytes,
            "record-count": output.rows,
            "content": "position-deletes",
        }

    def deletes(self, **words: Any) -> StoredDeletes:
        return StoredDeletes(lambda: self.storage, **words)


def told(found: Iterator[tuple[str, Longs]]) -> dict[str, list[int]]:
    return {path: rows.tolist() for path, rows in found}


def test_rows_of_many_files_are_joined_and_each_delete_is_read_once() -> None:
    shelf = Shelf()
    shared = [shelf.file("p1", a=[1, 5], b=[2]), shelf.file("p2", a=[0, 5])]
    found = shelf.deletes().each({"a.parquet": shared, "b.parquet": shared, "c.parquet": shared, "d.parquet": []})
    assert told(found) == {"a.parquet": [0, 1, 5], "b.parquet": [2], "c.parquet": [], "d.parquet": []}
    assert sorted(shelf.storage.opened) == ["p1", "p2"]


def test_a_delete_is_read_again_only_where_all_rows_would_take_too_much() -> None:
    shelf = Shelf()
    shared = [shelf.file("p1", a=[1, 5], b=[2, 3])]
    found = shelf.deletes(held_positions=2).each({"a.parquet": shared, "b.parquet": shared})
    assert told(found) == {"a.parquet": [1, 5], "b.parquet": [2, 3]}
    assert shelf.storage.opened == ["p1", "p1"]


def test_each_vector_has_a_file_of_its_own_and_is_read_back_together_with_positions() -> None:
    shelf = Shelf()
    rows = {"a.parquet": longs(3, 9), "b.parquet": longs(7)}
    first, second = shelf.deletes().write(rows.items(), HOMES, vectors=True)
    assert first["file-path"] != second["file-path"]
    assert (first["referenced-data-file"], first["spec-id"], first["partition"]) == ("a.parquet", 0, ["a.parquet"])
    assert (second["referenced-data-file"], second["spec-id"], second["record-count"]) == ("b.parquet", 1, 1)
    old = shelf.file("p1", a=[1, 3])
    assert told(shelf.deletes().each({"a.parquet": [first, old], "b.parquet": [second]})) == {
        "a.parquet": [1, 3, 9],
        "b.parquet": [7],
    }
    assert shelf.deletes().positions([first], "a.parquet").tolist() == [3, 9]


def test_positions_are_written_as_a_file_for_each_data_file() -> None:
    shelf = Shelf()
    rows = {"a.parquet": longs(3, 9), "b.parquet": longs(7)}
    first, second = shelf.deletes().write(rows.items(), HOMES, vectors=False)
    assert first["file-path"] != second["file-path"]
    bound = b"a.parquet".hex().upper()
    assert first["lower-bounds"]["values"][1] == first["upper-bounds"]["values"][1] == bound
    assert (first["record-count"], second["referenced-data-file"]) == (2, "b.parquet")
    assert told(shelf.deletes().each({"a.parquet": [first], "b.parquet": [second]})) == {"a.parquet": [3, 9], "b.parquet": [7]}


@pytest.mark.parametrize("vectors", [True, False])
def test_a_data_file_without_such_rows_gets_no_delete(vectors: bool) -> None:
    shelf = Shelf()
    rows = [("a.parquet", longs()), ("b.parquet", longs(1))]
    (only,) = shelf.deletes().write(rows, HOMES, vectors=vectors)
    assert only["referenced-data-file"] == "b.parquet"
    assert shelf.deletes().write(rows[:1], HOMES, vectors=vectors) == []
    assert len(shelf.storage.files) == 1


@pytest.mark.parametrize("vectors", [True, False])
def test_rows_are_taken_one_data_file_at_a_time(vectors: bool) -> None:
    shelf = Shelf()
    made: list[weakref.ref[Longs]] = []
    alive = [0]

    def each() -> Iterator[tuple[str, Longs]]:
        for i in range(10):
            rows = np.arange(3, dtype=np.int64)
            made.append(weakref.ref(rows))
            alive.append(sum(ref() is not None for ref in made))
            yield f"{i}.parquet", rows
            del rows

    homes = {f"{i}.parquet": HOMES["a.parquet"] for i in range(10)}
    assert len(shelf.deletes().write(each(), homes, vectors=vectors)) == 10
    assert max(alive) <= 3


def test_what_is_not_in_parquet_is_named() -> None:
    shelf = Shelf()
    with pytest.raises(BadRequestError, match=r"Cannot read deletes from x\.avro: they are in avro, not in Parquet"):
        shelf.deletes().positions([{"file-path": "x.avro", "file-format": "AVRO", "record-count": 1}], "a.parquet")


def test_every_byte_of_a_vector_that_is_stored_otherwise_than_it_was_written_is_noticed() -> None:
    def write(storage: MemoryStorage) -> int:
        (vector,) = StoredDeletes(lambda: storage).write([("a.parquet", longs(1, 5, 70_000))], HOMES, vectors=True)
        return int(vector["file-size-in-bytes"])

    for at in range(write(MemoryStorage())):
        with pytest.raises(UnreadableOutputError, match=r"^Cannot use the new file a-deletes-"):
            write(GarblingStorage(at))
