"""Which tables the observer inspects: only where a summary suggests it, a few each round, and each in its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from neve.context.connection import Connection
from neve.errors import NeveError, StorageError
from neve.scheduling.observation import Inspected, Observation
from neve.service.fleet_round import FleetRound, ObserverBounds
from neve.service.inspect_table import TooLargeToInspectError, inspect_table
from neve.service.inspections import Inspections
from neve.service.request_budget import UNBOUNDED, RequestBudget
from neve.service.table_reading import OUTAGE_AFTER
from tests.builders.registered_fleet import HOUR, MINUTE, SECOND, RegisteredFleet, Watch, watching
from tests.builders.scheduling import NOW, observation

SMALL: dict[str, Any] = {"commits": 8, "file_bytes": 1_000}
LARGE: dict[str, Any] = {"commits": 8, "file_bytes": 1 << 30}
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@dataclass
class Inspector:
    """Finds small files everywhere, except where it fails."""

    failing: dict[str, Exception] = field(default_factory=dict)
    requests: int = 9
    asked: list[str] = field(default_factory=list)

    def __call__(self, connection: Connection | None, table: Observation, now_ms: int) -> Inspected:  # noqa: ARG002
        self.asked.append(table.table)
        if table.table in self.failing:
            raise self.failing[table.table]
        return Inspected(
            snapshot_id=table.snapshot_id,
            inspected_ms=now_ms,
            health=40,
            data_files=table.data_files or 0,
            data_bytes=table.total_bytes or 0,
            small_files=8,
            small_bytes=8_000,
            delete_files=0,
            requests=self.requests,
            commits=table.counters.commits,
        )


@pytest.fixture
def lake(tmp_path: Path) -> RegisteredFleet:
    return RegisteredFleet(tmp_path)


@contextmanager
def inspecting(lake: RegisteredFleet, inspector: Inspector, **bounds: int) -> Iterator[Watch]:
    opened = watching(lake.directory.parent, {"lake": lake.settings}, bounds=ObserverBounds(**bounds), inspect=inspector)
    with opened as watch:
        yield watch


def test_only_tables_whose_summary_suggests_work_are_inspected_and_once_for_each_snapshot(lake: RegisteredFleet) -> None:
    lake.add("db.small", **SMALL)
    lake.add("db.large", **LARGE)
    lake.add("db.empty", commits=0)
    with inspecting(lake, inspector := Inspector()) as watch:
        reports = [watch.round() for _ in range(3)]
        assert [one.inspected.keys() for one in reports] == [{"lake.db.small"}, set(), set()]
        assert reports[0].inspected["lake.db.small"].startswith("files have 1000 B on average")
        assert [one.manifest_requests for one in reports] == [9, 0, 0]
        watch.restart()
        assert watch.round().inspected == {}
        [entry] = watch.store.fleet.health()
        assert (entry.table, entry.health, entry.small_files) == ("lake.db.small", 40, 8)
        lake.commit("db.small", commits=30, file_bytes=1_000)
        assert watch.round().inspected.keys() == {"lake.db.small"}
        found = watch.tables["lake.db.small"].inspected
        assert found is not None
        assert found.commits == 22
    assert inspector.asked == ["lake.db.small"] * 2


def test_a_round_inspects_no_more_than_its_bounds_and_later_rounds_the_others(lake: RegisteredFleet) -> None:
    lake.add(*(f"db.t{number}" for number in range(7)), **SMALL)
    with inspecting(lake, inspector := Inspector(), inspections=3) as watch:
        assert [(len(one.inspected), one.waiting) for one in (watch.round() for _ in range(4))] == [
            (3, 4),
            (3, 1),
            (1, 0),
            (0, 0),
        ]
    assert set(Counter(inspector.asked).values()) == {1}


def test_no_table_is_inspected_once_the_requests_of_a_round_are_spent(lake: RegisteredFleet) -> None:
    lake.add(*(f"db.t{number}" for number in range(7)), **SMALL)
    with inspecting(lake, Inspector(requests=60), manifest_requests=100) as watch:
        assert [(len(one.inspected), one.manifest_requests) for one in (watch.round() for _ in range(4))] == [
            (2, 120),
            (2, 120),
            (2, 120),
            (1, 60),
        ]


@pytest.mark.parametrize("error", [TooLargeToInspectError("too many files"), StorageError("away"), ValueError("a bug")])
def test_an_inspection_that_fails_waits_and_stops_no_other(lake: RegisteredFleet, error: Exception) -> None:
    lake.add("db.bad", "db.good", **SMALL)
    inspector = Inspector({"lake.db.bad": error})
    with inspecting(lake, inspector, inspections=1) as watch:
        reports = [watch.round(after_ms=MINUTE) for _ in range(12)]
    assert [number for number, one in enumerate(reports) if one.troubles] == [0, 2, 4, 8]
    assert reports[0].troubles == {"lake.db.bad": str(error)}
    assert [number for number, one in enumerate(reports) if one.inspected] == [1]


def test_storage_that_is_away_ends_the_inspections_of_a_round(lake: RegisteredFleet) -> None:
    lake.add(*(f"db.t{number}" for number in range(20)), **SMALL)
    inspector = Inspector({f"lake.db.t{number}": StorageError("away") for number in range(20)})
    with inspecting(lake, inspector, inspections=20) as watch:
        watch.round()
        assert len(inspector.asked) == OUTAGE_AFTER


def test_a_hinted_table_is_inspected_first(lake: RegisteredFleet) -> None:
    lake.add(*(f"db.t{number}" for number in range(9)), **LARGE)
    with inspecting(lake, Inspector(), inspections=2) as watch:
        watch.round()
        for number in range(9):
            lake.commit(f"db.t{number}", commits=60, file_bytes=1_000)
        watch.store.fleet.hint("lake.db.t8", watch.clock.now_ms())
        assert "lake.db.t8" in watch.round().inspected


def test_tables_of_a_catalog_that_is_away_or_no_longer_described_are_not_inspected(
    lake: RegisteredFleet, tmp_path: Path
) -> None:
    other = RegisteredFleet(tmp_path, "other")
    for fleet in (lake, other):
        fleet.add("db.t", **SMALL)
    inspector = Inspector()
    described = {"lake": lake.settings, "other": other.settings}
    with watching(tmp_path, described, bounds=ObserverBounds(inspections=0), inspect=inspector) as watch:
        watch.round()
    lake.database.unlink()
    with inspecting(lake, inspector) as watch:
        assert watch.tables.keys() == {"lake.db.t", "other.db.t"}
        assert watch.round().inspected == {}
    assert inspector.asked == []


@settings(deadline=None, max_examples=60)
@given(
    tables=st.integers(1, 25),
    bound=st.integers(1, 6),
    failing=st.sets(st.integers(0, 24)),
    hinted=st.sets(st.integers(0, 24), max_size=4),
    round_ms=st.sampled_from([5 * SECOND, MINUTE, HOUR]),
)
def test_no_table_starves(tables: int, bound: int, failing: set[int], hinted: set[int], round_ms: int) -> None:
    """Some always fail, some are asked for in every round, and all change all the time."""
    names = [f"lake.db.t{number:02}" for number in range(tables)]
    inspector = Inspector({names[number]: NeveError("never") for number in failing if number < tables})
    known = {
        name: observation(name, snapshot_id=1, data_files=9, total_bytes=900, delete_files=0, observed_ms=NOW) for name in names
    }
    inspections = Inspections(
        lambda table, now_ms: inspector(None, table, now_ms), lambda _: None, ObserverBounds(inspections=bound)
    )
    wanted = {names[number] for number in hinted if number < tables}
    last, longest, now_ms = dict.fromkeys(names, 0), 0, NOW
    for number in range(1, 8 * (tables // bound + 2)):
        now_ms += round_ms
        known = {
            name: one.model_copy(
                update={"snapshot_id": number, "counters": one.counters.model_copy(update={"commits": 60 * number})}
            )
            for name, one in known.items()
        }
        fleet = FleetRound(now_ms, wanted, known, {}, ["lake"])
        fleet.budgets["lake"] = RequestBudget(UNBOUNDED, lambda: 0)
        inspector.asked.clear()
        known |= {one.table: one for one in inspections.carry_out(fleet)}
        assert len(inspector.asked) <= bound
        for name in inspector.asked:
            last[name] = number
        longest = max([longest, *(number - last[name] for name in names if name not in inspector.failing)])
    assert longest <= 4 * (tables // bound + 2)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[SqlCatalog, Watch]]:
    """A real catalog with a table of 6 small files, and an observer that reads its manifests."""
    catalog = SqlCatalog("real", uri=f"sqlite:///{tmp_path}/real.db", warehouse=f"file://{tmp_path}/real")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=ROWS.schema)
    for _ in range(6):
        table.append(ROWS)
    described = {"type": "sql", "uri": f"sqlite:///{tmp_path}/real.db", "warehouse": f"file://{tmp_path}/real"}
    settings = {"inspect": {"python-max-files": 6}}
    with watching(tmp_path, {"real": described}, settings, bounds=ObserverBounds(), inspect=inspect_table) as watch:
        watch.clock.advance(10**12)  # tables are written by the machine's clock
        yield catalog, watch
    catalog.close()


def test_an_inspection_reads_manifests(written: tuple[SqlCatalog, Watch]) -> None:
    catalog, watch = written
    report = watch.round()
    assert report.manifest_requests == 1 + 6
    found = watch.tables["real.db.t"].inspected
    assert found is not None
    files = catalog.load_table("db.t").inspect.files()
    assert (found.data_files, found.small_files, found.delete_files) == (6, 6, 0)
    assert found.data_bytes == found.small_bytes == sum(files["file_size_in_bytes"].to_pylist())
    assert found.snapshot_id == catalog.load_table("db.t").metadata.current_snapshot_id


def test_a_table_with_too_many_files_for_python_is_not_inspected(written: tuple[SqlCatalog, Watch]) -> None:
    catalog, watch = written
    catalog.load_table("db.t").append(ROWS)
    assert "it has 7 files (at most 6 are read in Python)" in watch.round().troubles["real.db.t"]
    assert watch.tables["real.db.t"].inspected is None


def test_a_name_that_belongs_to_another_table_by_now_is_not_inspected(written: tuple[SqlCatalog, Watch]) -> None:
    _, watch = written
    connection = watch.neve.connection
    assert inspect_table(connection, observation("real.db.t", uuid="of another"), 1) is None
