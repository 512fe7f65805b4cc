"""The observer over catalogs with a server: how many requests a round sends, who takes turns, and what failures cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.catalogs import rest
from neve.context.connection import Connection
from neve.scheduling.observation import Inspected, Observation
from neve.service.catalog_listing import RELIST_MS
from neve.service.fleet_round import ObserverBounds
from tests.builders.registered_fleet import HOUR, SECOND, Watch, watching
from tests.builders.rest_fleet import RestFleet, rest_fleet

BUDGET = 20
BOUNDS = ObserverBounds(catalog_requests=BUDGET, inspections=0, threads=4)
ATTEMPTS = 4
"""How often a read is sent to a server that answers 503."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repetitions follow without a wait."""
    monkeypatch.setattr(rest._CountedRetries, "get_backoff_time", lambda _: 0)


@pytest.fixture
def server() -> Iterator[RestFleet]:
    with rest_fleet() as running:
        yield running


@pytest.fixture
def watch(tmp_path: Path, server: RestFleet) -> Iterator[Watch]:
    with watching(tmp_path, {"lake": server.settings}, bounds=BOUNDS) as opened:
        yield opened


def test_all_tables_are_seen_in_turns_within_the_budget(server: RestFleet, watch: Watch) -> None:
    server.add(*(f"db.t{number:02}" for number in range(50)))
    reads = []
    for _ in range(5):
        report = watch.round()
        assert report.requests == {"lake": server.sent()}
        assert report.requests["lake"] <= BUDGET
        reads.append(report.read)
    assert reads[0] == BUDGET - 4  # config, root, and the namespaces and tables of one namespace
    assert reads[1:] == [BUDGET] * 4
    assert len(watch.tables) == 50


def test_a_change_is_noticed_within_one_turn_of_all(server: RestFleet, watch: Watch) -> None:
    server.add(*(f"db.t{number:02}" for number in range(50)))
    for _ in range(4):
        watch.round(after_ms=HOUR)
    server.commit("db.t49", commits=4)
    rounds = next(number for number in range(1, 10) if watch.round() and watch.commits("lake.db.t49"))
    assert rounds <= 50 // BUDGET + 1
    assert watch.commits("lake.db.t49") == 3


def test_a_hint_or_a_run_makes_a_table_the_first_to_be_read(server: RestFleet, watch: Watch) -> None:
    server.add(*(f"db.t{number:03}" for number in range(200)))
    for _ in range(11):
        watch.round()
    assert len(watch.tables) == 200
    for name in ("t000", "t199"):
        server.commit(f"db.{name}", commits=3)
    watch.store.fleet.hint("lake.db.t199", watch.clock.now_ms() + 1)
    watch.round(wanted=("lake.db.t000",))
    assert [watch.commits(f"lake.db.{name}") for name in ("t000", "t199")] == [2, 2]


def test_listings_of_many_pages_count_each_page(server: RestFleet, watch: Watch) -> None:
    server.page_size = 7
    server.add(*(f"db.t{number:02}" for number in range(50)))
    report = watch.round()
    assert report.requests == {"lake": server.sent()}
    assert (report.tables, report.requests["lake"], report.read) == (50, BUDGET, BUDGET - 1 - 1 - 1 - 8)


def test_namespaces_of_several_levels_are_listed_in_turns(server: RestFleet, watch: Watch) -> None:
    server.add(*(f"a.b{number}.t" for number in range(20)), "a.t")
    found = []
    for _ in range(8):
        report = watch.round()
        assert report.requests["lake"] == server.sent() <= BUDGET
        found.append(report.tables)
    assert found == sorted(found)
    assert len(watch.tables) == 21


def test_tables_and_namespaces_that_are_dropped_vanish_when_they_are_listed_again(server: RestFleet, watch: Watch) -> None:
    server.add("a.one", "a.two", "b.c.three")
    watch.round()
    server.drop("a.two")
    del server.tables["b", "c"], server.tables[("b",)]
    assert watch.round(after_ms=RELIST_MS).vanished == 2
    assert watch.tables.keys() == {"lake.a.one"}
    server.add("a.two")
    watch.round(after_ms=RELIST_MS)
    assert watch.tables.keys() == {"lake.a.one", "lake.a.two"}


def test_a_dropped_table_is_noticed_when_it_is_read(server: RestFleet, watch: Watch) -> None:
    server.add("a.one", "a.two")
    watch.round()
    server.drop("a.two")
    assert watch.round().troubles.keys() == {"lake.a.two"}
    assert watch.round().vanished == 1
    assert (watch.tables.keys(), watch.troubles) == ({"lake.a.one"}, {})


def test_a_renamed_table_keeps_its_counters(server: RestFleet, watch: Watch) -> None:
    server.add("a.one")
    watch.round()
    server.commit("a.one", commits=6)
    watch.round()
    server.tables["a",]["other"] = server.tables["a",].pop("one")
    watch.round(after_ms=RELIST_MS)
    assert watch.tables.keys() == {"lake.a.other"}
    assert watch.commits("lake.a.other") == 5


def test_a_namespace_without_permission_stops_no_other(server: RestFleet, watch: Watch) -> None:
    server.add("a.one", "secret.two", "z.three")
    server.refused.add("secret")
    watch.round()
    assert watch.tables.keys() == {"lake.a.one", "lake.z.three"}
    assert watch.troubles.keys() == {"lake.secret"}
    assert "access denied" in watch.troubles["lake.secret"]
    server.refused.clear()
    assert watch.round(after_ms=HOUR).troubles == {}
    assert (watch.tables.keys(), watch.troubles) == ({"lake.a.one", "lake.secret.two", "lake.z.three"}, {})


def test_losing_the_permission_for_a_namespace_keeps_its_tables(server: RestFleet, watch: Watch) -> None:
    server.add("a.one", "secret.two")
    watch.round()
    server.refused.add("secret")
    for _ in range(4):
        assert watch.round(after_ms=RELIST_MS).vanished == 0
    assert watch.tables.keys() == {"lake.a.one", "lake.secret.two"}
    del server.tables["secret",]
    watch.round(after_ms=HOUR)
    assert (watch.tables.keys(), watch.troubles) == ({"lake.a.one"}, {})


def test_one_namespace_that_always_fails_starves_no_other(server: RestFleet, watch: Watch) -> None:
    server.add("a.one", "b.two", "c.three")
    server.failing.add("/namespaces/b/")
    for _ in range(3):
        watch.round(after_ms=RELIST_MS)
    assert watch.tables.keys() == {"lake.a.one", "lake.c.three"}
    assert watch.troubles.keys() == {"lake.b"}
    server.drop("a.one")
    server.add("a.four")
    watch.round(after_ms=RELIST_MS)
    assert watch.tables.keys() == {"lake.a.four", "lake.c.three"}


@pytest.mark.parametrize("begin_away", [False, True])
def test_a_server_that_fails_costs_few_requests_and_loses_no_table(
    server: RestFleet, watch: Watch, *, begin_away: bool
) -> None:
    server.add(*(f"n{number}.t" for number in range(40)))
    if not begin_away:
        for _ in range(20):
            watch.round()
    known = watch.tables.keys()
    server.failing.add("/")
    server.sent()
    sent = []
    for _ in range(40):
        report = watch.round(after_ms=90 * SECOND)
        assert report.vanished == 0
        sent.append(server.sent())
        assert report.requests["lake"] == sent[-1]
    assert max(sent) <= BUDGET + ATTEMPTS * (2 * BOUNDS.threads + 1)
    assert sum(1 for number in sent if number) <= 8
    assert watch.tables.keys() == known
    server.failing.clear()
    for _ in range(20):
        watch.round(after_ms=HOUR)
    assert (len(watch.tables), watch.troubles) == (40, {})


def test_a_server_that_cannot_be_reached_is_asked_seldom(server: RestFleet, tmp_path: Path) -> None:
    from stack.ports import free_ports

    (port,) = free_ports(1)
    server.add("db.t")
    away = {"type": "rest", "uri": f"http://127.0.0.1:{port}", "timeout": "2 s"}
    with watching(tmp_path, {"away": away, "lake": server.settings}, bounds=BOUNDS) as watch:
        asked = [report for _ in range(20) if (report := watch.round()).troubles]
        assert [set(report.troubles) for report in asked] == [{"away"}] * 4
        assert {report.requests["away"] for report in asked} == {ATTEMPTS}
        assert watch.tables.keys() == {"lake.db.t"}


def test_a_table_that_fails_now_and_then_does_not_break_the_budget_by_its_repetitions(server: RestFleet, watch: Watch) -> None:
    server.add(*(f"db.t{number:02}" for number in range(40)))
    server.failing.update(f"/tables/t{number:02}" for number in range(0, 40, 2))
    for _ in range(3):
        report = watch.round()
        sent = server.sent()
        assert report.requests["lake"] == sent
        assert sent <= BUDGET + (ATTEMPTS - 1) * (2 * BOUNDS.threads + 1)


def test_a_budget_of_one_request_reaches_every_table(server: RestFleet, tmp_path: Path) -> None:
    server.add("db.a", "db.b", "db.c")
    bounds = ObserverBounds(catalog_requests=1, inspections=20)
    with watching(tmp_path, {"lake": server.settings}, bounds=bounds) as watch:
        for _ in range(3):  # what it takes to list anything may exceed it
            assert watch.round().requests["lake"] == server.sent() <= 2
        for _ in range(3):
            assert watch.round().requests["lake"] == server.sent() == 1
        assert len(watch.tables) == 3


def test_names_with_dots_are_trouble_and_take_no_other_table_s_place(server: RestFleet, watch: Watch) -> None:
    server.add("a.b.t")
    server.tables["a.b",] = dict(server.tables["a", "b"])
    for _ in range(2):
        watch.round(after_ms=RELIST_MS)
        assert watch.tables.keys() == {"lake.a.b.t"}
        assert watch.troubles.keys() == {"lake.`a.b`.`t`"}


@pytest.mark.parametrize("jump_ms", [-30 * 24 * HOUR, 30 * 24 * HOUR])
def test_a_clock_that_jumps_stops_neither_listing_nor_turns(server: RestFleet, watch: Watch, jump_ms: int) -> None:
    server.add(*(f"db.t{number:02}" for number in range(30)))
    for _ in range(3):
        watch.round()
    watch.clock.advance(jump_ms)
    server.add("db.new")
    server.commit("db.t00", commits=3)
    for _ in range(4):
        watch.round()
    assert len(watch.tables) == 31
    assert watch.commits("lake.db.t00") == 2


def test_inspections_have_a_part_of_the_budget(server: RestFleet, tmp_path: Path) -> None:
    server.add(*(f"db.t{number:02}" for number in range(60)), commits=3, file_bytes=10)
    bounds = ObserverBounds(catalog_requests=BUDGET, inspections=8)

    inspected = list[str]()

    def load(connection: Connection, table: Observation, now_ms: int) -> Inspected:
        connection.catalog("lake").load(connection.name(table.table))
        inspected.append(table.table)
        return Inspected(
            snapshot_id=table.snapshot_id,
            inspected_ms=now_ms,
            health=50,
            data_files=3,
            data_bytes=30,
            small_files=3,
            small_bytes=30,
            delete_files=0,
        )

    with watching(tmp_path, {"lake": server.settings}, bounds=bounds, inspect=load) as watch:
        for number in range(4):
            report = watch.round(after_ms=10 * SECOND)
            assert report.requests["lake"] == server.sent() <= BUDGET
            assert report.read == (BUDGET - 5 if number else BUDGET - 5 - 4)
            assert len(report.inspected) == 5
    assert len(inspected) == len(set(inspected)) == 20
