"""Runs work orders on Spark: one order per task, several in flight, results handed over as they finish.

Called by the execute stage through `ports.Engine`. Spark retries a failed task; an order that keeps failing is reported as such
while the others go on. What no kernel of ours takes is rewritten by Spark itself. Results name files that nobody sees until
they are committed.
"""

from __future__ import annotations

import gc
import logging
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from typing import TYPE_CHECKING
from zipimport import zipimporter

from neve.core.plan_words import Kernel
from neve.core.units import MIB
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.engines.spark.spark_kernel import SparkKernel
from neve.errors import NeveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

WAVE_BYTES = 64 * MIB
"""Input for each core that is worth a Spark job of its own; until a wave ends, nothing of it is recorded."""

TASK_ATTEMPTS = 4

_DONE, _REFUSED, _FAILED = "done", "refused", "failed"


class SparkEngine:
    """Runs orders for one table. `storage` are the storage properties that tasks need; they are sent, never stored."""

    def __init__(self, spark: SparkSession, kernel: SparkKernel, storage: Mapping[str, str], *, max_parallelism: int) -> None:
        self._spark = spark
        self._kernel = kernel
        self._storage = dict(storage)
        self._parallelism = max_parallelism

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        """Each order's result, in the order in which they finish."""
        ours = [order for order in orders if Kernel.SPARK not in order.kernels]
        waves = list(self._waves(ours))
        with ThreadPoolExecutor(max_workers=2) as threads:
            for future in as_completed([threads.submit(self._wave, wave) for wave in waves]):
                yield from future.result()
        for order in orders:
            if Kernel.SPARK in order.kernels:
                yield self._on_spark(order, ())

    def discard(self, paths: Iterable[str]) -> None:
        """Removes files that were written and never committed; one that cannot be removed is left to orphan removal."""
        from neve.storage import Storage

        storage = Storage(self._storage)
        for path in paths:
            try:
                storage.delete(path)
            except NeveError as error:
                log.warning("left behind: %s", error)

    def leftovers(self, prefixes: Iterable[str]) -> list[str]:
        """Files whose names begin so: what an order that never reported may have written."""
        from neve.storage import Storage

        storage = Storage(self._storage)
        return [path for prefix in prefixes for path in storage.begins_with(prefix)]

    def _waves(self, orders: Sequence[WorkOrder]) -> Iterator[Sequence[WorkOrder]]:
        """Two waves share the cores, so that one's stragglers do not idle them. Small orders go out together: Spark takes as
        long to start a job for one of them as for many."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        # Fewer cores than may be used bound what is in flight by themselves; otherwise two waves must.
        most = len(orders) if cores <= self._parallelism else max(1, self._parallelism // 2)
        wave: list[WorkOrder] = []
        waiting_bytes = 0
        for order in orders:
            wave.append(order)
            waiting_bytes += sum(file.size_bytes for file in order.inputs)
            if len(wave) >= most or (len(wave) >= cores and waiting_bytes >= cores * WAVE_BYTES):
                yield wave
                wave, waiting_bytes = [], 0
        if wave:
            yield wave

    def _wave(self, orders: Sequence[WorkOrder]) -> list[WorkResult | FailedOrder]:
        context = self._spark.sparkContext
        payload = [(order.model_dump_json(), self._storage) for order in orders]
        try:
            answers = context.parallelize(payload, len(payload)).map(_task).collect()
        except Exception as error:  # the cluster gave the job up: this wave is set aside, the others go on
            self.discard(self.leftovers(order.output_prefix for order in orders))
            return [FailedOrder(group_id=order.group_id, reason=_reason(error)) for order in orders]
        return [self._settle(order, kind, text) for order, (kind, text) in zip(orders, answers, strict=True)]

    def _settle(self, order: WorkOrder, kind: str, text: str) -> WorkResult | FailedOrder:
        if kind == _DONE:
            return WorkResult.model_validate_json(text)
        if kind == _REFUSED:
            return self._on_spark(order, (text,))
        return FailedOrder(group_id=order.group_id, reason=text)

    def _on_spark(self, order: WorkOrder, refusals: tuple[str, ...]) -> WorkResult | FailedOrder:
        try:
            return self._kernel.run(order, refusals)
        except Exception as error:  # Spark's failures come as many types; the group is set aside, the others go on
            return FailedOrder(group_id=order.group_id, reason=_reason(error))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _task(payload: tuple[str, dict[str, str]]) -> tuple[str, str]:
    try:
        return _run_in_task(payload)
    finally:
        _ease_next_task()


def _ease_next_task() -> None:
    """Leaves Spark's worker little to do between tasks. Before each it drops import caches, which reads the directory of
    pyspark.zip anew for every package imported from it; after each it collects garbage. Measured: 0.15 s of CPU a task, where
    copying a small group takes less. Finders come back when something is imported."""
    finders = sys.path_importer_cache
    for path in [path for path, finder in finders.items() if isinstance(finder, zipimporter)]:
        finders.pop(path, None)
    _freeze_modules()


@cache
def _freeze_modules() -> None:
    """Once in each worker, when the kernels are imported: what stays for good need not be walked again."""
    gc.collect()
    gc.freeze()


def _run_in_task(payload: tuple[str, dict[str, str]]) -> tuple[str, str]:
    """In a Python worker: the result as JSON, or the reason why there is none.

    What may pass is tried again here: a local Spark tries a task only once, and a task that raises takes its whole wave along.
    """
    from neve.kernels.orders import OrderFailedError, run_order
    from neve.storage import Storage

    text, properties = payload
    order, storage = WorkOrder.model_validate_json(text), Storage(properties)
    for attempt in range(TASK_ATTEMPTS):
        try:
            return _DONE, run_order(order, storage).model_dump_json()
        except OrderFailedError as error:
            return _REFUSED, str(error)
        except NeveError as error:
            if not error.retryable or attempt + 1 == TASK_ATTEMPTS:
                return _FAILED, str(error)
            time.sleep(2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
        except Exception as error:
            return _FAILED, f"{type(error).__name__}: {error}"
    raise AssertionError("unreachable")
