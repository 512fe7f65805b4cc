"""A table with orphan files in its directory, and the orphan removal of it. pyiceberg writes and reads it."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from neve.api import Neve
from neve.maintenance.orphans import OrphanRecord
from neve.operations.requests import OrphansRequest
from tests.builders.quarantine_lists import ListedQuarantine
from tests.builders.spark_tables import Bench

DAY = 86400
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "_day", StringType(), required=False))
BY_DAY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="_day"))


@dataclass
class Yard:
    """One table, its directory, and what is done about orphans in it."""

    bench: Bench
    neve: Neve
    quarantine: ListedQuarantine
    home: Path

    @property
    def name(self) -> str:
        return f"{self.bench.namespace}.{self.bench.name}"

    def create(self, properties: dict[str, str] | None = None, spec: PartitionSpec | None = None) -> None:
        with closing(self.bench.catalog()) as catalog:
            words: dict[str, Any] = {"partition_spec": spec} if spec is not None else {}
            catalog.create_table(
                (self.bench.namespace, self.bench.name), SCHEMA, str(self.home), properties=properties or {}, **words
            )

    def load(self) -> Table:
        return self.bench.load()

    def append(self, start: int, stop: int, **words: Any) -> None:
        with closing(self.bench.catalog()) as catalog:
            ids = list(range(start, stop))
            rows = pa.table({"id": ids, "_day": ["monday"] * len(ids)})
            catalog.load_table((self.bench.namespace, self.bench.name)).append(rows, **words)

    def plant(self, relative: str, *, days: float = 10, content: bytes = b"PAR1") -> str:
        """A file that nobody knows of."""
        path = self.home / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        moment = time.time() - days * DAY
        os.utime(path, (moment, moment))
        return str(path)

    def age(self, days: float = 10) -> None:
        """Everything that is there becomes old, so that age protects nothing."""
        moment = time.time() - days * DAY
        for path in self.home.rglob("*"):
            os.utime(path, (moment, moment))

    def run(self, **asked: Any) -> OrphanRecord:
        return self.neve.orphans(self.name, OrphansRequest(**asked))

    def found(self, **asked: Any) -> list[str]:
        """Orphans of a dry run, as paths relative to the table."""
        record = self.run(dry_run=True, **asked)
        return [file.path.removeprefix(f"{self.home}/") for file in record.files]

    def sweep(self) -> None:
        """The worst that can come of what was recorded: it is gone."""
        for path in self.quarantine.files:
            Path(path).unlink()

    def reads(self) -> dict[str, list[int]]:
        """The ids of every snapshot and ref as pyiceberg reads them, and of the head as DuckDB does."""
        table = self.load()
        versions = {name: ref.snapshot_id for name, ref in table.metadata.refs.items()}
        versions |= {str(snapshot.snapshot_id): snapshot.snapshot_id for snapshot in table.snapshots()}
        found = {name: sorted(table.scan(snapshot_id=i).to_arrow()["id"].to_pylist()) for name, i in versions.items()}
        assert len(self.bench.duckdb()) == len(found["main"])
        return found
