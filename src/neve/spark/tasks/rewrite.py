"""Runs work orders on Spark: one order per task, several in flight, results handed over as they finish.

Called by the execute stage through `ports.Engine`. Spark retries a failed task; an order that keeps failing is reported as such
while the others go on. What no kernel of ours takes is rewritten by Spark itself. Results name files that nobody sees until
they are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import cached_property, partial
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from neve.commit.failure import Failure
from neve.errors import NeveError
from neve.kernels.faults import CorruptFileError
from neve.rewrite.equality_rows import has_many_keys
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.spark.runtime.executor_python import python_trouble
from neve.spark.runtime.job_failure import reason_of
from neve.spark.runtime.machine import task_memory_bytes
from neve.spark.runtime.task_python import task_context
from neve.spark.tasks.inlining import with_contents
from neve.spark.tasks.order_task import CRASHED, DENIED, DONE, FAILED, REFUSED, Answer, crashed, run_task
from neve.spark.tasks.oversized import Oversized, equality_deletes
from neve.spark.tasks.resolving import Resolver
from neve.spark.tasks.shipping import prepare
from neve.spark.tasks.spark_kernel import SparkKernel
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

WAVE_BYTES = 64 * MIB
"""Input for each core that is worth a Spark job of its own; until a wave ends, nothing of it is recorded."""

_CANCEL_SECONDS = 10
_STOPPED = "the run was stopped"

Properties = Mapping[str, str]
Outcome = WorkResult | FailedOrder


class SparkEngine:
    """Runs orders for one table.

    `storage` gives the storage properties that tasks need, asked for anew before each wave because credentials expire: they are
    sent, never stored nor logged. `spark_declines` says why Spark's own kernel must not take over from another.
    """

    def __init__(
        self,
        spark: SparkSession,
        kernel: SparkKernel,
        storage: Properties | Callable[[], Properties],
        *,
        max_parallelism: int,
        inline_bytes: int = 0,
        spark_declines: str | None = None,
    ) -> None:
        self._spark = spark
        self._kernel = kernel
        self._storage = storage if callable(storage) else lambda: storage
        self._parallelism, self._inline_bytes, self._spark_declines = max_parallelism, inline_bytes, spark_declines
        self._stopping = Event()
        self._resolver = Resolver(spark, self._storage)
        self._oversized = Oversized(self._resolver)
        self._losers: list[str] = []

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[Outcome]:
        """Each order's result, in the order in which they finish."""
        orders = self._within_memory(orders)
        ours = [order for order in orders if Kernel.SPARK not in order.kernels]
        trouble = prepare(self._spark.sparkContext) if ours else None
        ours = ours if trouble else self._without_many_keys(ours)
        calls = [partial(self._wave, wave) for wave in self._waves([] if trouble else ours)]
        calls += [partial(self._alone, order, (trouble,)) for order in ours if trouble]
        calls += [partial(self._alone, order, ()) for order in orders if Kernel.SPARK in order.kernels]
        self._stopping.clear()
        job_group = f"neve-{uuid4().hex}"
        with ThreadPoolExecutor(min(2, self._parallelism), initializer=self._enter, initargs=(job_group,)) as threads:
            futures = [threads.submit(call) for call in calls]
            try:
                for future in as_completed(futures):
                    yield from future.result()
            except BaseException:
                # Ctrl-C, or nobody takes the rest: leaving this block would wait until all of it is done.
                self._stop(futures, job_group)
                raise

    def _within_memory(self, orders: Sequence[WorkOrder]) -> Sequence[WorkOrder]:
        """Where the cluster bounds what Python may take, orders ask for no more than that."""
        context = self._spark.sparkContext
        limit = task_memory_bytes(context.getConf().get, int(context.defaultParallelism))
        if limit is None:
            return orders
        writes = (order.write for order in orders)
        bounded = (write.model_copy(update={"memory_bytes": min(write.memory_bytes, limit)}) for write in writes)
        return [order.model_copy(update={"write": write}) for order, write in zip(orders, bounded, strict=True)]

    def unused(self) -> list[str]:
        """Files that no result names: of attempts that were lost, and vectors that were only handed to tasks."""
        given = [*self._losers, *sorted(self._oversized.scratch), *self._resolver.unused()]
        self._losers, self._oversized.scratch = [], set()
        return given

    def leftovers(self, prefixes: Iterable[str]) -> Iterator[str]:
        """Files whose names begin so: what an order that never reported may have written."""
        from neve.storage.files import Storage

        storage = Storage(self._storage())
        for prefix in prefixes:
            yield from storage.begins_with(prefix)

    def open_outputs(self, result: WorkResult) -> WorkResult:
        """The result with each output opened where it is stored now, or with the reason."""
        return self._kernel.open_outputs(result)

    def _enter(self, job_group: str) -> None:
        """In a new thread. Spark 3.5 looks catalogs up in the session that is active in the thread, and none would be."""
        self._spark.sparkContext.setJobGroup(job_group, "neve: rewrite")
        self._spark._jvm.SparkSession.setActiveSession(self._spark._jsparkSession)

    def _stop(self, futures: Iterable[Future[list[Outcome]]], group: str) -> None:
        self._stopping.set()
        for future in futures:
            future.cancel()
        # After Ctrl-C this thread's connection to the JVM may still wait for the answer of the call that was cut off.
        asking = Thread(target=self._cancel, args=(group,), name="neve-cancel", daemon=True)
        asking.start()
        asking.join(_CANCEL_SECONDS)

    def _cancel(self, group: str) -> None:
        with suppress(Exception):  # a JVM that has gone has cancelled everything
            self._spark.sparkContext.cancelJobGroup(group)

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

    def _wave(self, orders: Sequence[WorkOrder]) -> list[Outcome]:
        """Should a wave raise what nobody expected, its orders go out one by one, so that only the one to blame is lost."""
        try:
            return self._carried_out(orders)
        except Exception as error:
            log.warning("a wave of %s groups raised", len(orders), exc_info=error)
            alone = len(orders) == 1
            outcomes = [crashed(order.group_id, error) if alone else self._wave([order])[0] for order in orders]
            for order, outcome in zip(orders, outcomes, strict=True):
                self._find_losers(order, outcome)
            return outcomes

    def _carried_out(self, orders: Sequence[WorkOrder]) -> list[Outcome]:
        """Credentials may expire while a wave runs: what was denied goes out once more, with new ones."""
        answers = self._answers(orders)
        again = self._answers([order for order in orders if answers[order.order_id][0] == DENIED])
        # An attempt that was denied may not have been allowed to clean up after itself either.
        answers |= {order_id: (word, text, 1) for order_id, (word, text, _) in again.items()}
        return [self._settled_alone(order, answers) for order in orders]

    def _settled_alone(self, order: WorkOrder, answers: Mapping[str, Answer]) -> Outcome:
        """What an order came to; an exception that nobody expected here fails this order and not its wave."""
        try:
            return self._settle(order, *answers[order.order_id])
        except Exception as error:
            log.warning("group %s could not be settled", order.group_id, exc_info=error)
            return crashed(order.group_id, error)

    def _answers(self, orders: Sequence[WorkOrder]) -> dict[str, Answer]:
        """By order; what tasks cannot open is refused here, before any of them is started."""
        from neve.storage.files import refusal

        if not orders:
            return {}
        try:
            properties = dict(self._storage())
        except NeveError as error:
            return _all(orders, FAILED, str(error))
        answers: dict[str, Answer] = {}
        for order in orders:
            if reason := refusal(properties, [order.output_prefix, *(file.path for file in order.inputs)]):
                answers[order.order_id] = (REFUSED, reason, 0)
        return answers | self._job([order for order in orders if order.order_id not in answers], properties)

    def _job(self, orders: Sequence[WorkOrder], properties: Properties) -> dict[str, Answer]:
        """One Spark job. Where Spark gives it up, its orders run one by one, so that only the one to blame is lost."""
        if not orders or self._stopping.is_set():
            return _all(orders, FAILED, _STOPPED)
        payload = [(order.model_dump_json(), properties) for order in self._filled(orders, properties)]
        try:
            context = task_context(self._spark.sparkContext)
            answers = context.parallelize(payload, len(payload)).map(run_task).collect()
        except Exception as error:  # Spark's failures come as many types
            if self._stopping.is_set():
                return _all(orders, FAILED, _STOPPED)
            if trouble := python_trouble(error):
                return _all(orders, REFUSED, trouble, attempts_before=1)
            if len(orders) == 1:
                return _all(orders, FAILED, reason_of(error), attempts_before=1)
            log.warning("%s groups are tried one by one: %s", len(orders), reason_of(error))
            alone = [self._job([order], properties)[order.order_id] for order in orders]
            answers = [(word, text, 1) for word, text, _ in alone]
        return {order.order_id: answer for order, answer in zip(orders, answers, strict=True)}

    def _filled(self, orders: Sequence[WorkOrder], properties: Properties) -> Sequence[WorkOrder]:
        """With deletes that several of them share; where the driver cannot read one, tasks find out for themselves."""
        from neve.storage.files import Storage

        try:
            return with_contents(orders, Storage(properties), self._inline_bytes)
        except Exception as error:
            log.warning("deletes are left to the tasks to read: %s", reason_of(error))
            return orders

    def _alone(self, order: WorkOrder, refusals: tuple[str, ...]) -> list[Outcome]:
        return [self._on_spark(order, refusals)]

    def _settle(self, order: WorkOrder, word: str, text: str, attempts_before: int) -> Outcome:
        if word == DONE:
            outcome: Outcome = WorkResult.model_validate_json(text)
        elif word == REFUSED and equality_deletes(order):
            return self._with_positions(order, text)
        elif word == REFUSED:
            outcome = self._on_spark(order, (text,))
        elif word == CRASHED:
            outcome = FailedOrder.model_validate_json(text)
        else:
            outcome = FailedOrder(group_id=order.group_id, reason=text)
        if attempts_before or self._speculates:
            self._find_losers(order, outcome)
        return outcome

    def _without_many_keys(self, orders: Sequence[WorkOrder]) -> list[WorkOrder]:
        """Orders with more keys to compare than a task may hold get the rows instead, which Spark finds for all of them."""
        large = {order.order_id for order in orders if has_many_keys(order)}
        try:
            known = {order.order_id: order for order in self._oversized.resolved([o for o in orders if o.order_id in large])}
        except Exception as error:  # each will say so by itself, and go to Spark's kernel
            log.warning("%s groups have many equality deletes: %s", len(large), reason_of(error))
            known = {}
        return [known.get(order.order_id, order) for order in orders]

    def _with_positions(self, order: WorkOrder, refusal: str) -> Outcome:
        """An order that a task refused, with its equality deletes resolved; what is refused then has another reason."""
        try:
            (resolved,) = self._oversized.resolved([order])
        except Exception as error:  # whatever it is, Spark's own kernel needs none of it
            return self._on_spark(order, (refusal, reason_of(error)))
        return self._wave([resolved])[0]

    def _on_spark(self, order: WorkOrder, refusals: tuple[str, ...]) -> Outcome:
        """A local Spark gives a job up at its first failed task, so that what may pass is tried again here."""
        if self._spark_declines is not None:
            return FailedOrder(group_id=order.group_id, reason="; ".join([*refusals, f"spark: {self._spark_declines}"]))
        for last in (False, False, True):
            try:
                return self._kernel.run(order, refusals)
            except CorruptFileError as error:
                return FailedOrder(group_id=order.group_id, reason=str(error))
            except Exception as error:  # Spark's failures come as many types; the group is set aside, the others go on
                reason, traceback = reason_of(error), Failure.of(error).traceback
                if last or self._stopping.is_set():
                    break
                log.warning("group %s is tried again by Spark: %s", order.group_id, reason)
        return FailedOrder(group_id=order.group_id, reason=reason, traceback=traceback)

    @cached_property
    def _speculates(self) -> bool:
        return bool(self._spark.sparkContext.getConf().get("spark.speculation") == "true")

    def _find_losers(self, order: WorkOrder, outcome: Outcome) -> None:
        """An attempt that was lost, or overtaken by a twin, may have left files. Listing costs requests, so it is done only
        where there may be some; an attempt that still writes after it leaves its file to orphan removal."""
        kept = {output.path for output in outcome.outputs} if isinstance(outcome, WorkResult) else set()
        kept |= self._oversized.scratch  # other orders may still read these
        try:
            self._losers += [path for path in self.leftovers([order.output_prefix]) if path not in kept]
        except Exception as error:
            log.warning("left behind: %s", reason_of(error))


def _all(orders: Sequence[WorkOrder], word: str, text: str, *, attempts_before: int = 0) -> dict[str, Answer]:
    return {order.order_id: (word, text, attempts_before) for order in orders}
