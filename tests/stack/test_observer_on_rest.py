"""The observer over a real REST catalog, counted by a proxy before it: rounds keep to their budget, also when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from neve.service.fleet_round import ObservedRound, ObserverBounds
from neve.service.inspect_table import inspect_table
from stack.endpoints import RestEndpoint
from stack.proxy import FaultProxy, answer, drop
from tests.builders.registered_fleet import HOUR, Watch, watching

pytestmark = pytest.mark.stack

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
BUDGET = 25
TABLES = 40
ATTEMPTS = 4
"""How often a read is sent to a server that answers 503."""
BOUNDS = ObserverBounds(catalog_requests=BUDGET, inspections=4, threads=4)
_TURNS = BUDGET - BOUNDS.inspection_requests


@pytest.fixture
def catalog(rest: RestEndpoint) -> Catalog:
    """The catalog, past Neve. Other tests may have left tables there."""
    return load_catalog("lake", **rest.properties())


@pytest.fixture
def namespace(catalog: Catalog) -> str:
    """A namespace with tables, one of which has many small files."""
    name = f"observed_{uuid4().hex[:12]}"
    catalog.create_namespace(name)
    for number in range(TABLES):
        catalog.create_table(f"{name}.t{number:02}", schema=ROWS.schema)
    small = catalog.load_table(f"{name}.t07")
    for _ in range(3):
        small.append(ROWS)
    return name


@pytest.fixture
def proxy(rest: RestEndpoint, fault_proxy: Callable[[str], FaultProxy]) -> FaultProxy:
    return fault_proxy(rest.uri)


@pytest.fixture
def watch(tmp_path: Path, proxy: FaultProxy, rest: RestEndpoint, namespace: str) -> Iterator[Watch]:  # noqa: ARG001 - its tables
    assert rest.s3 is not None
    keys = {"access-key-id": rest.s3.access_key, "secret-access-key": "${env:TEST_SECRET}"}
    storage = {"s3": {"endpoint": rest.s3.endpoint, "region": rest.s3.region, "path-style-access": True, **keys}}
    described = {"type": "rest", "uri": proxy.url, "timeout": "5 s", "storage": storage}
    environ = {"TEST_SECRET": rest.s3.secret_key}
    with watching(tmp_path, {"lake": described}, environ=environ, bounds=BOUNDS, inspect=inspect_table) as opened:
        opened.clock.advance(10**12)  # tables are written by the machine's clock
        yield opened


def observed(watch: Watch, proxy: FaultProxy, *, after_ms: int = 30_000) -> tuple[ObservedRound, int]:
    """The next round, and how many requests the proxy saw."""
    proxy.requests.clear()
    report = watch.round(after_ms=after_ms)
    return report, proxy.requests.count()


def all_seen(watch: Watch, proxy: FaultProxy, namespace: str) -> list[tuple[ObservedRound, int]]:
    """Rounds until all tables of the namespace are known."""
    rounds = []
    while sum(name.startswith(f"lake.{namespace}.") for name in watch.tables) < TABLES:
        rounds.append(observed(watch, proxy))
        assert len(rounds) < 100
    return rounds


def test_rounds_keep_to_their_budget_and_reach_every_table(watch: Watch, proxy: FaultProxy, namespace: str) -> None:
    rounds = all_seen(watch, proxy, namespace)
    for report, sent in rounds:
        assert report.requests == {"lake": sent}
        assert sent <= BUDGET
        assert len(report.inspected) <= BOUNDS.inspections
    # While namespaces are listed, that takes up to half of a round, and one request more.
    listed = sum(1 for report, sent in rounds if sent - report.read - len(report.inspected) > 0)
    tables = rounds[-1][0].tables
    assert len(rounds) <= listed + -(-tables // _TURNS) + 1


def test_a_change_is_noticed_when_its_turn_comes(watch: Watch, proxy: FaultProxy, namespace: str, catalog: Catalog) -> None:
    all_seen(watch, proxy, namespace)
    for _ in range(3):
        observed(watch, proxy, after_ms=HOUR)
    catalog.load_table(f"{namespace}.t30").append(ROWS)
    tables = observed(watch, proxy)[0].tables
    rounds = 1
    while not watch.commits(f"lake.{namespace}.t30"):
        rounds += 1
        report, sent = observed(watch, proxy)
        assert report.requests == {"lake": sent}
        # Tables that were written lately have up to 4 turns while others have one.
        assert rounds <= 4 * (tables // _TURNS + 2)


def test_the_table_with_small_files_is_inspected_and_no_other(watch: Watch, proxy: FaultProxy, namespace: str) -> None:
    rounds = all_seen(watch, proxy, namespace)
    inspected = {name for report, _ in rounds for name in report.inspected if name.startswith(f"lake.{namespace}.")}
    found = watch.tables[f"lake.{namespace}.t07"].inspected
    if found is None:
        inspected |= observed(watch, proxy)[0].inspected.keys()
        found = watch.tables[f"lake.{namespace}.t07"].inspected
    assert found is not None
    assert (found.data_files, found.small_files) == (3, 3)
    assert {name for name in inspected if namespace in name} == {f"lake.{namespace}.t07"}


@pytest.mark.parametrize("fault", [answer(503), drop()], ids=["answers 503", "closes connections"])
def test_a_server_that_fails_costs_few_requests(watch: Watch, proxy: FaultProxy, namespace: str, fault: object) -> None:
    all_seen(watch, proxy, namespace)
    known = watch.tables.keys()
    proxy.faults.add(fault)  # type: ignore[arg-type]
    rounds = [observed(watch, proxy) for _ in range(20)]
    for report, sent in rounds:
        assert report.vanished == 0
        assert report.requests == {"lake": sent}
        assert sent <= BUDGET + ATTEMPTS * (2 * BOUNDS.threads + 1)
    assert sum(1 for _, sent in rounds if sent) <= 5
    proxy.faults.clear()
    observed(watch, proxy, after_ms=HOUR)
    assert known <= watch.tables.keys()
