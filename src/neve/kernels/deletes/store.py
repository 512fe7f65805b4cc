"""Deletes by position as the driver reads and writes them when they have to be moved or merged (`ports.DeleteFiles`).

Used where deletes came late, and by conversion and upkeep. Descriptions are in Iceberg's JSON, on the way in and out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from neve.errors import BadRequestError
from neve.kernels.deletes.fetching import Fetcher
from neve.kernels.deletes.position_files import read_positions, write_positions
from neve.kernels.deletes.puffin import store_vectors
from neve.kernels.deletes.waiting import Packed, Together, Vector
from neve.kernels.opening import confirm_output
from neve.kernels.orders import OrderStorage
from neve.rewrite.live_files import DataFile, delete_key, delete_of, describe_delete, describe_metrics, describe_vector
from neve.table.positions import Longs
from neve.table.units import MIB

HELD_POSITIONS = 32 * MIB
"""How many are held at once, packed in two bytes each at most."""

Held = dict[str, list[Packed | Vector]]


class StoredDeletes:
    """Deletes of one table; storage is opened when something is asked for, with the credentials of that moment."""

    def __init__(self, storage: Callable[[], OrderStorage], *, held_positions: int = HELD_POSITIONS) -> None:
        self._open, self._most = storage, held_positions

    def positions(self, deletes: Sequence[DataFile], path: str) -> Longs:
        """The rows of one data file that these delete, ascending and each once."""
        ((_, rows),) = self.each({path: deletes})
        return rows

    def each(self, deletes: Mapping[str, Sequence[DataFile]]) -> Iterator[tuple[str, Longs]]:
        """The rows of each of these data files that its deletes delete; a delete of many files is read once for many."""
        for batch in _batches(deletes, self._most):
            held = self._held(batch)
            for path in batch:
                parts = held.pop(path, [])
                yield path, Together(parts).positions() if parts else np.zeros(0, np.int64)

    def write(self, rows: Iterable[tuple[str, Longs]], homes: Mapping[str, DataFile], *, vectors: bool) -> list[DataFile]:
        """One delete for each data file that has such rows, in a file of its own: a vector, or positions."""
        write, storage = _vector_file if vectors else _position_file, self._open()
        return [write(storage, path, positions, homes[path]) for path, positions in rows if len(positions)]

    def _held(self, batch: Mapping[str, Sequence[DataFile]]) -> Held:
        """What the deletes of these data files say of them, packed."""
        known = {delete_key(delete): delete for deletes in _distinct(batch) for delete in deletes}.values()
        other = next((delete for delete in known if _format(delete) not in ("parquet", "puffin")), None)
        if other is not None:
            message = f"Cannot read deletes from {other['file-path']}: they are in {_format(other)}, not in Parquet"
            raise BadRequestError(message, hint="Compaction applies them, with the spark kernel: `neve compact TABLE`.")
        held: Held = {}
        if not known:
            return held
        storage = self._open()
        files = [delete for delete in known if _format(delete) == "parquet"]
        sources = [(storage.source(d["file-path"], d["file-size-in-bytes"]), d["record-count"]) for d in files]
        for found in read_positions(sources, batch.keys()) if sources else ():
            for path, rows in found.items():
                held.setdefault(path, []).append(Packed.of(rows))
        vectors = [(path, d) for path, deletes in batch.items() for d in deletes if _format(d) == "puffin"]
        blobs = Fetcher(storage).vectors([delete_of(delete, 0) for _, delete in vectors])  # their age does not matter here
        for (path, delete), blob in zip(vectors, blobs, strict=True):
            held.setdefault(path, []).append(Vector(blob, delete["file-path"], delete["record-count"]))
        return held


def _batches(deletes: Mapping[str, Sequence[DataFile]], most: int) -> Iterator[dict[str, Sequence[DataFile]]]:
    """Data files whose rows are held together; of a delete that several share, each is taken to have its share."""
    times = Counter(id(of_file) for of_file in deletes.values())
    sharing: Counter[Any] = Counter()
    for of_file in _distinct(deletes):
        for delete in of_file:
            sharing[delete_key(delete)] += times[id(of_file)]
    weights = {id(d): sum(one["record-count"] / sharing[delete_key(one)] for one in d) for d in _distinct(deletes)}
    batch: dict[str, Sequence[DataFile]] = {}
    weight = 0.0
    for path, of_file in deletes.items():
        if batch and weight + weights[id(of_file)] > most:
            yield batch
            batch, weight = {}, 0.0
        batch[path] = of_file
        weight += weights[id(of_file)]
    if batch:
        yield batch


def _distinct(deletes: Mapping[str, Sequence[DataFile]]) -> Iterable[Sequence[DataFile]]:
    """Files with the same deletes may share one list, which is then looked at once."""
    return {id(of_file): of_file for of_file in deletes.values()}.values()


def _format(delete: DataFile) -> str:
    return str(delete["file-format"]).lower()


def _vector_file(storage: OrderStorage, path: str, positions: Longs, home: DataFile) -> DataFile:
    """In a Puffin file of its own: Iceberg's Java API expires one although another of its vectors is live, and DuckDB takes a
    dense vector for the next one in its file as well."""
    location = f"{_beside(path)}.puffin"
    (vector,), size = store_vectors(storage, location, [(path, positions)])
    return describe_vector(
        home, location, size_bytes=size, offset=vector.offset, length=vector.length, cardinality=vector.cardinality
    )


def _position_file(storage: OrderStorage, path: str, positions: Longs, home: DataFile) -> DataFile:
    location = f"{_beside(path)}.parquet"
    output = write_positions(storage.sink(location), {path: positions})
    confirm_output(storage, location, output.size_bytes, strictly=True)
    described = describe_delete(home, location, form="parquet", size_bytes=output.size_bytes, records=output.rows)
    return described | describe_metrics(output.metrics)


def _beside(path: str) -> str:
    """A new name that begins like the data file's, so that who cleans up after it finds both."""
    return f"{path.removesuffix('.parquet')}-deletes-{uuid4().hex}"
