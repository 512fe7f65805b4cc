"""A table in memory with written groups that are ready to commit, and the tools to commit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neve.commit.batch import BatchOutcome
from neve.commit.late_deletes import WrittenGroup
from neve.commit.rewrite_files import Committer
from neve.rewrite.plan import Plan
from neve.table.state import PartitionField, PartitionSpec
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import (
    Answer,
    FakeEngine,
    FakeTable,
    FakeWriter,
    Still,
    plan_of,
    write_groups,
)

SPECS = (PartitionSpec(spec_id=0, fields=(PartitionField(name="p", transform="identity", source_id=2, field_id=1000),)),)


def tools_of(writer: FakeWriter, engine: FakeEngine) -> Any:
    return FakeContext(
        writer=writer, engine=engine, specs=SPECS, clock=Still(), sleep=lambda _: None, quarantine=engine.quarantine
    )


@dataclass
class Scene:
    """A table with two partitions, one group written in each, and a file that no group names."""

    table: FakeTable = field(default_factory=FakeTable)
    spare: bool = True
    waits: list[float] = field(default_factory=list)
    while_waiting: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.first = [self.table.append(1, 2, partition="a"), self.table.append(3, 4, partition="a")]
        self.second = [self.table.append(5, 6, partition="b"), self.table.append(7, 8, partition="b")]
        self.other = self.table.append(9, partition="a") if self.spare else None
        self.plan: Plan = plan_of(self.table)
        planned = FakeWriter(self.table)
        self.planned = {file.path: file for file in planned.scan(planned.head())}
        self.groups: list[WrittenGroup] = write_groups(self.table, self.plan, {0: self.first, 1: self.second})

    def commit(self, *answers: Answer, **hooks: Sequence[Callable[[], object]]) -> BatchOutcome:
        self.writer = FakeWriter(self.table, *answers, **hooks)
        return self.run()

    def run(self) -> BatchOutcome:
        committer = Committer(
            self.plan, self.writer, self.planned, run_id="r", clock=Still(), sleep=self.wait, jitter=lambda: 1.0
        )
        return committer.commit(self.groups)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.while_waiting()

    def outputs(self, group: int) -> set[str]:
        return self.groups[group].output_paths

    @property
    def live(self) -> set[str]:
        return set(self.table.now.data)


ALL_ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9]
