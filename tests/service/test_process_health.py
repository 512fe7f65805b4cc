"""When a worker process should be replaced: its Spark is dead, it has done enough, or it has grown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from neve.service import process_health
from neve.service.process_health import is_spark_dead, reason_to_leave
from neve.settings import ServiceSettings

Spark = Callable[..., None]


def fails() -> bool:
    raise ConnectionError("the JVM does not answer")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    """A PySpark whose JVM has this exit code, with a context that says this of itself if there is one."""

    def put(code: int | None, has_stopped: Callable[[], bool] | None) -> None:
        context: Any = None
        if has_stopped is not None:
            scala = SimpleNamespace(isStopped=has_stopped)
            context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))
        gateway = SimpleNamespace(proc=SimpleNamespace(poll=lambda: code))
        made = SimpleNamespace(_gateway=gateway, _active_spark_context=context)
        monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=made))

    return put


@pytest.mark.parametrize(
    ("code", "has_stopped", "is_dead"),
    [
        (None, None, False),
        (None, lambda: False, False),
        (None, lambda: True, True),
        (None, fails, True),
        (137, None, True),
        (137, lambda: False, True),
    ],
)
def test_spark_is_dead_if_its_jvm_ended_or_its_context_was_stopped(
    spark: Spark, code: int | None, has_stopped: Callable[[], bool] | None, is_dead: bool
) -> None:
    spark(code, has_stopped)
    assert is_spark_dead() is is_dead
    assert (reason_to_leave(ServiceSettings(), 0) == "its Spark has ended") is is_dead


def test_a_process_without_spark_has_no_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert not is_spark_dead()


def test_a_worker_leaves_after_so_many_jobs_or_when_it_has_grown_but_not_before_its_first(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark(None, None)
    monkeypatch.setattr(process_health, "memory_bytes", lambda: 7 * 2**30)
    settings = ServiceSettings()
    assert reason_to_leave(settings, 0) is None
    assert reason_to_leave(settings, 1) == "it has grown to 7 GB (max-worker-memory is 6 GB)"
    assert reason_to_leave(settings, settings.max_worker_jobs) == "it has done 500 jobs"
