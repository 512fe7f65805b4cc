"""The deletes of one order, ready to be applied: positions by input, keys by the columns that they compare.

Made by `kernels.orders`. Only deletes that concern an input are read, and each at most once per process (`cache`). Keys that
would take more than a quarter of the order's memory are refused, so that Spark resolves them to positions instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from neve.kernels.arrow.model import DeletedRows, RefusedError
from neve.kernels.arrow.schema import primitive
from neve.kernels.deletes.cache import SHARED, DeleteCache
from neve.kernels.deletes.equality import Keyed, KeySet
from neve.kernels.deletes.fetching import DeleteStorage, Fetcher
from neve.kernels.deletes.keys import KeyFields, check_fields, read_keys
from neve.kernels.deletes.position_files import read_positions
from neve.kernels.deletes.puffin import check_vector
from neve.kernels.deletes.waiting import Packed, Together, Vector
from neve.rewrite.equality_rows import BYTES_PER_KEY, KEYS_SHARE
from neve.rewrite.work_order import DeleteFile, DeleteKind, InputFile, WorkOrder
from neve.table.units import MIB

_BYTES_PER_POSITION = 8
Part = tuple[Sequence[pa.Array], int]


class DeleteLoader:
    """Loads what an order's kernels ask for."""

    def __init__(self, order: WorkOrder, storage: DeleteStorage, cache: DeleteCache = SHARED) -> None:
        self._order, self._cache = order, cache
        self._fetcher = Fetcher(storage)
        self._limit_bytes = order.write.memory_bytes // KEYS_SHARE

    @property
    def reads(self) -> int:
        """Deletes that came from storage."""
        return self._fetcher.reads

    @property
    def held_bytes(self) -> int:
        """What this process keeps of deletes for the orders to come."""
        return self._cache.held_bytes

    def positions(self) -> list[DeletedRows | None]:
        """Rows that are deleted by position, by input; None where there are none."""
        used = {at: self._order.deletes[at] for file in self._order.inputs for at in file.deletes}
        vectors = self._vectors({at: delete for at, delete in used.items() if delete.kind is DeleteKind.VECTOR})
        files = self._files({at: delete for at, delete in used.items() if delete.kind is DeleteKind.POSITIONS})
        return [self._of_input(file, vectors, files) for file in self._order.inputs]

    def equality_deletes(self) -> list[DeleteFile]:
        """Those that are newer than some input, so that they may delete rows of it."""
        deletes = [delete for delete in self._order.deletes if delete.kind is DeleteKind.EQUALITY]
        numbers = [file.sequence_number for file in self._order.inputs]
        known = [number for number in numbers if number is not None]
        if deletes and len(known) < len(numbers):
            raise _refused("there are equality deletes, and the sequence number of an input is not known")
        return [delete for delete in deletes if delete.sequence_number > min(known)]

    def keys(self) -> list[Keyed]:
        """The keys that are deleted, together for all deletes that compare the same columns."""
        by_columns: dict[tuple[int, ...], list[DeleteFile]] = {}
        for delete in self.equality_deletes():
            by_columns.setdefault(tuple(sorted(set(delete.equality_ids))), []).append(delete)
        left = self._limit_bytes
        found = []
        for ids, deletes in by_columns.items():
            fields = check_fields(self._order.key_fields, ids)
            parts = self._key_parts(deletes, fields, left)
            left -= sum(_taken(columns) for columns, _ in parts)
            found.append(Keyed(fields, KeySet(parts)))
        return found

    def _of_input(
        self, file: InputFile, vectors: Mapping[int, Vector], files: Mapping[int, Mapping[str, Packed]]
    ) -> DeletedRows | None:
        parts: list[DeletedRows] = [vectors[at] for at in file.deletes if at in vectors]
        parts += [files[at][file.path] for at in file.deletes if at in files and file.path in files[at]]
        together = Together(parts)
        if together.count * _BYTES_PER_POSITION > self._limit_bytes:
            raise _refused(f"{together.count:,} deleted positions of {file.path} take more than {_mib(self._limit_bytes)}")
        return together if together.count else None

    def _vectors(self, deletes: Mapping[int, DeleteFile]) -> dict[int, Vector]:
        blobs = {at: self._cache.get((delete.path, delete.offset)) for at, delete in deletes.items()}
        missing = [at for at, blob in blobs.items() if blob is None]
        for at, blob in zip(missing, self._fetcher.vectors([deletes[at] for at in missing]), strict=True):
            check_vector(blob, deletes[at].path)  # before it is kept, so that another try may read it right
            blobs[at] = blob
            self._cache.put((deletes[at].path, deletes[at].offset), blob, len(blob))
        return {at: Vector(blob, deletes[at].path, deletes[at].records) for at, blob in blobs.items()}

    def _files(self, deletes: Mapping[int, DeleteFile]) -> dict[int, dict[str, Packed]]:
        """By place in the order and data file. What the cache could not hold is read for this order's inputs alone."""
        found = {at: self._cache.get((delete.path, None)) for at, delete in deletes.items()}
        small: list[int] = []
        large: list[int] = []
        for at in (at for at, held in found.items() if held is None):
            fits = deletes[at].records * _BYTES_PER_POSITION <= self._cache.limit_bytes
            (small if fits else large).append(at)
        inputs = {file.path for file in self._order.inputs}
        for places, wanted in ((small, None), (large, inputs)):
            sources = [self._fetcher.open(deletes[at]) for at in places]
            for at, positions in zip(places, read_positions(sources, wanted), strict=True):
                found[at] = {path: Packed.of(rows) for path, rows in positions.items()}
                if wanted is None:
                    size = sum(len(path) + len(packed.bitmap) for path, packed in found[at].items())
                    self._cache.put((deletes[at].path, None), found[at], size)
        return found

    def _key_parts(self, deletes: Sequence[DeleteFile], fields: KeyFields, left: int) -> list[Part]:
        too_large = _refused(
            f"{sum(delete.records for delete in deletes):,} keys of equality deletes take more than {_mib(self._limit_bytes)}"
        )
        least = BYTES_PER_KEY + sum(_width(field["type"]) for field in fields)
        if sum(delete.records for delete in deletes) * least > left:
            raise too_large
        held = {delete.path: self._cache.get(_cache_key(delete, fields)) for delete in deletes}
        missing = [delete for delete in deletes if held[delete.path] is None]
        for delete, columns in self._read(missing, fields, left, too_large):
            held[delete.path] = columns
            self._cache.put(_cache_key(delete, fields), columns, sum(map(_bytes, columns)))
        return [(columns, delete.sequence_number) for delete in deletes for columns in held[delete.path]]

    def _read(
        self, deletes: Sequence[DeleteFile], fields: KeyFields, left: int, too_large: RefusedError
    ) -> Iterable[tuple[DeleteFile, list[list[pa.Array]]]]:
        found: list[list[list[pa.Array]]] = [[] for _ in deletes]
        with closing(read_keys([self._fetcher.open(delete) for delete in deletes], fields)) as batches:
            for i, columns in batches:
                left -= _taken(columns)
                if left < 0:
                    raise too_large
                found[i].append(columns)
        return zip(deletes, found, strict=True)


def _cache_key(delete: DeleteFile, fields: KeyFields) -> Hashable:
    return delete.path, tuple((field["id"], field["type"]) for field in fields)


def _bytes(columns: Sequence[pa.Array]) -> int:
    return sum(int(column.nbytes) for column in columns)


def _taken(columns: Sequence[pa.Array]) -> int:
    return _bytes(columns) + BYTES_PER_KEY * len(columns[0])


def _width(kind: str) -> int:
    """Bytes that a value takes at least."""
    known = primitive(kind)
    # Of a text only where it ends, since it may be empty.
    return known.bit_width // 8 if known is not None and kind not in ("string", "binary") else 4


def _refused(reason: str) -> RefusedError:
    return RefusedError(f"Cannot rewrite with the arrow kernel: {reason}", hint="The spark kernel can.")


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"
