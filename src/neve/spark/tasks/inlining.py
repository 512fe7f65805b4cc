"""Puts small deletes into the orders that share them, read once by the driver instead of once by every worker.

Used by `rewrite` before a wave goes out. A delete of one order alone is left to its task, which reads it just as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from neve.kernels.orders import OrderStorage
from neve.rewrite.work_order import DeleteFile, DeleteKind, WorkOrder
from neve.table.units import MIB

_READERS = 16
_WAVE_BYTES = 64 * MIB
"""What a wave may carry in all: payloads go through the driver's memory."""


def with_contents(orders: Sequence[WorkOrder], storage: OrderStorage, limit_bytes: int) -> list[WorkOrder]:
    """The orders with the content of deletes that several of them name, as far as each stays within the limit."""
    times = Counter(_key(delete) for order in orders for delete in order.deletes)
    left, wanted = _WAVE_BYTES, dict[tuple[str, int | None], DeleteFile]()
    for order in orders:
        shared = [delete for delete in order.deletes if times[_key(delete)] > 1 and delete.content is None]
        size = sum(delete.size_bytes for delete in shared)
        if size <= min(limit_bytes, left):
            wanted |= {_key(delete): delete for delete in shared}
            left -= size
    if not wanted:
        return list(orders)
    with ThreadPoolExecutor(_READERS) as readers:
        contents = dict(zip(wanted, readers.map(lambda delete: _content(delete, storage), wanted.values()), strict=True))
    return [order.model_copy(update={"deletes": tuple(_filled(order.deletes, contents))}) for order in orders]


def _key(delete: DeleteFile) -> tuple[str, int | None]:
    return delete.path, delete.offset


def _content(delete: DeleteFile, storage: OrderStorage) -> bytes:
    if delete.kind is DeleteKind.VECTOR:
        start = delete.offset or 0
        return bytes(storage.source(delete.path, start + delete.size_bytes).read_at(start, delete.size_bytes))
    return bytes(storage.source(delete.path, delete.size_bytes).read_at(0, delete.size_bytes))


def _filled(deletes: Iterable[DeleteFile], contents: dict[tuple[str, int | None], bytes]) -> Iterable[DeleteFile]:
    for delete in deletes:
        content = contents.get(_key(delete))
        yield delete if content is None else delete.model_copy(update={"content": content})
