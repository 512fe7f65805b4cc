"""The observer over a directory of tables, which is listed now and then, and asked for each table by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from neve.service.catalog_listing import RELIST_MS
from neve.service.fleet_round import ObserverBounds
from tests.builders.registered_fleet import HOUR, Watch, document, watching

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
PARSEABLE: dict[str, Any] = {
    "last-updated-ms": 1,
    "last-column-id": 1,
    "schemas": [SCHEMA],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    made = tmp_path / "warehouse"
    made.mkdir()
    return made


@pytest.fixture
def watch(tmp_path: Path, warehouse: Path) -> Iterator[Watch]:
    bounds = ObserverBounds(catalog_requests=5, inspections=0)
    with watching(tmp_path, {"lake": {"type": "hadoop", "warehouse": str(warehouse)}}, bounds=bounds) as opened:
        yield opened


def write(warehouse: Path, table: str, version: int = 1, **values: Any) -> None:
    """A version of a table; its name is that of its directory."""
    metadata = warehouse / table / "metadata"
    metadata.mkdir(parents=True, exist_ok=True)
    content = document(str(uuid5(NAMESPACE_URL, ascii(table))), **values) | PARSEABLE
    (metadata / f"v{version}.metadata.json").write_text(json.dumps(content), encoding="utf-8")
    (metadata / "version-hint.text").write_text(str(version), encoding="utf-8")


def test_tables_are_found_in_turns_and_counted(warehouse: Path, watch: Watch) -> None:
    for number in range(8):
        write(warehouse, f"db/t{number}")
    reports = [watch.round() for _ in range(2)]
    assert [(one.tables, one.read, one.requests["lake"]) for one in reports] == [(8, 4, 5), (8, 5, 5)]
    write(warehouse, "db/t7", 2, commits=4)
    for _ in range(3):
        watch.round()
    assert len(watch.tables) == 8
    assert watch.commits("lake.db.t7") == 3


def test_a_new_table_is_found_and_one_that_is_gone_vanishes_at_the_next_listing(warehouse: Path, watch: Watch) -> None:
    write(warehouse, "db/old")
    watch.round()
    write(warehouse, "db/nested/new")
    (warehouse / "db/old").rename(warehouse.parent / "old")
    assert watch.round().troubles.keys() == {"lake.db.old"}
    assert watch.round().vanished == 1
    assert (watch.tables.keys(), watch.troubles) == ({"lake.db.nested.new"}, {})
    (warehouse.parent / "old").rename(warehouse / "db/old")
    assert watch.round().tables == 1
    assert watch.round(after_ms=RELIST_MS).tables == 2


def test_a_warehouse_that_is_not_mounted_loses_no_table(warehouse: Path, watch: Watch) -> None:
    for number in range(3):
        write(warehouse, f"db/t{number}")
    watch.round()
    warehouse.rename(warehouse.parent / "away")
    for _ in range(3):
        assert watch.round(after_ms=RELIST_MS).vanished == 0
    assert len(watch.tables) == 3
    assert "there is no such directory" in watch.troubles["lake"]
    (warehouse.parent / "away").rename(warehouse)
    for _ in range(3):
        watch.round(after_ms=HOUR)
    assert (len(watch.tables), watch.troubles) == (3, {})


def test_directories_that_no_command_can_name_are_trouble(warehouse: Path, watch: Watch) -> None:
    for table in ("db/t", "db.v2/t", "at_root", "db/odd\udcff"):
        write(warehouse, table)
    watch.round()
    assert watch.tables.keys() == {"lake.db.t"}
    assert watch.troubles.keys() == {"lake.`db.v2`.`t`", "lake.`at_root`"}
