"""What a search for orphans takes in the driver alone: the tasks are elsewhere, on a cluster of one worker.

Run by `bench/maintenance.py`, once for each size and contender. Python's memory is its resident size; the heap is what
collecting garbage leaves, asked for every second while the search goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from bench.cluster import catalog_conf, limited, measured
from bench.maintenance_parts import OrphanHunt, called, found
from bench.rewrite import CATALOG
from neve.spark.runtime.session import open_session

OURS, THEIRS = "neve orphans", "remove_orphan_files"
_SAMPLE_SECONDS = 0.1
_SAMPLES_PER_COLLECTION = 10


def driver_memory(work: Path, hunt: OrphanHunt, contender: str) -> dict[str, Any]:
    """`python_bytes` and `heap_bytes`, the most of each, and how many orphans were found."""
    command = [sys.executable, "-m", "bench.driver_memory", "--work", str(work.resolve()), "--listed", str(hunt.listed)]
    return measured(command, contender, work=work, timeout=1_800)


class Watched(threading.Thread):
    """Use as a context manager around what a driver does."""

    def __init__(self, jvm: Any) -> None:
        super().__init__(daemon=True)
        self._jvm, self._ended = jvm, threading.Event()
        self.python_bytes = self.heap_bytes = 0

    def run(self) -> None:
        """Until the end of the block."""
        me, number = psutil.Process(), 0
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.python_bytes = max(self.python_bytes, me.memory_info().rss)
            number += 1
            if number % _SAMPLES_PER_COLLECTION == 0:
                self._collect()

    def _collect(self) -> None:
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        self.heap_bytes = max(self.heap_bytes, runtime.totalMemory() - runtime.freeMemory())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self.join()
        self._collect()


def main() -> int:
    """In a driver of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--listed", type=int, required=True)
    parser.add_argument("--contender", choices=[OURS, THEIRS], required=True)
    parser.add_argument("--master", required=True)
    options = parser.parse_args()
    conf = {key.replace(".lake", f".{CATALOG}"): value for key, value in catalog_conf(options.work / "warehouse").items()}
    with open_session(limited(options.master), catalog_conf=conf, needs=["sqlite"], app_name="memory") as spark:
        print(json.dumps(_watched(spark, options)))
    return 0


def _watched(spark: Any, options: argparse.Namespace) -> dict[str, Any]:
    import neve

    listing = (f"bench.known{options.listed}", str(options.work / f"listed{options.listed}.parquet"))
    settings = {"state.url": f"sqlite:///{options.work}/memory.db"}
    with neve.connect(spark=spark, settings=settings) as place, Watched(spark._jvm) as watched:
        orphans = found(place, *listing) if options.contender == OURS else called(spark, *listing)
    return {
        "outcome": "completed",
        "orphans": len(orphans),
        "python_bytes": watched.python_bytes,
        "heap_bytes": watched.heap_bytes,
    }


if __name__ == "__main__":
    sys.exit(main())
