"""The observer over SQL catalogs: what it reads, what it counts, and what it makes of tables that come, go and break."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from neve.catalogs import fleet_catalog
from neve.scheduling.observation import Counters
from tests.builders.registered_fleet import DAY, HOUR, MINUTE, RegisteredFleet, Watch, document, watching


@pytest.fixture
def lake(tmp_path: Path) -> RegisteredFleet:
    return RegisteredFleet(tmp_path)


@pytest.fixture
def watch(tmp_path: Path, lake: RegisteredFleet) -> Iterator[Watch]:
    with watching(tmp_path, {"lake": lake.settings}) as opened:
        yield opened


def test_a_table_is_read_once_for_each_metadata_file(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a", "db.b")
    first = watch.round()
    assert (first.tables, first.read, first.requests) == (2, 2, {"lake": 1})
    lake.commit("db.a", commits=2)
    assert [watch.round().read for _ in range(2)] == [1, 0]
    assert watch.tables["lake.db.a"].metadata_location == lake.location("db.a")
    assert watch.tables["lake.db.a"].snapshot_id == 2


def test_a_database_that_sqlalchemy_opens_is_listed_alike(tmp_path: Path, lake: RegisteredFleet) -> None:
    lake.add("db.a", "a.b.t")
    lake.add("db.view", kind="VIEW")
    described = lake.settings | {"uri": f"{lake.settings['uri']}?timeout=5"}
    with watching(tmp_path, {"lake": described}) as watch:
        assert [watch.round().read for _ in range(2)] == [2, 0]
        assert watch.tables.keys() == {"lake.db.a", "lake.a.b.t"}
        lake.drop("db.a")
        lake.commit("a.b.t", commits=2)
        assert (watch.round().read, watch.commits("lake.a.b.t")) == (1, 1)


def test_unchanged_tables_need_no_file(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a", "db.b")
    watch.round()
    for name in ("db.a", "db.b"):
        lake.file(name).unlink()
    later = watch.round()
    assert (later.tables, later.read, later.troubles, later.waiting) == (2, 0, {}, 0)
    watch.restart()
    assert watch.round().read == 0


def test_counters_grow_with_the_commits_of_others(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a", commits=7)
    watch.round()
    assert watch.tables["lake.db.a"].counters == Counters()
    lake.commit("db.a", commits=9, files=2, file_bytes=10)
    watch.round()
    assert watch.tables["lake.db.a"].counters == Counters(commits=2, bytes_added=40, files_added=4)
    lake.commit("db.a", commits=10, files=2, file_bytes=10)
    watch.restart()
    watch.round()
    assert watch.tables["lake.db.a"].counters == Counters(commits=3, bytes_added=60, files_added=6)


def test_a_dropped_table_vanishes_and_comes_back_with_its_counters(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a", "db.b")
    watch.round()
    lake.commit("db.a", commits=3)
    watch.round()
    location = lake.location("db.a")
    lake.drop("db.a")
    assert watch.round().vanished == 1
    assert watch.round().vanished == 0
    assert watch.tables.keys() == {"lake.db.b"}
    watch.restart()
    lake.add_row("db", "a", location)
    watch.round()
    assert watch.commits("lake.db.a") == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_a_renamed_table_keeps_its_counters(lake: RegisteredFleet, watch: Watch, *, restarted: bool) -> None:
    lake.add("db.a")
    watch.round()
    lake.commit("db.a", commits=3)
    watch.round()
    lake.rename("db.a", "other.b")
    if restarted:
        watch.restart()
    later = watch.round()
    assert (later.vanished, later.read) == (1, 1)
    assert watch.tables.keys() == {"lake.other.b"}
    assert watch.commits("lake.other.b") == 2


def test_tables_that_swap_their_names_keep_their_counters(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a", "db.b")
    watch.round()
    lake.commit("db.a", commits=5)
    watch.round()
    for old, new in (("db.a", "db.x"), ("db.b", "db.a"), ("db.x", "db.b")):
        lake.rename(old, new)
    assert watch.round().vanished == 0
    assert (watch.commits("lake.db.a"), watch.commits("lake.db.b")) == (0, 4)


def test_a_table_made_again_under_the_same_name_starts_from_scratch(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a")
    watch.round()
    lake.commit("db.a", commits=3)
    watch.round()
    watch.store.fleet.hint("lake.db.a", watch.clock.now_ms())
    before = watch.tables["lake.db.a"].uuid
    lake.drop("db.a")
    lake.add("db.a", commits=8)
    later = watch.round()
    found = watch.tables["lake.db.a"]
    assert (later.vanished, found.counters, found.hinted_ms) == (0, Counters(), None)
    assert found.uuid != before


@pytest.mark.parametrize("content", ["{", "", "[]", "{}", json.dumps(document("x" * 65)), json.dumps(document("a\0b"))])
def test_broken_metadata_is_trouble_of_its_table_alone_until_it_is_replaced(
    lake: RegisteredFleet, watch: Watch, content: str
) -> None:
    lake.add("db.a", "db.b")
    watch.round()
    broken = lake.directory / "broken.metadata.json"
    broken.write_text(content, encoding="utf-8")
    lake.point("db.a", f"file://{broken}")
    lake.commit("db.b", commits=2)
    assert watch.round().read == 1
    assert watch.troubles.keys() == {"lake.db.a"}
    assert watch.tables["lake.db.a"].snapshot_id == 1
    lake.point("db.a", lake.write(watch.tables["lake.db.a"].uuid, commits=3))
    watch.round()
    assert watch.troubles == {}
    assert watch.commits("lake.db.a") == 2


def test_a_missing_metadata_file_is_tried_again_after_growing_waits(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a")
    file = lake.file("db.a")
    content = file.read_text(encoding="utf-8")
    file.unlink()
    tried = [minute for minute in range(20) if watch.round(after_ms=MINUTE).troubles]
    assert tried == [0, 1, 3, 7, 15]
    assert "missing" in watch.troubles["lake.db.a"]
    file.write_text(content, encoding="utf-8")
    watch.round(after_ms=HOUR)
    assert (watch.tables.keys(), watch.troubles) == ({"lake.db.a"}, {})


def test_views_are_left_out_and_rows_without_a_type_are_tables(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.table")
    lake.add("db.old", kind=None)
    lake.add("db.view", kind="VIEW")
    assert watch.round().tables == 2
    assert watch.tables.keys() == {"lake.db.table", "lake.db.old"}


def test_a_database_without_the_column_of_types_is_read(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.a")
    with closing(sqlite3.connect(lake.database)) as connection, connection:
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    assert watch.round().read == 1


def test_namespaces_have_levels_in_one_text(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("a.b.c.t", "a.b.t", "a.t")
    watch.round()
    assert watch.tables.keys() == {"lake.a.b.c.t", "lake.a.b.t", "lake.a.t"}


def test_of_two_names_that_look_the_same_the_one_that_commands_reach_is_observed(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add_row("a", "b.t", lake.write("dotted", commits=9))
    lake.add("a.b.t", uuid="plain")
    for _ in range(2):
        watch.round()
        assert watch.tables["lake.a.b.t"].uuid == "plain"
        assert watch.troubles.keys() == {"lake.`a`.`b.t`"}
    with closing(sqlite3.connect(lake.database)) as connection, connection:
        connection.execute("DELETE FROM iceberg_tables WHERE table_name = 'b.t'")
    assert watch.round().vanished == 0
    assert watch.troubles == {}


def test_names_that_no_command_can_write_are_trouble_of_their_own(lake: RegisteredFleet, watch: Watch) -> None:
    lake.add("db.good")
    for namespace, name in ((".dot", "t"), (" db", "t"), ("db", "a\0b"), (b"db", b"odd \xff"), (b"\xfe", b"t"), ("db", "")):
        lake.add_row(namespace, name, lake.location("db.good"))
    watch.round()
    assert watch.tables.keys() == {"lake.db.good"}
    assert watch.troubles.keys() == {
        "lake.``.`dot`.`t`",
        "lake.` db`.`t`",
        "lake.`db`.`ab`",
        "lake.`db`.`odd ?`",
        "lake.`?`.`t`",
        "lake.`db`.``",
    }
    lake.commit("db.good", commits=2)
    assert watch.round().read == 1


def test_a_catalog_that_is_away_loses_no_table_and_returns(lake: RegisteredFleet, watch: Watch, tmp_path: Path) -> None:
    lake.add("db.a", "db.b")
    watch.round()
    lake.database.rename(tmp_path / "away.db")
    away = watch.round()
    assert (away.vanished, away.troubles.keys()) == (0, {"lake"})
    assert watch.round().troubles == {}  # it is not asked again so soon
    assert watch.tables.keys() == {"lake.db.a", "lake.db.b"}
    assert watch.troubles.keys() == {"lake"}
    (tmp_path / "away.db").rename(lake.database)
    lake.commit("db.a", commits=2)
    assert watch.round(after_ms=HOUR).read == 1
    assert watch.troubles == {}
    assert watch.commits("lake.db.a") == 1


def test_a_locked_database_is_away(lake: RegisteredFleet, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_catalog, "_WAIT_SECONDS", 0)
    lake.add("db.a")
    watch.round()
    with closing(sqlite3.connect(lake.database, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert "locked" in watch.round().troubles["lake"]
        writer.execute("ROLLBACK")
    assert (watch.round(after_ms=HOUR).tables, watch.troubles) == (1, {})


def test_a_broken_catalog_does_not_stop_another_one(tmp_path: Path) -> None:
    good, bad = RegisteredFleet(tmp_path, "good"), RegisteredFleet(tmp_path, "bad")
    good.add("db.a")
    bad.add("db.a")
    bad.database.write_bytes(b"no database" * 100)
    with watching(tmp_path, {"bad": bad.settings, "good": good.settings}) as watch:
        report = watch.round()
        assert (report.troubles.keys(), report.tables, report.read) == ({"bad"}, 1, 1)
        assert watch.tables.keys() == {"good.db.a"}


def test_catalogs_whose_names_begin_alike_keep_their_tables(tmp_path: Path) -> None:
    fleets = [RegisteredFleet(tmp_path, name) for name in ("lake", "lake2")]
    for fleet in fleets:
        fleet.add("db.a")
    with watching(tmp_path, {fleet.name: fleet.settings for fleet in fleets}) as watch:
        assert [watch.round().vanished for _ in range(2)] == [0, 0]
        assert watch.tables.keys() == {"lake.db.a", "lake2.db.a"}


@pytest.mark.parametrize("jump_ms", [-30 * DAY, 30 * DAY])
def test_a_clock_that_jumps_stops_nothing(lake: RegisteredFleet, watch: Watch, jump_ms: int) -> None:
    lake.add("db.a", "db.b")
    lake.file("db.b").unlink()
    watch.round()
    lake.commit("db.a", commits=2)
    lake.point("db.b", lake.write("b", commits=1))
    assert watch.round(after_ms=jump_ms).read == 2
    lake.commit("db.a", commits=3)
    assert watch.round(after_ms=-jump_ms).read == 1
    assert watch.commits("lake.db.a") == 2


def test_more_changes_than_a_round_may_read_take_turns(tmp_path: Path, lake: RegisteredFleet) -> None:
    from neve.service.fleet_round import ObserverBounds

    lake.add(*(f"db.t{number}" for number in range(10)))
    with watching(tmp_path, {"lake": lake.settings}, bounds=ObserverBounds(metadata_files=4, inspections=0)) as watch:
        assert [(one.read, one.waiting) for one in (watch.round() for _ in range(4))] == [(4, 6), (4, 2), (2, 0), (0, 0)]


def test_thousands_of_tables_take_little_memory(tmp_path: Path, lake: RegisteredFleet) -> None:
    """Documents are let go as soon as they are read: with 60 snapshots each, all of them would take 100 MB and more."""
    import tracemalloc

    lake.add("db.t")
    location = lake.write("same", commits=60)
    with closing(sqlite3.connect(lake.database)) as connection, connection:
        rows = [("lake", f"ns{number % 20}", f"t{number}", location) for number in range(3_000)]
        connection.executemany("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')", rows)
    with watching(tmp_path, {"lake": lake.settings}) as watch:
        tracemalloc.start()
        try:
            assert watch.round().read == 3_001
            assert watch.round().read == 0
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 30_000_000
