"""The task that carries out one work order in a Python worker. Sent by `rewrite`; retries storage errors that may pass."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Mapping
from functools import cache
from zipimport import zipimporter

from neve.commit.failure import Failure
from neve.errors import AccessDeniedError, NeveError
from neve.rewrite.work_order import FailedOrder, WorkOrder
from neve.spark.runtime.limits import keep_within_limit

TASK_ATTEMPTS = 4
DONE, REFUSED, DENIED, FAILED, CRASHED = "done", "refused", "denied", "failed", "crashed"
Answer = tuple[str, str, int]
"""What a task says: one of these words, the result or the reason, and how many attempts there were before it. Who crashed says
more: a `FailedOrder` with its traceback."""


def run_task(payload: tuple[str, Mapping[str, str]]) -> Answer:
    """In a Python worker: carries out one order, given as JSON beside the storage's properties."""
    from pyspark import TaskContext

    keep_within_limit()
    try:
        word, text = _carry_out(*payload)
    finally:
        _ease_next_task()
    context = TaskContext.get()
    return word, text, context.attemptNumber() if context else 0


def _carry_out(text: str, properties: Mapping[str, str]) -> tuple[str, str]:
    """What may pass is tried again here: a task that raises until Spark gives up takes its whole wave along."""
    from neve.kernels.orders import OrderFailedError, run_order
    from neve.storage.files import Storage

    order, storage = WorkOrder.model_validate_json(text), Storage(properties)
    for attempt in range(TASK_ATTEMPTS):
        try:
            return DONE, run_order(order, storage).model_dump_json()
        except (OrderFailedError, ImportError) as error:
            return REFUSED, str(error)
        except AccessDeniedError as error:
            return DENIED, str(error)
        except NeveError as error:
            if not error.retryable or attempt + 1 == TASK_ATTEMPTS:
                return FAILED, str(error)
            time.sleep(2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
        except Exception as error:
            return CRASHED, crashed(order.group_id, error).model_dump_json()
    raise AssertionError("unreachable")


def crashed(group_id: int, error: BaseException) -> FailedOrder:
    """An order that an unexpected exception ended."""
    failure = Failure.of(error)
    return FailedOrder(group_id=group_id, reason=failure.reason, traceback=failure.traceback)


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
