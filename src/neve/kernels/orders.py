"""Runs one work order: tries its kernels in turn, writes its outputs, counts. The same in a Spark task and in `neve work`.

Outputs have new names, so that a second try or a speculative twin never meets the first; what a failed try left is removed.
"""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from neve.core.plan_words import Kernel
from neve.core.work import FORMAT_VERSION, Counted, Metrics, OutputFile, WorkOrder, WorkResult
from neve.errors import BadRequestError, NeveError
from neve.kernels.faults import CopyRefusedError
from neve.kernels.streams import Sink, Source

log = logging.getLogger(__name__)


class Storage(Protocol):
    """Where sources and sinks come from."""

    def source(self, location: str, size_bytes: int) -> Source:
        """A file to read."""
        ...

    def sink(self, location: str) -> Sink:
        """A file to write."""
        ...

    def delete(self, location: str) -> None:
        """Removes a file; one that is not there is fine."""
        ...


class OrderFailedError(NeveError):
    """Every kernel of an order refused it; the reasons are in the message."""

    code = "order-failed"


class _Outputs:
    """The names of this try's outputs."""

    def __init__(self, order: WorkOrder, storage: Storage) -> None:
        self._prefix, self._storage = order.output_prefix, storage
        self._try = uuid4().hex
        self.paths: list[str] = []

    def open(self, number: int) -> Sink:
        self.paths.append(f"{self._prefix}-{self._try}-{number:05d}.parquet")
        return self._storage.sink(self.paths[-1])

    def remove(self) -> None:
        """What cannot be removed is left to orphan removal: the reason for giving up matters more."""
        for path in self.paths:
            try:
                self._storage.delete(path)
            except NeveError as error:
                log.warning("left behind: %s", error)


def run_order(order: WorkOrder, storage: Storage) -> WorkResult:
    """The result of the first kernel that does not refuse."""
    if order.format_version > FORMAT_VERSION:
        raise BadRequestError(
            f"Cannot run order {order.order_id}: its format version {order.format_version} is newer than {FORMAT_VERSION}",
            hint="Run it with the release that made it.",
        )
    began, cpu = time.monotonic(), time.process_time()
    refusals: list[str] = []
    for kernel in order.kernels:
        outputs = _Outputs(order, storage)
        try:
            fields = _RUNNERS[kernel](order, storage, outputs)
        except (CopyRefusedError, _Refused) as refused:
            outputs.remove()
            refusals.append(f"{kernel}: {refused}")
        except BaseException:
            outputs.remove()
            raise
        else:
            return WorkResult(
                order_id=order.order_id,
                group_id=order.group_id,
                inputs_digest=order.digest,
                kernel=kernel,
                refusals=tuple(refusals),
                seconds=time.monotonic() - began,
                cpu_seconds=time.process_time() - cpu,
                peak_memory_bytes=_peak_memory(),
                **fields,
            )
    raise OrderFailedError(f"Cannot rewrite group {order.group_id}: {'; '.join(refusals)}", hint="Use the spark kernel.")


class _Refused(Exception):  # noqa: N818 - not an error: the next kernel takes over
    pass


def _copy(order: WorkOrder, storage: Storage, outputs: _Outputs) -> dict[str, Any]:
    from neve.kernels.copying import copy_row_groups

    sources = [storage.source(file.path, file.size_bytes) for file in order.inputs]
    copied = copy_row_groups(sources, None, outputs.open(0))
    chunks = copied.row_groups * max(1, len(copied.columns))
    if chunks > order.write.max_chunks or copied.bytes < order.write.min_chunk_bytes * chunks:
        raise _Refused(f"{chunks:,} column chunks of {copied.bytes // chunks:,} bytes on average would read badly")
    metrics = {
        field_id: Metrics(size_bytes=size, values=copied.counts[field_id].values, nulls=copied.counts[field_id].nulls)
        for field_id, size in copied.column_bytes.items()
    }
    output = OutputFile(
        path=outputs.paths[0],
        size_bytes=copied.bytes,
        records=copied.rows,
        row_groups=copied.row_groups,
        split_offsets=copied.split_offsets,
        metrics=metrics,
    )
    kept = {i: Counted(values=counts.values, nulls=counts.nulls) for i, counts in copied.counts.items()}
    return {"outputs": (output,), "rows_read": copied.rows, "kept": kept}


def _arrow(order: WorkOrder, storage: Storage, outputs: _Outputs) -> dict[str, Any]:
    from neve.kernels.arrow import ArrowInput, RefusedError, WriteOptions, rewrite
    from neve.kernels.arrow.constants import default_scalar

    write = order.write
    options = WriteOptions(
        codec=write.codec,
        level=write.level,
        target_bytes=write.target_bytes,
        row_group_bytes=write.row_group_bytes,
        row_group_rows=write.row_group_rows,
        page_bytes=write.page_bytes,
        page_rows=write.page_rows,
        dictionary_bytes=write.dictionary_bytes,
        memory_bytes=write.memory_bytes,
    )
    kinds = {field["id"]: field["type"] for field in order.table_schema["fields"] if isinstance(field["type"], str)}
    inputs = [
        ArrowInput(
            storage.source(file.path, file.size_bytes),
            file.records,
            constants={
                i: None if value is None else default_scalar(kinds[i], value).as_py()
                for i, value in file.constants.items()
                if i in kinds
            },
        )
        for file in order.inputs
    ]
    try:
        rewritten = rewrite(inputs, order.table_schema, options, outputs.open, name_mapping=order.name_mapping)
    except RefusedError as refused:
        raise _Refused(str(refused)) from refused
    files = tuple(
        OutputFile(
            path=path,
            size_bytes=output.size_bytes,
            records=output.rows,
            row_groups=output.row_groups,
            split_offsets=output.split_offsets,
            metrics={i: Metrics.of(column) for i, column in output.metrics.items()},
        )
        for path, output in zip(outputs.paths, rewritten.outputs, strict=True)
    )
    kept = {i: Counted(values=c.values, nulls=c.nulls, nans=c.nans) for i, c in rewritten.kept.items()}
    return {"outputs": files, "rows_read": rewritten.rows_read, "rows_dropped": rewritten.rows_dropped, "kept": kept}


def _spark(order: WorkOrder, storage: Storage, outputs: _Outputs) -> dict[str, Any]:  # noqa: ARG001 - one shape for all
    raise _Refused("it needs a Spark session, and an order runs without one")


_RUNNERS: dict[Kernel, Callable[[WorkOrder, Storage, _Outputs], dict[str, Any]]] = {
    Kernel.COPY: _copy,
    Kernel.ARROW: _arrow,
    Kernel.SPARK: _spark,
}


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
