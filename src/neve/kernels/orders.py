"""Runs one work order: tries its kernels in turn, writes its outputs, counts. The same in a Spark task and in `neve work`.

Outputs have new names, so that a second try or a speculative twin never meets the first; a failed try takes back its own.
"""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import numpy as np

from neve.errors import BadRequestError, NeveError
from neve.kernels import request_counts
from neve.kernels.faults import CopyRefusedError
from neve.kernels.streams import Sink, Source
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import FORMAT_VERSION, Counted, Metrics, OutputFile, WorkOrder, WorkResult
from neve.table.positions import PositionMap

if TYPE_CHECKING:
    from neve.kernels.arrow import ArrowInput, Counts, WriteOptions
    from neve.kernels.deletes.loading import DeleteLoader

log = logging.getLogger(__name__)


class OrderStorage(Protocol):
    """Where sources and sinks come from."""

    def source(self, location: str, size_bytes: int) -> Source:
        """A file to read."""
        ...

    def stored(self, location: str) -> Source:
        """A file to read, of the size that it has now."""
        ...

    def sink(self, location: str) -> Sink:
        """A file to write."""
        ...


class OrderFailedError(NeveError):
    """Every kernel of an order refused it; the reasons are in the message."""

    code = "order-failed"


class _Outputs:
    """This try's outputs. Nobody is told of them before the try has succeeded, so that until then it may take them back."""

    def __init__(self, order: WorkOrder, storage: OrderStorage) -> None:
        self._prefix, self._storage = order.output_prefix, storage
        self._try = uuid4().hex
        self.paths: list[str] = []
        self._sinks: list[Sink] = []

    def open(self, number: int) -> Sink:
        self.paths.append(f"{self._prefix}-{self._try}-{number:05d}.parquet")
        self._sinks.append(self._storage.sink(self.paths[-1]))
        return self._sinks[-1]

    def take_back(self) -> None:
        """What cannot be removed is left to orphan removal: the reason for giving up matters more."""
        for sink in self._sinks:
            try:
                sink.take_back()
            except NeveError as error:
                log.warning("left behind: %s", error)


def run_order(order: WorkOrder, storage: OrderStorage) -> WorkResult:
    """The result of the first kernel that does not refuse."""
    if order.format_version > FORMAT_VERSION:
        raise BadRequestError(
            f"Cannot run order {order.order_id}: its format version {order.format_version} is newer than {FORMAT_VERSION}",
            hint="Run it with the release that made it.",
        )
    began, cpu, requests = time.monotonic(), time.process_time(), request_counts.counts()
    deletes = _loader(order, storage)
    refusals: list[str] = []
    kernels = list(order.kernels)
    while kernels:
        kernel = kernels[0]
        outputs = _Outputs(order, storage)
        try:
            fields = _RUNNERS[kernel](order, storage, outputs, deletes)
            fields["outputs"] = confirmed_outputs(fields["outputs"], storage, kernel)
        except (CopyRefusedError, _Refused) as refused:
            outputs.take_back()
            refusals.append(f"{kernel}: {refused}")
            if isinstance(refused, _Unsorted):
                order = order.model_copy(update={"inputs_sorted": False})
            else:
                del kernels[0]
        except BaseException:
            outputs.take_back()
            raise
        else:
            return WorkResult(
                order_id=order.order_id,
                group_id=order.group_id,
                inputs_digest=order.digest,
                kernel=kernel,
                refusals=tuple(refusals),
                delete_reads=deletes.reads if deletes else 0,
                seconds=time.monotonic() - began,
                cpu_seconds=time.process_time() - cpu,
                peak_memory_bytes=_peak_memory(),
                requests=request_counts.since(requests),
                **fields,
            )
    raise OrderFailedError(f"Cannot rewrite group {order.group_id}: {'; '.join(refusals)}", hint="Use the spark kernel.")


class _Refused(Exception):  # noqa: N818 - not an error: the next kernel takes over
    pass


class _Unsorted(_Refused):
    """An input is not in the order that it was said to have: the same kernel sorts instead of merging."""


def _loader(order: WorkOrder, storage: OrderStorage) -> DeleteLoader | None:
    if not order.deletes:
        return None
    from neve.kernels.deletes.loading import DeleteLoader

    return DeleteLoader(order, storage)


def _copy(order: WorkOrder, storage: OrderStorage, outputs: _Outputs, deletes: DeleteLoader | None) -> dict[str, Any]:
    from neve.kernels.parquet.copying import copy_row_groups

    if order.layout is not None:
        raise _Refused(f"rows are to be ordered by {order.layout}")
    if deletes is not None:
        _refuse_deleted_rows(order, deletes)
    sources = [storage.source(file.path, file.size_bytes) for file in order.inputs]
    lineage = [(file.first_row_id, file.sequence_number) for file in order.inputs] if order.row_lineage else None
    copied = copy_row_groups(sources, None, outputs.open(0), lineage=lineage)
    chunks = copied.row_groups * max(1, len(copied.columns))
    if chunks > order.write.max_chunks or copied.bytes < order.write.min_chunk_bytes * chunks:
        raise _Refused(f"{chunks:,} column chunks of {copied.bytes // chunks:,} bytes on average would read badly")
    metrics = {
        field_id: Metrics(size_bytes=size, values=copied.written[field_id].values, nulls=copied.written[field_id].nulls)
        for field_id, size in copied.column_bytes.items()
    }
    output = OutputFile(
        path=outputs.paths[0],
        size_bytes=copied.bytes,
        records=copied.rows_written,
        row_groups=copied.row_groups,
        split_offsets=copied.split_offsets,
        metrics=metrics,
    )
    kept = {i: Counted(values=counts.values, nulls=counts.nulls) for i, counts in copied.counts.items()}
    return {"outputs": (output,), "rows_read": copied.rows, "kept": kept, "positions": _one_after_another(order)}


def confirmed_outputs(outputs: tuple[OutputFile, ...], storage: OrderStorage, kernel: Kernel) -> tuple[OutputFile, ...]:
    """The outputs, each opened from storage by a reader that did not write it: pyarrow opens copies, our parser what pyarrow
    wrote. What differs from what was written is found by the proof."""
    from neve.kernels.opening import confirm_output

    strictly = kernel is Kernel.ARROW
    return tuple(
        output.seen_as(confirm_output(storage, output.path, output.size_bytes, strictly=strictly)) for output in outputs
    )


def _refuse_deleted_rows(order: WorkOrder, deletes: DeleteLoader) -> None:
    """A copy keeps every row. Position deletes that name no input are none of ours; keys would have to be compared."""
    with _refusing():
        if newer := deletes.equality_deletes():
            raise _Refused(f"equality deletes apply ({len(newer):,})")
        for file, deleted in zip(order.inputs, deletes.positions(), strict=True):
            if deleted is not None:
                raise _Refused(f"rows of {file.path} are deleted ({deleted.count:,})")


def _one_after_another(order: WorkOrder) -> PositionMap:
    lengths = np.array([file.records for file in order.inputs], np.int64)
    inputs, starts = np.flatnonzero(lengths), np.cumsum(lengths) - lengths
    zeros = np.zeros(len(inputs), np.int64)
    return PositionMap(inputs, zeros, lengths[inputs], zeros, starts[inputs])


def _arrow(order: WorkOrder, storage: OrderStorage, outputs: _Outputs, deletes: DeleteLoader | None) -> dict[str, Any]:
    from neve.kernels.arrow import rewrite

    with _refusing():
        deleted_keys = deletes.keys() if deletes else ()
        rewritten = rewrite(
            _arrow_inputs(order, storage, deletes),
            order.table_schema,
            _write_options(order, deletes.held_bytes if deletes else 0),
            outputs.open,
            name_mapping=order.name_mapping,
            deleted_keys=deleted_keys,
            layout=order.layout,
            inputs_sorted=order.inputs_sorted,
        )
    files = tuple(
        OutputFile(
            path=path,
            size_bytes=output.size_bytes,
            records=output.rows,
            row_groups=output.row_groups,
            split_offsets=output.split_offsets,
            sort_order_id=order.layout.order_id if order.layout else 0,
            metrics={i: Metrics.of(column) for i, column in output.metrics.items()},
        )
        for path, output in zip(outputs.paths, rewritten.outputs, strict=True)
    )
    return {
        "outputs": files,
        "rows_read": rewritten.rows_read,
        "rows_dropped": rewritten.rows_dropped,
        "kept": _counted(rewritten.kept),
        "dropped": _counted(rewritten.dropped) if rewritten.rows_dropped else {},
        "positions": rewritten.positions,
    }


def _counted(counts: Mapping[int, Counts]) -> dict[int, Counted]:
    return {i: Counted(values=c.values, nulls=c.nulls, nans=c.nans) for i, c in counts.items()}


def _arrow_inputs(order: WorkOrder, storage: OrderStorage, deletes: DeleteLoader | None) -> list[ArrowInput]:
    from neve.kernels.arrow import ArrowInput
    from neve.kernels.arrow.constants import constant

    fields = (*order.key_fields, *order.table_schema["fields"])
    kinds = {field["id"]: field["type"] for field in fields if isinstance(field["type"], str)}
    deleted = deletes.positions() if deletes else [None] * len(order.inputs)
    return [
        ArrowInput(
            storage.source(file.path, file.size_bytes),
            file.records,
            constants={i: constant(kinds[i], value) for i, value in file.constants.items() if i in kinds},
            deleted=rows,
            first_row_id=file.first_row_id,
            sequence_number=file.sequence_number,
        )
        for file, rows in zip(order.inputs, deleted, strict=True)
    ]


def _write_options(order: WorkOrder, held_bytes: int) -> WriteOptions:
    """The table's; deletes that are kept for later orders take from the memory, half of it at most."""
    from neve.kernels.arrow import WriteOptions

    write = order.write
    return WriteOptions(
        codec=write.codec,
        level=write.level,
        target_bytes=write.target_bytes,
        row_group_bytes=write.row_group_bytes,
        row_group_rows=write.row_group_rows,
        page_bytes=write.page_bytes,
        page_rows=write.page_rows,
        dictionary_bytes=write.dictionary_bytes,
        memory_bytes=max(write.memory_bytes - held_bytes, write.memory_bytes // 2),
        row_lineage=order.row_lineage,
    )


@contextmanager
def _refusing() -> Iterator[None]:
    """What the arrow kernel, or reading deletes for any kernel, refuses."""
    from neve.kernels.arrow.model import RefusedError, UnsortedError

    try:
        yield
    except UnsortedError as refused:
        raise _Unsorted(str(refused)) from refused
    except RefusedError as refused:
        raise _Refused(str(refused)) from refused


def _spark(*_: Any) -> dict[str, Any]:
    raise _Refused("it needs a Spark session, and an order runs without one")


_RUNNERS: dict[Kernel, Callable[[WorkOrder, OrderStorage, _Outputs, DeleteLoader | None], dict[str, Any]]] = {
    Kernel.COPY: _copy,
    Kernel.ARROW: _arrow,
    Kernel.SPARK: _spark,
}


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
