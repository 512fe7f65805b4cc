"""How orders become Spark jobs, what becomes of those that fail, and what a task leaves in its worker. No Spark is started."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zipfile import ZipFile
from zipimport import zipimporter

import pytest
from pyarrow.fs import S3FileSystem

from neve.errors import CatalogUnreachableError
from neve.kernels.orders import run_order
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import FailedOrder, InputFile, WorkOrder, WorkResult
from neve.spark.tasks import order_task, rewrite
from neve.storage.files import Storage
from neve.table.units import MIB
from stack.proxy import FaultProxy, answer
from tests.builders.work_orders import make_order, two_files, written

if TYPE_CHECKING:
    from stack.endpoints import S3Endpoint


def sizes_of_waves(order_mib: list[int], *, cores: int, max_parallelism: int = 16) -> list[int]:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
    kernel: Any = None
    engine = rewrite.SparkEngine(spark, kernel, {}, max_parallelism=max_parallelism)
    orders = [order(number, mib) for number, mib in enumerate(order_mib)]
    waves = list(engine._waves(orders))
    assert [each for wave in waves for each in wave] == orders
    return [len(wave) for wave in waves]


def order(number: int, mib: int) -> WorkOrder:
    return WorkOrder(
        order_id=f"o{number}",
        group_id=number,
        kernels=(Kernel.COPY,),
        inputs=(InputFile(path=f"{number}.parquet", size_bytes=mib * MIB, records=1),),
        table_schema={"type": "struct", "fields": []},
        output_prefix="out",
    )


def test_large_orders_go_out_one_for_each_core() -> None:
    assert sizes_of_waves([512] * 5, cores=2) == [2, 2, 1]


def test_small_orders_go_out_together_until_a_job_is_worth_it() -> None:
    assert sizes_of_waves([1] * 200, cores=2) == [128, 72]


def test_a_large_cluster_gets_half_of_what_may_be_in_flight_with_each_of_two_waves() -> None:
    assert sizes_of_waves([1] * 20, cores=1000, max_parallelism=16) == [8, 8, 4]
    assert sizes_of_waves([1] * 2, cores=1000, max_parallelism=1) == [1, 1]


def test_no_orders_make_no_wave() -> None:
    assert sizes_of_waves([], cores=2) == []


def test_a_task_leaves_no_zip_finder_to_read_again_and_still_lets_modules_be_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = str(tmp_path / "modules.zip")
    with ZipFile(archive, "w") as file:
        file.writestr("neve_in_a_zip.py", "ANSWER = 42")
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimporter(archive))
    monkeypatch.syspath_prepend(archive)
    try:
        order_task._ease_next_task()
        assert not [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
        assert gc.get_freeze_count() > 0
        assert __import__("neve_in_a_zip").ANSWER == 42
    finally:
        sys.modules.pop("neve_in_a_zip", None)
        gc.unfreeze()
        order_task._freeze_modules.cache_clear()


@dataclass
class Cluster:
    """A Spark context that runs tasks here and now, fails what it is told to, and remembers its jobs by their groups."""

    poison: frozenset[int] = frozenset()
    attempt: int = 0
    conf: dict[str, str] = field(default_factory=dict)
    jobs: list[list[int]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    master: str = "local[2]"
    pythonExec: str = sys.executable  # noqa: N815 - Spark's name
    defaultParallelism: int = 2  # noqa: N815 - Spark's name

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802 - Spark's name
        assert description == "neve: rewrite"
        self.job_group = group

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        self.cancelled.append(group)

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self.conf

    def parallelize(self, payload: list[tuple[str, Mapping[str, str]]], slices: int) -> Any:
        assert len(payload) == slices
        groups = [WorkOrder.model_validate_json(text).group_id for text, _ in payload]
        self.jobs.append(groups)
        return SimpleNamespace(
            map=lambda task: SimpleNamespace(collect=lambda: self.run(groups, lambda: [task(one) for one in payload]))
        )

    def run(self, groups: list[int], tasks: Callable[[], list[order_task.Answer]]) -> list[order_task.Answer]:
        answers = tasks()  # of a job that fails, too: others may have finished before
        if self.poison & set(groups):
            raise RuntimeError("Python worker exited unexpectedly (crashed)")
        return [(word, text, self.attempt) for word, text, _ in answers]


class SparkItself:
    """The kernel of last resort, which takes everything."""

    def run(self, order: WorkOrder, refusals: tuple[str, ...]) -> WorkResult:
        result = run_order(order, Storage({}))
        return result.model_copy(update={"kernel": Kernel.SPARK, "refusals": refusals})


def engine_on(cluster: Any, storage: Any = None, kernel: Any = None, **more: Any) -> rewrite.SparkEngine:
    active = SimpleNamespace(setActiveSession=lambda session: cluster.active.append(session))
    spark: Any = SimpleNamespace(sparkContext=cluster, _jvm=SimpleNamespace(SparkSession=active), _jsparkSession="session")
    own: Any = kernel or SparkItself()
    return rewrite.SparkEngine(spark, own, storage or {}, **{"max_parallelism": 4} | more)


def some_orders(directory: Path, count: int) -> list[WorkOrder]:
    return [
        make_order(directory, two_files(), group_id=i, order_id=f"o{i}", output_prefix=str(directory / "out" / f"neve-{i}"))
        for i in range(count)
    ]


def test_orders_of_a_job_that_spark_gives_up_run_one_by_one_and_only_the_one_to_blame_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(poison=frozenset({1}))
    engine = engine_on(cluster)
    outcomes = list(engine.run(some_orders(tmp_path, 3)))
    assert cluster.jobs == [[0, 1, 2], [0], [1], [2]]
    crash = "RuntimeError: Python worker exited unexpectedly (crashed)"
    assert outcomes[1] == FailedOrder(group_id=1, reason=crash)
    done = [outcome for outcome in outcomes if isinstance(outcome, WorkResult)]
    assert [outcome.group_id for outcome in done] == [0, 2]
    kept = [Path(output.path).name for outcome in done for output in outcome.outputs]
    assert written(tmp_path) == sorted([*kept, *(Path(path).name for path in engine.unused())])
    assert caplog.messages == [f"3 groups are tried one by one: {crash}"]


def test_a_job_that_was_cancelled_by_ctrl_c_is_not_tried_again_and_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, is_cancelled = Event(), Event()

    class Cancellable(Cluster):
        def run(self, groups: list[int], tasks: Callable[[], list[order_task.Answer]]) -> list[order_task.Answer]:  # noqa: ARG002
            running.set()
            assert is_cancelled.wait(60)
            raise RuntimeError("Job 0 cancelled part of cancelled job group")

        def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
            super().cancelJobGroup(group)
            is_cancelled.set()

    def interrupted(futures: Any) -> Any:  # noqa: ARG001
        assert running.wait(60)
        raise KeyboardInterrupt

    cluster, orders = Cancellable(), some_orders(tmp_path, 3)
    monkeypatch.setattr(rewrite, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(engine_on(cluster).run(orders))
    assert (cluster.jobs, len(cluster.cancelled), caplog.messages) == ([[0, 1, 2]], 1, [])


def test_a_task_that_raises_what_nobody_expected_fails_its_order_alone_with_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(order: WorkOrder, storage: Any) -> WorkResult:
        if order.group_id == 1:
            raise ZeroDivisionError("division by zero")
        return run_order(order, storage)

    monkeypatch.setattr("neve.kernels.orders.run_order", raising)
    outcomes = {outcome.group_id: outcome for outcome in engine_on(Cluster()).run(some_orders(tmp_path, 3))}
    failed = outcomes[1]
    assert isinstance(failed, FailedOrder)
    assert failed.reason == "ZeroDivisionError: division by zero"
    assert failed.traceback is not None
    assert "in raising" in failed.traceback
    assert all(isinstance(outcomes[i], WorkResult) for i in (0, 2))


def test_an_order_that_cannot_even_be_sent_fails_alone(tmp_path: Path) -> None:
    orders = some_orders(tmp_path, 3)
    odd = orders[1].inputs[0].model_copy(update={"constants": {1: "a\ud800"}})  # half a pair of surrogates has no bytes
    orders[1] = orders[1].model_copy(update={"inputs": (odd,)})
    outcomes = {outcome.group_id: outcome for outcome in engine_on(Cluster()).run(orders)}
    failed = outcomes[1]
    assert isinstance(failed, FailedOrder)
    assert failed.traceback is not None
    kept = [outcomes[i] for i in (0, 2)]
    done = [outcome for outcome in kept if isinstance(outcome, WorkResult)]
    assert len(done) == 2
    assert written(tmp_path) == sorted(Path(output.path).name for outcome in done for output in outcome.outputs)


def test_executors_that_turn_out_to_lack_something_leave_the_work_to_spark(tmp_path: Path) -> None:
    class Lacking(Cluster):
        def run(self, groups: list[int], tasks: Callable[[], list[order_task.Answer]]) -> list[order_task.Answer]:  # noqa: ARG002
            raise RuntimeError("ModuleNotFoundError: No module named 'pydantic'")

    outcomes = list(engine_on(cluster := Lacking()).run(some_orders(tmp_path, 2)))
    cure = "set PYSPARK_PYTHON to an interpreter that has it, or send it along"
    reason = f"executors have Python without pydantic; {cure} (docs/guide/cluster.md)"
    assert cluster.jobs == [[0, 1]]
    assert [(o.kernel, o.refusals) for o in outcomes if isinstance(o, WorkResult)] == [(Kernel.SPARK, (reason,))] * 2


def test_threads_have_the_session_as_their_active_one(tmp_path: Path) -> None:
    list(engine_on(cluster := Cluster()).run(some_orders(tmp_path, 1)))
    assert cluster.active == ["session"]


def test_executors_known_to_lack_something_are_sent_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "prepare", lambda _: "executors have no python3")
    outcomes = list(engine_on(cluster := Cluster()).run(some_orders(tmp_path, 2)))
    assert cluster.jobs == []
    assert [o.refusals for o in outcomes if isinstance(o, WorkResult)] == [("executors have no python3",)] * 2


def test_a_group_fails_with_both_reasons_where_spark_cannot_apply_an_explicit_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "prepare", lambda _: "executors have no python3")
    engine = engine_on(Cluster(), spark_declines="row-group-rows 9 was given")
    (outcome,) = engine.run(some_orders(tmp_path, 1))
    assert outcome == FailedOrder(group_id=0, reason="executors have no python3; spark: row-group-rows 9 was given")


@pytest.mark.parametrize(("max_parallelism", "jobs_at_a_time"), [(1, 1), (2, 2), (16, 2)])
def test_no_more_groups_are_in_flight_than_max_parallelism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_parallelism: int, jobs_at_a_time: int
) -> None:
    threads: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, count: int, **more: Any) -> None:
            threads.append(count)
            super().__init__(count, **more)

    monkeypatch.setattr(rewrite, "ThreadPoolExecutor", Pool)
    assert len(list(engine_on(Cluster(), max_parallelism=max_parallelism).run(some_orders(tmp_path, 2)))) == 2
    assert threads == [jobs_at_a_time]


@pytest.mark.parametrize(
    ("properties", "prefix", "reason"),
    [
        ({"s3.sse.type": "kms"}, "s3://b/out/neve-0", "tasks do not implement the storage property s3.sse.type"),
        ({"s3.region": "r"}, "gs://b/out/neve-0", "tasks do not read storage gs"),
        ({}, "abfss://c@a/out/neve-0", "tasks do not read storage abfss"),
    ],
)
def test_what_tasks_could_not_open_goes_to_spark_before_any_is_started(
    tmp_path: Path, properties: dict[str, str], prefix: str, reason: str
) -> None:
    told: list[tuple[str, ...]] = []

    class Listening:
        def run(self, order: WorkOrder, refusals: tuple[str, ...]) -> WorkResult:
            told.append(refusals)
            return run_order(order.model_copy(update={"output_prefix": str(tmp_path / "out" / "spark")}), Storage({}))

    outside, here = some_orders(tmp_path, 2)
    outside = outside.model_copy(update={"output_prefix": prefix})
    list(engine_on(cluster := Cluster(), properties, Listening()).run([outside, here]))
    assert (told, cluster.jobs) == ([(reason,)], [[1]])


def test_storage_that_a_group_does_not_use_is_of_no_matter(tmp_path: Path) -> None:
    properties = {"s3.sse.type": "kms", "gcs.project-id": "p"}
    (outcome,) = engine_on(Cluster(), properties).run(some_orders(tmp_path, 1))
    assert isinstance(outcome, WorkResult)
    assert outcome.kernel is Kernel.COPY


def test_credentials_are_asked_for_before_each_wave_and_their_lack_fails_that_wave_only(tmp_path: Path) -> None:
    asked: list[int] = []

    def storage() -> dict[str, str]:
        asked.append(1)
        if len(asked) == 2:
            raise CatalogUnreachableError("Cannot reach the catalog: 503")
        return {}

    orders = some_orders(tmp_path, 3)
    large = [order.model_copy(update={"inputs": grown(order)}) for order in orders]
    outcomes = list(engine_on(cluster := Cluster(defaultParallelism=1), storage).run(large))
    failed = [outcome.reason for outcome in outcomes if isinstance(outcome, FailedOrder)]
    assert (len(asked), len(cluster.jobs), failed) == (3, 2, ["Cannot reach the catalog: 503"])


def grown(order: WorkOrder) -> tuple[InputFile, ...]:
    """The same files, said to be so large that each order gets a wave of its own."""
    return tuple(file.model_copy(update={"size_bytes": 100 * MIB}) for file in order.inputs)


@pytest.mark.parametrize(("attempt", "conf"), [(1, {}), (0, {"spark.speculation": "true"})])
def test_files_of_attempts_that_lost_are_unused_and_nothing_is_deleted(
    tmp_path: Path, attempt: int, conf: dict[str, str]
) -> None:
    orders = some_orders(tmp_path, 2)
    lose_an_attempt(tmp_path)
    engine = engine_on(Cluster(attempt=attempt, conf=conf))
    outcomes = list(engine.run(orders))
    kept = [Path(output.path).name for o in outcomes if isinstance(o, WorkResult) for output in o.outputs]
    assert len(kept) == 2
    assert written(tmp_path) == sorted([*kept, *LOST])
    assert sorted(Path(path).name for path in engine.unused()) == sorted(LOST)
    assert engine.unused() == []


def test_nothing_is_listed_where_no_attempt_was_lost(tmp_path: Path) -> None:
    lose_an_attempt(tmp_path)
    engine = engine_on(Cluster())
    list(engine.run(some_orders(tmp_path, 1)))
    assert engine.unused() == []
    assert set(LOST) < set(written(tmp_path))


LOST = (".neve-0-x.parquet.partial", "neve-0-y.parquet")


def lose_an_attempt(directory: Path) -> None:
    (directory / "out").mkdir()
    for name in LOST:
        (directory / "out" / name).write_text("half")


def test_leaving_early_cancels_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    running, over = Event(), Event()

    class Slow(Cluster):
        def run(self, groups: list[int], tasks: Callable[[], list[order_task.Answer]]) -> list[order_task.Answer]:
            if groups == [0]:
                return super().run(groups, tasks)
            running.set()
            assert over.wait(60)
            raise RuntimeError("Job cancelled")

        def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
            super().cancelJobGroup(group)
            over.set()

    cluster = Slow(defaultParallelism=1)
    large = [order.model_copy(update={"inputs": grown(order)}) for order in some_orders(tmp_path, 6)]
    outcomes: Any = engine_on(cluster).run(large)
    next(outcomes)
    assert running.wait(60)
    outcomes.close()
    assert cluster.cancelled == [cluster.job_group]
    assert len(cluster.jobs) <= 3


@pytest.fixture
def on_s3(
    s3: S3Endpoint, fault_proxy: Callable[[str], FaultProxy], tmp_path: Path
) -> tuple[WorkOrder, FaultProxy, dict[str, str]]:
    """An order whose files are in a bucket, what stands before it, and the properties that open it."""
    proxy, bucket = fault_proxy(s3.endpoint), f"waves-{uuid4().hex[:8]}"
    keys = {"region": s3.region, "access_key": s3.access_key, "secret_key": s3.secret_key}
    plain = S3FileSystem(endpoint_override=s3.endpoint, allow_bucket_creation=True, **keys)
    plain.create_dir(bucket)
    local = make_order(tmp_path, two_files(), group_id=0)
    for file in local.inputs:
        with plain.open_output_stream(f"{bucket}/{Path(file.path).name}") as stream:
            stream.write(Path(file.path).read_bytes())
    inputs = tuple(file.model_copy(update={"path": f"s3://{bucket}/{Path(file.path).name}"}) for file in local.inputs)
    order = local.model_copy(update={"inputs": inputs, "output_prefix": f"s3://{bucket}/out/neve-0"})
    return order, proxy, {**s3.properties(), "s3.endpoint": proxy.url}


@pytest.mark.stack
def test_credentials_that_are_refused_are_fetched_once_more(on_s3: tuple[WorkOrder, FaultProxy, dict[str, str]]) -> None:
    order, _, properties = on_s3
    fetched = chain([{**properties, "s3.secret-access-key": "of yesterday"}], repeat(properties))
    (outcome,) = engine_on(cluster := Cluster(), lambda: next(fetched)).run([order])
    assert isinstance(outcome, WorkResult)
    assert (outcome.kernel, cluster.jobs) == (Kernel.COPY, [[0], [0]])


@pytest.mark.stack
def test_a_token_that_expires_while_a_wave_runs_is_fetched_once_more(
    on_s3: tuple[WorkOrder, FaultProxy, dict[str, str]],
) -> None:
    order, proxy, properties = on_s3
    # So S3 answers the request for a file's size then: HEAD has no body, hence no reason.
    proxy.faults.add(answer(400, methods="HEAD", path=r"\.parquet", times=1))
    (outcome,) = engine_on(cluster := Cluster(), lambda: properties).run([order])
    assert isinstance(outcome, WorkResult)
    assert (outcome.kernel, cluster.jobs) == (Kernel.COPY, [[0], [0]])


@pytest.mark.stack
def test_credentials_that_stay_refused_fail_the_order_without_being_told(
    on_s3: tuple[WorkOrder, FaultProxy, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    order, _, properties = on_s3
    (outcome,) = engine_on(cluster := Cluster(), {**properties, "s3.secret-access-key": "of yesterday"}).run([order])
    assert isinstance(outcome, FailedOrder)
    assert outcome.reason.startswith(f"Cannot create {order.output_prefix}-")
    assert ": access denied (" in outcome.reason
    assert cluster.jobs == [[0], [0]]
    assert "of yesterday" not in outcome.reason + caplog.text + order.model_dump_json()


@pytest.mark.parametrize(
    ("conf", "memory"),
    [
        ({}, 512 * MIB),
        ({"spark.executor.pyspark.memory": "1g", "spark.executor.cores": "2"}, 128 * MIB),
        ({"spark.executor.pyspark.memory": "2048"}, 256 * MIB),  # in MiB, shared by the cores that there are
        ({"spark.executor.pyspark.memory": "64g", "spark.executor.cores": "4"}, 512 * MIB),
    ],
)
def test_orders_ask_for_no_more_memory_than_the_cluster_gives_to_pythons_tasks(
    tmp_path: Path, conf: dict[str, str], memory: int
) -> None:
    sent: list[int] = []

    class Looking(Cluster):
        def parallelize(self, payload: list[tuple[str, Mapping[str, str]]], slices: int) -> Any:
            sent.extend(WorkOrder.model_validate_json(text).write.memory_bytes for text, _ in payload)
            return super().parallelize(payload, slices)

    list(engine_on(Looking(conf=conf)).run(some_orders(tmp_path, 1)))
    assert sent == [memory]
