"""A table in memory with delete files, and the delete-file maintenance of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neve.commit.protocol import COMMIT_ID
from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.operations.delete_files import maintain_deletes
from neve.operations.requests import DeletesRequest
from neve.table.state import TableName
from tests.builders.commit_scenes import SPECS
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import (
    Answer,
    FakeDeletes,
    FakeEngine,
    FakeResolver,
    FakeTable,
    FakeWriter,
    Kind,
    Still,
    plan_of,
)

NAME = TableName(catalog="local", namespace=("db",), name="t")
Strike = Callable[[], object]


@dataclass
class Scene:
    """A table of two partitions; in each rows are deleted by position and by equality."""

    version: int = 3
    attempts: int = 5
    stages: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    while_waiting: Strike = lambda: None

    def __post_init__(self) -> None:
        self.table = FakeTable(format_version=self.version)
        self.table.properties["commit.retry.num-retries"] = str(self.attempts - 1)
        self.a = [self.table.append(1, 2, 3, partition="a"), self.table.append(4, 5, 6, partition="a")]
        self.b = self.table.append(7, 8, 9, partition="b")
        self.table.delete_positions(self.a[0], 1)
        self.table.delete_equal(2, 5, partition="a")
        self.table.delete_equal(8, partition="b")
        self.rows = self.table.visible()

    def run(
        self, operation: Upkeep = Upkeep.CONVERT, *answers: Answer, dry_run: bool = False, before: Sequence[Strike] = ()
    ) -> UpkeepRecord:
        self.writer = FakeWriter(self.table, *answers, before_rewrite=before)
        return self.again(operation, dry_run=dry_run)

    def again(self, operation: Upkeep = Upkeep.CONVERT, *, dry_run: bool = False) -> UpkeepRecord:
        self.engine = FakeEngine(self.table, plan_of(self.table))
        self.deletes, self.resolver = FakeDeletes(self.table), FakeResolver(self.table)
        context: Any = FakeContext(
            name=NAME,
            uuid="uuid",
            writer=self.writer,
            engine=self.engine,
            specs=SPECS,
            clock=Still(),
            sleep=self.wait,
            progress=lambda stage, done, total, unit="": self.stages.append(stage),  # noqa: ARG005
            deletes=self.deletes,
            resolver=self.resolver,
            quarantine=self.engine.quarantine,
        )
        return maintain_deletes(context, DeletesRequest(operation, dry_run=dry_run))

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.while_waiting()

    def kinds(self) -> list[tuple[Kind, str | None, list[int]]]:
        """What is deleted how, of all deletes that the table has."""
        deletes = self.table.now.deletes.values()
        return sorted((d.kind, d.target, sorted(d.rows)) for d in deletes)

    def ours(self) -> list[int]:
        """Snapshots that an upkeep committed."""
        return [i for i, version in self.table.history.items() if COMMIT_ID in version.summary]

    def unused(self) -> set[str]:
        """Files that were written for deletes and are in no snapshot."""
        named = {key[0] for version in self.table.history.values() for key in version.deletes}
        return {key[0] for key in self.table.delete_contents if key[0] not in named}


NESTED_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {
            "id": 9,
            "name": "s",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 1, "name": "k", "required": False, "type": "long"}]},
        }
    ],
}
