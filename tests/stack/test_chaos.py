"""Compactions while the catalog and the storage fail at random, before and after they did their work: nothing is ever lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from stack.endpoints import RestEndpoint, S3Endpoint
from stack.proxy import FaultProxy, answer, cut, cut_upload, delay, drop, drop_answer
from tests.builders.s3_contents import objects, referenced
from tests.builders.spark_driver import Driver, at_rest, write_settings
from tests.builders.table_contents import data_files

pytestmark = pytest.mark.stack

SEED = int(os.environ.get("CHAOS_SEED") or SystemRandom().randrange(10**6))
KERNELS = ("arrow", "copy", "spark")
FILES, ROWS, SHOPS = 4, 6_000, 2
TRIES = 5
"""How often a person repeats what failed before calling it broken."""

SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("text", pa.string())])

# Two in a hundred requests are late. Together the faults of the catalog hit 10 %, those of the storage 5 % of the requests.
DELAYS = (delay(0.2, share=0.012), delay(1, share=0.006), delay(5, share=0.002))
CATALOG = (drop(share=0.0345), answer(503, share=0.0345), drop_answer(share=0.0345), *DELAYS)
STORAGE = (*(fault(share=0.0102) for fault in (drop, drop_answer, cut, cut_upload)), answer(503, share=0.0102), *DELAYS)


@dataclass
class Chaos:
    """A table that is written past the proxies, and compacted through them."""

    table: Table
    driver: Driver
    random: Random
    rows: pa.Table = field(default_factory=SCHEMA.empty_table)
    failures: list[str] = field(default_factory=list)

    def append(self) -> None:
        for _ in range(FILES):
            ids = range(len(self.rows), len(self.rows) + ROWS)
            texts = [f"{self.random.getrandbits(256):x}" for _ in ids]
            part = pa.table({"id": ids, "shop": [f"shop {i % SHOPS}" for i in ids], "text": texts}, schema=SCHEMA)
            self.table.append(part)
            self.rows = pa.concat_tables([self.rows, part])

    def content(self) -> pa.Table:
        """Every row by pyiceberg, past the proxies."""
        return self.table.refresh().scan().to_arrow().sort_by("id").cast(SCHEMA)

    def compact(self, kernel: str) -> None:
        """As a person would: what was interrupted is resumed, what failed is done again."""
        for _ in range(TRIES):
            answered = self.driver.ask("compact", table=".".join(self.table.name()), kernel=kernel)
            if answered.get("outcome") in ("done", "nothing-to-do"):
                return
            self._note(answered)
            resumed = self.driver.ask("resume")
            if "error" in resumed:
                self._note(resumed)
        pytest.fail(f"not committed after {TRIES} tries: {self.failures[-TRIES:]}")

    def in_doubt(self) -> set[str]:
        """The files that the journal leaves to a later look."""
        records = self.driver.ask("runs", table=".".join(self.table.name()))
        groups = [group for record in records for group in record["groups"] if group["state"] == "in-doubt"]
        return {output["path"] for group in groups for output in group["outputs"]}

    def quarantined(self) -> set[str]:
        """The files that were written and never committed."""
        return set(self.driver.ask("quarantined", table=".".join(self.table.name())))

    def _note(self, answered: dict[str, Any]) -> None:
        if "error" in answered:
            assert answered["retryable"], answered
            self.failures.append(answered["error"])
        else:
            self.failures += [group["reason"] for group in answered["groups"] if group["state"] != "committed"]


Proxies = tuple[FaultProxy, FaultProxy]


@pytest.fixture(scope="module")
def fronts(rest: RestEndpoint, s3: S3Endpoint) -> Iterator[Proxies]:
    """Before the catalog and before the storage."""
    with FaultProxy(rest.uri, seed=SEED) as catalog, FaultProxy(s3.endpoint, seed=SEED + 1) as storage:
        yield catalog, storage


@pytest.fixture(scope="module")
def driver(rest: RestEndpoint, s3: S3Endpoint, fronts: Proxies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    catalog, storage = fronts
    settings = write_settings(tmp_path_factory.mktemp("chaos"), at_rest(rest, catalog.url), s3, storage_url=storage.url)
    with Driver(settings, s3) as started:
        started.sql("SELECT 1")  # Spark itself starts in peace
        yield started


@pytest.fixture
def proxies(fronts: Proxies) -> Iterator[Proxies]:
    yield fronts
    for proxy in fronts:
        proxy.faults.clear()
        proxy.requests.clear()


@pytest.fixture
def chaos(rest: RestEndpoint, driver: Driver) -> Chaos:
    catalog = load_catalog("lake", **rest.properties())
    namespace = f"chaos_{uuid4().hex[:12]}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.t", schema=SCHEMA)
    with table.update_spec() as update:
        update.add_field("shop", IdentityTransform())
    return Chaos(table, driver, Random(SEED))


def test_a_catalog_that_goes_away_after_the_plan_is_an_error_that_may_pass(chaos: Chaos, proxies: Proxies) -> None:
    chaos.append()
    gone = proxies[0].faults.add(drop(path=r"/tables/t$", skip=1))
    answered = chaos.driver.ask("compact", table=".".join(chaos.table.name()))
    assert proxies[0].faults.hits(gone) > 0
    assert answered["error"].startswith("CatalogUnreachableError: Cannot "), answered
    proxies[0].faults.clear()
    chaos.compact("arrow")
    assert chaos.content().equals(chaos.rows)


@pytest.mark.parametrize("runs", [5, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_every_compaction_ends_committed_and_nothing_is_lost(runs: int, chaos: Chaos, proxies: Proxies, s3: S3Endpoint) -> None:
    print(f"CHAOS_SEED={SEED}")
    catalog, storage = proxies
    commit = {"methods": "POST", "path": r"/tables/t$", "times": 1}
    lost = [catalog.faults.add(drop_answer(skip=1, **commit)), catalog.faults.add(answer(503, skip=4, **commit))]
    for proxy, faults in ((catalog, CATALOG), (storage, STORAGE)):
        for fault in faults:
            proxy.faults.add(fault)
    for number in range(runs):
        chaos.append()
        chaos.compact(KERNELS[number % len(KERNELS)])
        assert chaos.content().equals(chaos.rows)
        assert len(data_files(chaos.table)) == SHOPS
    assert [catalog.faults.hits(number) for number in lost] == [1, 1]
    for proxy in proxies:
        proxy.faults.clear()
    explained = referenced(chaos.table) | chaos.in_doubt() | chaos.quarantined()
    assert objects(s3, f"{chaos.table.location()}/data") - explained == set()
    for name, proxy in (("catalog", catalog), ("storage", storage)):
        print(name, dict(Counter(request.fault for request in proxy.requests.recent())))
    print(f"{runs} compactions, {len(chaos.failures)} times something was repeated:", *chaos.failures, sep="\n  ")
