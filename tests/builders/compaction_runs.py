"""Compactions of tables in memory, in one process or on two hosts, and the journal that they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from neve.commit import lease as lease_module
from neve.commit import takeover as takeover_module
from neve.commit.lease_terms import LEASE_MS
from neve.commit.owner import Owner
from neve.errors import LeaseHeldError
from neve.operations import rewrite_run as module
from neve.operations.execute import work_orders
from neve.operations.resume import resume
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.work_order import WorkResult
from neve.state import StateStore
from tests.builders.commit_scenes import SPECS, tools_of
from tests.builders.contexts import compact
from tests.builders.fake_tables import FakeEngine, FakeTable, FakeWriter, Still, plan_of


@dataclass
class Notes:
    """A journal on paper."""

    begun: list[JournaledRun] = field(default_factory=list)
    results: dict[int, WorkResult] = field(default_factory=dict)
    states: dict[int, GroupState] = field(default_factory=dict)
    prefixes: dict[int, str] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)

    def begin(self, run: JournaledRun) -> None:
        self.begun.append(run)

    def take_over(self, run_id: str, **words: object) -> JournaledRun:  # noqa: ARG002
        return self.found()

    def pause(self, run_id: str) -> None:
        self.paused.append(run_id)

    def redone(self, run_id: str, prefixes: Mapping[int, str]) -> None:  # noqa: ARG002
        self.prefixes |= prefixes

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:  # noqa: ARG002
        self.results |= {result.group_id: result for result in results}

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:  # noqa: ARG002
        self.states |= states

    def landed_before(self, table_uuid: str, prefixes: Iterable[str]) -> Mapping[str, RunRecord]:  # noqa: ARG002
        return {}

    def found(self) -> JournaledRun:
        """The run as the next process finds it."""
        groups = tuple(
            JournaledGroup(
                group_id=group.group_id,
                output_prefix=group.output_prefix,
                state=self.states.get(
                    group.group_id, GroupState.WRITTEN if group.group_id in self.results else GroupState.PLANNED
                ),
                result=self.results.get(group.group_id),
            )
            for group in self.begun[0].groups
        )
        return self.begun[0].model_copy(update={"groups": groups})


def two_partitions() -> FakeTable:
    table = FakeTable()
    for row, partition in enumerate("aabb"):
        table.append(row, partition=partition)
    return table


def results_of(table: FakeTable, engine: FakeEngine) -> list[WorkResult]:
    writer = FakeWriter(table)
    live = {file.path: file for file in writer.scan(engine.plan.snapshot_id)}
    orders = work_orders(engine.plan, engine.plan.groups, live, writer, SPECS)
    return [result for result in engine.run(orders) if isinstance(result, WorkResult)]


class Late:
    """A clock that is past every heartbeat that began by `Still`."""

    def now_ms(self) -> int:
        return Still().now_ms() + LEASE_MS + 1


@contextmanager
def another_process(owner: Owner) -> Iterator[None]:
    """Inside, the flow takes itself for another process, which knows nothing of what this one is at work on."""
    with pytest.MonkeyPatch.context() as patch:
        for place in (lease_module, module, takeover_module):
            patch.setattr(place, "this_process", lambda: owner)
        patch.setattr(lease_module, "_at_work", set())
        yield


ELSEWHERE = Owner("otherhost", 7, boot="other", namespaces="other", started="1", nonce="other")


class Stalling(FakeWriter):
    """Something happens before the table is loaded for the first time again."""

    def __init__(self, table: FakeTable, strike: Callable[[], None]) -> None:
        super().__init__(table)
        self.strikes = [strike]

    def refresh(self) -> None:
        if self.strikes:
            self.strikes.pop()()
        super().refresh()


@dataclass
class TwoHosts:
    """A run that stands still before its first commit, while another host that shares its state store tries to resume it."""

    table: FakeTable = field(default_factory=two_partitions)
    stall: str = "written"
    """Before anything is journaled as written, before the commit is judged, or when it is sent."""
    refused: str = ""

    def __post_init__(self) -> None:
        self.plan = plan_of(self.table)
        self.engines = [FakeEngine(self.table, self.plan), FakeEngine(self.table, self.plan)]
        self.ours = StateStore.open("sqlite://")
        self.theirs = StateStore(self.ours._engine)
        self.records: list[RunRecord] = []

    def run(self) -> None:
        writer: FakeWriter = Stalling(self.table, self.resumed_elsewhere) if self.stall == "refresh" else FakeWriter(self.table)
        if self.stall == "rewrite":
            writer.before_rewrite = [self.resumed_elsewhere]
        elif self.stall == "written":
            self.engines[0].after_last = self.resumed_elsewhere
        compact(self.plan, self.tools(writer, 0, self.ours))

    def tools(self, writer: FakeWriter, number: int, store: StateStore) -> Any:
        return replace(tools_of(writer, self.engines[number]), journal=store, leases=store)

    def resumed_elsewhere(self) -> None:
        (found,) = self.theirs.unfinished()
        tools = self.tools(FakeWriter(self.table), 1, self.theirs)
        with another_process(ELSEWHERE):
            with pytest.raises(LeaseHeldError) as refused:
                resume(found, tools)
            self.refused = str(refused.value)
            self.records.append(resume(found, replace(tools, clock=Late())))

    def assert_whole(self) -> None:
        assert self.table.visible() == [0, 1, 2, 3]
        assert [engine.quarantine.paths for engine in self.engines] == [[], []]


def compact_partition(table: FakeTable, partition: str) -> None:
    """Somebody else rewrites the files of a partition."""
    table.compact(*(path for path, file in table.now.data.items() if file.partition == partition))


def compacted(table: FakeTable) -> RunRecord:
    plan = plan_of(table)
    return compact(plan, tools_of(FakeWriter(table), FakeEngine(table, plan)))


def small_table() -> FakeTable:
    table = FakeTable()
    for i in range(4):
        table.append(i, partition="a")
    return table
