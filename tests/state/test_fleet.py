"""The fleet: observations, troubles, tables that vanish and come back, hints of writers, and the history of health."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from neve.scheduling.job import JobState
from neve.scheduling.observation import Observation
from neve.state import StateStore, schema
from neve.state.fleet import FleetEntry, HealthEntry
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW, counters, decision, inspected, observation


def names(entries: tuple[FleetEntry, ...]) -> list[str]:
    return [entry.table.removeprefix("lake.db.") for entry in entries]


def entry(store: StateStore, table: str = "a") -> FleetEntry:
    found = store.fleet.entry(f"lake.db.{table}")
    assert found is not None
    return found


def seen(store: StateStore, table: str = "a") -> Observation:
    found = entry(store, table).observation
    assert found is not None
    return found


def test_an_observation_comes_back_as_it_was(store: StateStore) -> None:
    whole = observation(
        properties={"write.format.default": "parquet"},
        snapshot_id=2**62,
        counters=counters(4),
        inspected=inspected(),
        total_bytes=2**50,
    )
    store.fleet.record([whole])
    assert entry(store) == FleetEntry(
        table="lake.db.a", catalog="lake", observed_ms=NOW, table_uuid="uuid-a", observation=whole
    )
    assert store.fleet.entry("lake.db.other") is None


def test_a_newer_observation_replaces_the_older_and_of_two_in_one_batch_the_last_counts(store: StateStore) -> None:
    store.fleet.record([observation(), observation("b")])
    store.fleet.record([observation(data_files=1), observation(data_files=2, observed_ms=NOW + 1)])
    assert (seen(store).data_files, seen(store).observed_ms) == (2, NOW + 1)
    assert seen(store, "b") == observation("b")
    store.fleet.record([])
    assert names(store.fleet.entries()) == ["a", "b"]


def test_many_tables_are_recorded_together(store: StateStore) -> None:
    tables = [f"t{number:04}" for number in range(1_201)]
    store.fleet.record(observation(table) for table in reversed(tables))
    assert names(store.fleet.entries()) == tables
    store.fleet.vanish([f"lake.db.{table}" for table in tables[1:]], NOW)
    assert names(store.fleet.entries()) == tables[:1]
    assert len(store.fleet.by_uuid([f"uuid-{table}" for table in tables])) == 1_201


def test_a_table_that_had_not_changed_is_touched(store: StateStore) -> None:
    store.fleet.record([observation(), observation("b")])
    store.fleet.record_trouble({"lake.db.a": "403"}, NOW)
    store.fleet.touch(["lake.db.a", "lake.db.none"], NOW + HOUR)
    assert (entry(store).observed_ms, entry(store).trouble, entry(store, "b").observed_ms) == (NOW + HOUR, None, NOW)
    assert seen(store) == observation(observed_ms=NOW + HOUR)


def test_a_table_in_trouble_keeps_what_was_known_until_it_is_observed_again(store: StateStore) -> None:
    store.fleet.record([observation(data_files=3)])
    store.fleet.record_trouble({"lake.db.a": "Cannot read\0 its metadata"}, NOW + HOUR)
    assert entry(store).trouble == "Cannot read its metadata"
    assert seen(store) == observation(data_files=3)  # and it is as old as it is
    store.fleet.record([observation(data_files=4)])
    assert (entry(store).trouble, seen(store).data_files) == (None, 4)


def test_trouble_of_what_was_never_observed_is_listed_until_it_ends(store: StateStore) -> None:
    store.fleet.record([observation()])
    store.fleet.record_trouble({"lake": "no answer", "lake.sales": "403", "lake.db.a": "404"}, NOW)
    found = {one.table: (one.catalog, one.trouble, one.observation is None) for one in store.fleet.entries()}
    assert found == {
        "lake": ("lake", "no answer", True),
        "lake.sales": ("lake", "403", True),
        "lake.db.a": ("lake", "404", False),
    }
    store.fleet.end_trouble(["lake", "lake.db.a", "lake.other"])
    assert {one.table: one.trouble for one in store.fleet.entries()} == {"lake.db.a": None, "lake.sales": "403"}


def test_a_table_that_vanished_is_not_listed_and_its_counters_come_back_with_it(store: StateStore) -> None:
    store.fleet.record([observation(counters=counters(9)), observation("b")])
    store.fleet.vanish(["lake.db.a"], NOW)
    store.fleet.vanish(["lake.db.a"], NOW + DAY)
    assert names(store.fleet.entries()) == ["b"]
    assert names(store.fleet.entries(vanished=True)) == ["a", "b"]
    assert entry(store).vanished_ms == NOW
    assert store.fleet.by_uuid(["uuid-a"]) == {"uuid-a": observation(counters=counters(9))}
    store.fleet.touch(["lake.db.a"], NOW)
    assert names(store.fleet.entries()) == ["a", "b"]


def test_a_table_that_was_renamed_is_found_by_its_uuid_under_its_new_name(store: StateStore) -> None:
    store.fleet.record([observation("old", uuid="u", counters=counters(1), observed_ms=NOW + HOUR)])
    store.fleet.vanish(["lake.db.old"], NOW)
    assert store.fleet.by_uuid(["u", "none"])["u"].table == "lake.db.old"
    store.fleet.record([observation("new", uuid="u", counters=counters(2), observed_ms=NOW)])
    assert store.fleet.by_uuid(["u"])["u"].counters == counters(2)
    assert store.fleet.by_uuid([]) == {}


def test_tables_are_listed_by_a_glob_of_their_names(store: StateStore) -> None:
    store.fleet.record(observation(table) for table in ("a", "ab", "A", "a_c", "a%"))
    assert names(store.fleet.entries("lake.*.a?")) == ["a%", "ab"]
    assert names(store.fleet.entries("*_*")) == ["a_c"]
    assert names(store.fleet.entries("lake.db.a%")) == ["a%"]
    assert names(store.fleet.entries("other.*")) == []


def test_a_hint_stays_until_another_table_has_the_name(store: StateStore) -> None:
    assert not store.fleet.hint("lake.db.a", NOW)
    store.fleet.record([observation()])
    assert store.fleet.hint("lake.db.a", NOW)
    hinted_ms = entry(store).hinted_ms
    assert hinted_ms is not None
    store.fleet.record([observation(data_files=1)])
    assert (entry(store).hinted_ms, seen(store).hinted_ms, seen(store).data_files) == (hinted_ms, hinted_ms, 1)
    store.fleet.record([observation(uuid="another")])
    assert (entry(store).hinted_ms, seen(store).hinted_ms) == (None, None)
    store.fleet.vanish(["lake.db.a"], NOW)
    assert not store.fleet.hint("lake.db.a", NOW)


def test_a_row_that_another_release_wrote_is_observed_again(store: StateStore) -> None:
    store.fleet.record([observation(), observation("b")])
    newer = observation("b").model_dump(mode="json", exclude={"hinted_ms", "observed_ms"}) | {"added_later": 1}
    with store._engine.begin() as connection:
        for table, document in (("lake.db.a", {"table": 3}), ("lake.db.b", newer)):
            change = update(schema.fleet).where(schema.fleet.c.table_name == table)
            connection.execute(change.values(observation=document))
    assert (entry(store).observation, seen(store, "b")) == (None, observation("b"))
    assert entry(store).table_uuid == "uuid-a"


def test_rows_are_forgotten_by_name(store: StateStore) -> None:
    store.fleet.record([observation(), observation("b")])
    store.fleet.forget(["lake.db.a", "lake.db.none"])
    assert names(store.fleet.entries(vanished=True)) == ["b"]


def test_inspections_are_kept_as_history_once_each(store: StateStore) -> None:
    looks = [observation(inspected=inspected(NOW + number * HOUR, health=50 + number)) for number in range(3)]
    store.fleet.add_health([*looks, observation("c"), observation("b", inspected=inspected(NOW - HOUR))])
    store.fleet.add_health([observation(inspected=inspected(NOW, health=1))])
    assert [(one.table, one.health) for one in store.fleet.health()] == [
        ("lake.db.a", 52),
        ("lake.db.a", 51),
        ("lake.db.a", 50),
        ("lake.db.b", 60),
    ]
    assert store.fleet.health("lake.db.b") == (
        HealthEntry(
            table_uuid="uuid-b",
            table="lake.db.b",
            inspected_ms=NOW - HOUR,
            snapshot_id=7,
            health=60,
            data_files=10,
            data_bytes=1_000,
            small_files=9,
            delete_files=2,
        ),
    )
    assert [one.health for one in store.fleet.health(table_uuid="uuid-a", since_ms=NOW + 1, limit=1)] == [52]
    assert [one.health for one in store.fleet.health(since_ms=NOW + HOUR)] == [52, 51]


def test_what_is_old_is_pruned_and_what_is_in_use_stays(store: StateStore) -> None:
    for table in ("gone", "listed", "paused"):
        store.jobs.enqueue([decision(table)], NOW)
        job = store.jobs.claim("w", now_ms=NOW, claim_ms=MINUTE)
        assert job is not None
        store.jobs.finish(job, state=JobState.DONE, outcome="committed", message="", now_ms=NOW)
    now_ms = store.clock_ms(NOW) + MINUTE
    store.pauses.pause("uuid-paused", "compact", until_ms=now_ms + DAY, table="lake.db.paused", by="anna")
    looks = [inspected(now_ms - 1), inspected(now_ms)]
    store.fleet.record(observation(table) for table in ("gone", "listed", "lately"))
    store.fleet.add_health(observation("gone", inspected=look) for look in looks)
    store.fleet.vanish(["lake.db.gone"], now_ms - 1)
    store.fleet.vanish(["lake.db.lately"], now_ms)
    assert store.fleet.prune(now_ms) == 3
    assert names(store.fleet.entries(vanished=True)) == ["lately", "listed"]
    assert set(store.jobs.last_runs()) == {"uuid-listed", "uuid-paused"}
    assert [one.inspected_ms for one in store.fleet.health()] == [now_ms]
    assert store.fleet.prune(now_ms) == 0


@pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)
def test_on_sqlite_a_hint_has_the_callers_time(store: StateStore) -> None:
    store.fleet.record([observation()])
    store.fleet.hint("lake.db.a", NOW + 5)
    assert entry(store).hinted_ms == NOW + 5
