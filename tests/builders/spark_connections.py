"""Opens Neve on the tests' Spark session, and lists manifests and their entries with pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestEntryStatus

from neve.api import Neve
from neve.settings import load_settings
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Moved:
    """A clock that stands where a test puts it."""

    def __init__(self, now_ms: int = 10**13) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


@contextmanager
def opened(spark: SparkSession, warehouse: Path, state: Path, *, clock: Any = None, **flags: str) -> Iterator[Neve]:
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}", **flags})
    with Neve.open(settings, warehouse=str(warehouse), environ={}, clock=clock) as neve:
        neve.connection.session = spark
        yield neve


def entries(bench: Bench) -> list[tuple[Any, ...]]:
    """Every live entry of the current snapshot as pyiceberg reads it: path, numbers, who added it, partition, rows, bounds."""
    table = bench.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.status is ManifestEntryStatus.DELETED:
                continue
            file = entry.data_file
            numbers = (entry.sequence_number, entry.file_sequence_number, entry.snapshot_id, file.record_count)
            found.append((file.file_path, *numbers, repr(file.partition), repr(file.lower_bounds), file.file_size_in_bytes))
    return sorted(found)


def manifest_paths(bench: Bench) -> list[str]:
    table = bench.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
