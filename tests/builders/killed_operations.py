"""A process that is killed in the middle of many operations: each has its own table and stops at a given point.

Run as a module it is that process: when the last operation has reached its point, it kills its process group, including the
JVM. So one Spark is enough for all of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neve.api import Neve
from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.record import MaintenanceRecord
from neve.operations.requests import OrphansRequest
from neve.settings import load_settings

DAY = 86_400_000
FLAGS = {
    "policy.manifest-min-count": "3",
    "policy.ttl": "60 days",
    "policy.ttl-column": "ts",
    "policy.auto-tags": "daily 7",
    "spark.driver-memory": "1 GB",
}
DOOMED = "run1"
"""The run that wrote down what is settled, purged and restored."""

Record = MaintenanceRecord | UpkeepRecord
OPERATIONS: Mapping[str, Callable[[Neve, str], Record]] = {
    "expire": lambda neve, table: neve.expire(table),
    "orphans": lambda neve, table: neve.orphans(table, OrphansRequest()),
    "settle": lambda neve, table: neve.settle(table, at_once=True),
    "purge": lambda neve, table: neve.purge(table),
    "restore": lambda neve, table: neve.restore(DOOMED, table=table),
    "manifests": lambda neve, table: neve.manifests(table),
    "stats": lambda neve, table: neve.stats(table),
    "tags": lambda neve, table: neve.tags(table),
    "ttl": lambda neve, table: neve.ttl(table, enforce=True),
    "prevent": lambda neve, table: neve.prevent(table, apply=True),
    "deletes": lambda neve, table: neve.deletes(table, "rewrite"),
}


class Ahead:
    """A clock that is some days ahead of the machine's."""

    def __init__(self, days: float) -> None:
        self.days = days

    def now_ms(self) -> int:
        return int(time.time() * 1000 + self.days * DAY)


def open_neve(warehouse: Path, state: Path, clock: Ahead) -> Neve:
    # Other modules left tables in the warehouse, some of them broken on purpose.
    declared = {"orphans.exclusive-prefixes": str(warehouse)}
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}", **declared, **FLAGS})
    return Neve.open(settings, warehouse=str(warehouse), environ={}, clock=clock)


def kill_all(warehouse: Path, state: Path, days: float, points: Mapping[str, str], tables: Mapping[str, str]) -> None:
    """Runs every operation on its table up to its point, and kills the process there; returns when nothing of it runs."""
    asked = json.dumps({"points": dict(points), "tables": dict(tables)})
    command = [sys.executable, "-m", __name__, str(warehouse), str(state), str(days), asked]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as child:
        try:
            told, _ = child.communicate(timeout=500)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    assert child.returncode == -signal.SIGKILL, told


def main() -> None:
    warehouse, state, days, asked = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
    _take_orphans_one_by_one()
    with open_neve(warehouse, state, Ahead(days)) as neve:
        for operation, table in asked["tables"].items():
            stands = threading.Event()
            _stop_at(asked["points"][operation], operation, stands)
            ended: list[object] = []

            def run(operation: str = operation, table: str = table, ended: list[object] = ended) -> None:
                try:
                    ended.append(OPERATIONS[operation](neve, table))
                except BaseException as error:
                    ended.append(error)

            threading.Thread(target=run, name=operation, daemon=True).start()
            while not stands.wait(0.01):
                if ended:
                    sys.exit(f"{operation} was not killed but gave {ended[0]!r}: {ended[0]}")
        os.killpg(0, signal.SIGKILL)


def _take_orphans_one_by_one() -> None:
    from neve.operations import remove_orphans

    remove_orphans._BATCH = 1


def _stop_at(point: str, operation: str, stands: threading.Event) -> None:
    """`before StateStore.finish_run 2` is before the second such call by this operation; `half` does the first item alone."""
    moment, method, *number = point.split()
    owner, name = _adapters()[method.split(".")[0]], method.split(".")[1]
    real, left = getattr(owner, name), [int(number[0]) if number else 1]

    def stop() -> None:
        stands.set()
        threading.Event().wait()

    def stopping(*args: Any, **words: Any) -> Any:
        if threading.current_thread().name != operation:
            return real(*args, **words)
        left[0] -= 1
        if not left[0] and moment == "before":
            stop()
        if not left[0] and moment == "half":
            args = (args[0], args[1][:1], *args[2:])
        answer = real(*args, **words)
        if not left[0]:
            stop()
        return answer

    setattr(owner, name, stopping)


def _adapters() -> dict[str, Any]:
    from neve.catalogs.entries import PlainEntry
    from neve.spark.maintenance.expiry import SparkSnapshotRemoval
    from neve.spark.maintenance.manifests import SparkManifests
    from neve.spark.maintenance.statistics import SparkStatistics
    from neve.spark.maintenance.tags import SparkTags
    from neve.spark.maintenance.ttl import SparkPastRows
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore
    from neve.storage.moves import StoredFiles

    adapters = (
        TableBridge,
        PlainEntry,
        SparkSnapshotRemoval,
        SparkManifests,
        SparkStatistics,
        SparkTags,
        SparkPastRows,
        StateStore,
        StoredFiles,
    )
    return {adapter.__name__: adapter for adapter in adapters}


if __name__ == "__main__":
    main()
