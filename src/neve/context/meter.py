"""Measures what a request uses: requests that are counted, and CPU time of this process, of Spark's JVM and of its workers.

Made by `TableContext` when a request begins and read when its record is made. It measures whole processes, so requests that run
at the same time include each other's use.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.kernels import request_counts
from neve.rewrite.cost import Rates
from neve.rewrite.usage import CpuSeconds, Requests, Used

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.rewrite.record import GroupRecord
    from neve.spark.runtime.cpu import SparkCpu

_COUNTED_CATALOGS = frozenset({"sql", "rest", "nessie"})


class Meter:
    """What is used from now on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests, self._python = request_counts.counts(), _python_seconds()
        self._spark, self._spark_uses = _spark_cpu(connection), connection.session_uses

    def used(self, catalog: str, groups: Sequence[GroupRecord] = ()) -> Used:
        """What was used so far, by a request to a table of this catalog that rewrote these groups."""
        settings = self._connection.settings.cost
        rates = Rates(
            core_hour=settings.core_hour, thousand_reads=settings.thousand_reads, thousand_writes=settings.thousand_writes
        )
        return Used.at(rates, self._requests_since(catalog, groups), self._cpu_since(groups), prices=settings.version)

    def _requests_since(self, catalog: str, groups: Sequence[GroupRecord]) -> Requests:
        described = self._connection.described.get(catalog)
        in_tasks = [group.requests for group in groups if group.requests is not None]
        uses_spark = self._connection.session_uses > self._spark_uses
        uncounted = ["jvm"] if uses_spark else []
        uncounted += ["workers"] if uses_spark and (not groups or len(in_tasks) < len(groups)) else []
        uncounted += [] if described is not None and described.type in _COUNTED_CATALOGS else ["catalog"]
        return Requests.of([request_counts.since(self._requests), *in_tasks], uncounted)

    def _cpu_since(self, groups: Sequence[GroupRecord]) -> CpuSeconds:
        python, now = _rounded(_python_seconds() - self._python), _spark_cpu(self._connection)
        if now is None:
            return CpuSeconds(python=python, jvm=0.0, workers=0.0)
        before = self._spark or _before_the_start(self._connection)
        jvm, workers = _difference(now.jvm, before.jvm), _difference(now.workers, before.workers)
        return CpuSeconds(python=python, jvm=jvm, workers=_in_groups(groups) if workers is None else workers)


def _python_seconds() -> float:
    """CPU time of this process and of those that it has waited for."""
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in found)


def _spark_cpu(connection: Connection) -> SparkCpu | None:
    """None if Spark is not running."""
    if connection.session is None:
        return None
    from neve.spark.runtime.cpu import spark_cpu

    return spark_cpu(connection.session)


def _before_the_start(connection: Connection) -> SparkCpu:
    """A JVM that was started since has its whole time; its children until then were those that started it."""
    from neve.spark.runtime.cpu import SparkCpu

    return SparkCpu(0.0, connection.session_cpu.workers if connection.session_cpu is not None else None)


def _in_groups(groups: Sequence[GroupRecord]) -> float | None:
    """CPU time of the tasks that rewrote groups; None unless all of them were measured."""
    measured = [group.cpu_seconds for group in groups if group.cpu_seconds is not None]
    return _rounded(sum(measured)) if groups and len(measured) == len(groups) else None


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else _rounded(now - before)


def _rounded(seconds: float) -> float:
    return round(max(0.0, seconds), 3)
