"""Runs work orders on Spark: one order per task, several in flight, results handed over as they finish.

Called by the execute stage through `ports.Engine`. Spark retries a failed task; an order that keeps failing is reported as such
while the others go on. What no kernel of ours takes is rewritten by Spark itself. Results name files that nobody sees until
they are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from neve.core.plan_words import Kernel
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.engines.spark.spark_kernel import SparkKernel
from neve.errors import NeveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

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
        waves = list(_waves(ours, self._wave_size(len(ours))))
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

    def _wave_size(self, orders: int) -> int:
        """Two waves share the cores, so that one's stragglers do not idle them; few orders go out at once."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        return max(1, min(self._parallelism, max(cores, -(-orders // 50))))

    def _wave(self, orders: Sequence[WorkOrder]) -> list[WorkResult | FailedOrder]:
        context = self._spark.sparkContext
        payload = [(order.model_dump_json(), self._storage) for order in orders]
        answers = context.parallelize(payload, len(payload)).map(_run_in_task).collect()
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
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            return FailedOrder(group_id=order.group_id, reason=reason)


def _waves(orders: Sequence[WorkOrder], size: int) -> Iterator[Sequence[WorkOrder]]:
    yield from (orders[start : start + size] for start in range(0, len(orders), size))


def _run_in_task(payload: tuple[str, dict[str, str]]) -> tuple[str, str]:
    """In a Python worker: the result as JSON, or the reason why there is none. A retryable failure is left to Spark."""
    from neve.kernels.orders import OrderFailedError, run_order
    from neve.storage import Storage

    text, properties = payload
    try:
        return _DONE, run_order(WorkOrder.model_validate_json(text), Storage(properties)).model_dump_json()
    except OrderFailedError as error:
        return _REFUSED, str(error)
    except NeveError as error:
        if error.retryable:
            raise
        return _FAILED, str(error)
