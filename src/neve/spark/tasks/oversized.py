"""Orders whose equality deletes are too many for a task: Spark finds the rows that they delete, and the orders carry those.

Used by `rewrite` before such orders go out, and for those that a task found too large. The vectors are scratch files beside the
outputs; when the run is over, they go into the quarantine like any file that was never committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neve.rewrite.equality_rows import ResolveDelete, ResolvedFile, ResolveInput
from neve.rewrite.work_order import DeleteFile, DeleteKind, WorkOrder
from neve.spark.tasks.resolving import Resolver


class Oversized:
    """Resolves orders of one run. `scratch` are the files that this left behind so far."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self.scratch: set[str] = set()

    def resolved(self, orders: Sequence[WorkOrder]) -> list[WorkOrder]:
        """The same orders with vectors in place of equality deletes, all in one pass. Raises NeveError where that fails."""
        if not orders:
            return []
        scopes, deletes = _scopes(orders)
        found = self._resolver.resolve(
            [ResolveInput(file=file, scope=scopes[i]) for i, order in enumerate(orders) for file in order.inputs],
            deletes,
            key_fields=list({field["id"]: field for order in orders for field in order.key_fields}.values()),
            output_prefix=f"{orders[0].output_prefix}-resolved",
            name_mapping=orders[0].name_mapping,
            apart=False,
        )
        self.scratch |= {file.path for file in found}
        vectors = {file.data_path: file for file in found}
        return [_with_vectors(order, [vectors[file.path] for file in order.inputs if file.path in vectors]) for order in orders]


def _scopes(orders: Sequence[WorkOrder]) -> tuple[list[int], list[ResolveDelete]]:
    """A number for each order, and the deletes with theirs, each read as seldom as can be.

    What every order has concerns all; orders that have the same beside that share a number.
    """
    deletes = {delete.path: delete for order in orders for delete in equality_deletes(order)}
    named = [frozenset(delete.path for delete in equality_deletes(order)) for order in orders]
    common = frozenset.intersection(*named)
    numbers = {rest: i for i, rest in enumerate(dict.fromkeys(paths - common for paths in named))}
    scoped = [ResolveDelete(file=deletes[path], scope=i) for rest, i in numbers.items() for path in sorted(rest)]
    return [numbers[paths - common] for paths in named], [ResolveDelete(file=deletes[p]) for p in sorted(common)] + scoped


def equality_deletes(order: WorkOrder) -> list[DeleteFile]:
    """Those of an order that compare keys."""
    return [delete for delete in order.deletes if delete.kind is DeleteKind.EQUALITY]


def _with_vectors(order: WorkOrder, found: Iterable[ResolvedFile]) -> WorkOrder:
    """Equality deletes stay out, and places of the others in the order change."""
    kept = [i for i, delete in enumerate(order.deletes) if delete.kind is not DeleteKind.EQUALITY]
    place = {old: new for new, old in enumerate(kept)}
    vectors = {file.data_path: _vector(file) for file in found}
    of_input = {path: len(kept) + i for i, path in enumerate(vectors)}
    inputs = tuple(
        file.model_copy(
            update={
                "deletes": (*(place[i] for i in file.deletes), *([of_input[file.path]] if file.path in of_input else [])),
            }
        )
        for file in order.inputs
    )
    deletes = (*(order.deletes[i] for i in kept), *vectors.values())
    return order.model_copy(update={"inputs": inputs, "deletes": deletes, "key_fields": ()})


def _vector(file: ResolvedFile) -> DeleteFile:
    return DeleteFile(
        kind=DeleteKind.VECTOR,
        path=file.path,
        format="puffin",
        size_bytes=file.length,
        records=file.cardinality,
        sequence_number=0,
        offset=file.offset,
        referenced=file.data_path,
    )
