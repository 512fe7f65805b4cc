"""Weeks of a table's life under one strategy: writers write, passes maintain, readers ask, all by a simulated clock.

Called by `bench/simulate.py`. Passes call the real planner; what its plans would do is carried out on metadata at once, so that
no commit ever conflicts. The same workload and seed bring the same writes and queries whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge

import numpy as np

from bench.simulation.prices import COMMIT_SECONDS, COMMIT_WRITES, PASS_SECONDS, Cost, cost, metadata_cost
from bench.simulation.querying import ask, delete_opens
from bench.simulation.rewriting import calibration, carry_out
from bench.simulation.table import DAY_MS, HOUR_MS, SECOND_MS, Table, number_of
from bench.simulation.workloads import Workload
from bench.simulation.writing import begin, write
from neve.policy.model import Policy
from neve.rewrite.cost import Rates
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, bounds_wanted, plan
from neve.table.files import DATA

START_MS = 1_767_571_200_000
"""A Monday, at midnight."""
LOOK_MS = HOUR_MS // 2
NOTHING = "nothing"
"""No maintenance at all, to compare with."""


@dataclass
class Life:
    """What a table cost by day, and what became of it."""

    workload: str
    strategy: str
    seed: int
    days: int
    maintenance: list[Cost] = field(default_factory=list)
    queries: list[Cost] = field(default_factory=list)
    runs: int = 0
    rewritten_bytes: int = 0
    files: list[int] = field(default_factory=list)
    deletes: list[int] = field(default_factory=list)

    @property
    def money(self) -> float:
        """All that was spent."""
        return sum(c.money for c in (*self.maintenance, *self.queries))


@dataclass(frozen=True)
class Strategy:
    """A name and the policy it stands for; `policy` is None where nobody maintains the table."""

    name: str
    policy: Mapping[str, object] | None = None

    @classmethod
    def named(cls, name: str, knobs: Mapping[str, object] | None = None) -> Strategy:
        """One of the planner's strategies, or `nothing`."""
        return cls(name, None if name == NOTHING else {"strategy": name, **(knobs or {})})


def known(workload: Workload) -> dict[str, object]:
    """What the owner of such a table tells the planner: the table's properties, and how often it is asked."""
    own = {key.removeprefix("neve."): value for key, value in workload.properties.items() if key.startswith("neve.")}
    return {"reads-per-day": sum(query.per_day for query in workload.queries), **own, **workload.policy}


def live(workload: Workload, strategy: Strategy, *, seed: int, days: int, every_seconds: float = 3600) -> Life:
    """So many days; a pass comes every so many seconds."""
    simulation = _Simulation(workload, strategy, seed, days)
    for now_ms, _, event in _events(workload, seed, days, int(every_seconds * SECOND_MS)):
        simulation.happen(event, now_ms)
    return simulation.life


_ASK, _PASS = -1, -2
"""Events that are not the commit of a writer, which are known by the writer's number."""


def _events(workload: Workload, seed: int, days: int, pass_ms: int) -> Iterator[tuple[int, int, int]]:
    """In the order of time; at the same moment writers come before passes."""
    end = START_MS + days * DAY_MS
    streams: list[Iterator[tuple[int, int, int]]] = [
        # In the middle of each half hour: passes are on the hour, and readers come at all times.
        ((now, 2, _ASK) for now in range(START_MS + LOOK_MS // 2, end, LOOK_MS)),
        ((now, 1, _PASS) for now in range(START_MS + pass_ms, end + 1, pass_ms)),
    ]
    streams += [_commits(workload, i, seed, end) for i in range(len(workload.writes))]
    return merge(*streams)


def _commits(workload: Workload, writer: int, seed: int, end: int) -> Iterator[tuple[int, int, int]]:
    """A writer's commits, up to a tenth of its interval late."""
    kind = workload.writes[writer]
    every = int(kind.every * SECOND_MS)
    rng = np.random.default_rng([seed, writer, 1])
    first = START_MS + int(kind.at * SECOND_MS) + (0 if kind.at else every)
    return ((now + int(rng.integers(0, every // 10 + 1)), 0, writer) for now in range(first, end - every // 10, every))


class _Simulation:
    def __init__(self, workload: Workload, strategy: Strategy, seed: int, days: int) -> None:
        self.life = Life(workload.name, strategy.name, seed, days)
        self._workload, self._learned, self._rates = workload, calibration(), Rates()
        self._table = Table(workload)
        self._commits = 0
        for start in workload.start:
            begin(self._table, start, now_ms=START_MS, rng=self._chance())
        self._policy = None if strategy.policy is None else Policy.model_validate({**known(workload), **strategy.policy})
        self._day = -1

    def happen(self, event: int, now_ms: int) -> None:
        self._turn_page(now_ms)
        if event >= 0:
            write(self._table, self._workload.writes[event], now_ms=now_ms, rng=self._chance())
        elif not self._table.snapshots:
            return
        elif event == _PASS and self._policy is not None:
            self._maintain(self._policy, now_ms)
        elif event == _ASK:
            for query in self._workload.queries:
                asked = query.per_day * LOOK_MS / DAY_MS
                self.life.queries[-1] += ask(self._table, query, self._rates, now_ms=now_ms) * asked
            data = self._table.files["content"] == DATA
            self.life.files[-1], self.life.deletes[-1] = int(data.sum()), int((~data).sum())

    def _chance(self) -> np.random.Generator:
        """A generator for each commit: how much one commit uses may hang on the strategy, and must not change the next."""
        self._commits += 1
        return np.random.default_rng([self.life.seed, self._commits])

    def _turn_page(self, now_ms: int) -> None:
        day = min((now_ms - START_MS - 1) // DAY_MS, self.life.days - 1)
        while self._day < day:
            self._day += 1
            self.life.maintenance.append(Cost())
            self.life.queries.append(Cost())
            if self._table.snapshots:
                self._table.expire(now_ms)
            self.life.files.append(0)
            self.life.deletes.append(0)

    def _maintain(self, policy: Policy, now_ms: int) -> None:
        wanted = bounds_wanted(self._table.state(), policy)
        state = self._table.state(files=True, bounds=wanted)
        planned = plan(state, policy, now_ms=now_ms, memory=self._table.memory(), request=Request(rates=self._rates))
        spent = metadata_cost(self._rates, len(self._table.files["number"]), seconds=PASS_SECONDS)
        if len(planned.groups):
            spent += self._run_price(planned)
            carry_out(self._table, planned, state.specs, self._learned, now_ms=now_ms)
            self.life.runs += 1
            self.life.rewritten_bytes += planned.price.read_bytes
        self.life.maintenance[-1] += spent

    def _run_price(self, planned: Plan) -> Cost:
        """The plan's own price, deletes that are read, and the commit."""
        own, files = planned.price, self._table.files
        spent = Cost(core_seconds=own.core_seconds, requests=own.requests, money=own.money)
        chosen = np.isin(files["number"], [number_of(path) for path in planned.files.table.column("path").to_pylist()])
        deletes = float(delete_opens(files, chosen.astype(np.float64)).sum())
        return spent + cost(self._rates, core_seconds=COMMIT_SECONDS, reads=deletes, writes=COMMIT_WRITES)
