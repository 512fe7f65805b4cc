"""Every operation is killed in the middle, on real tables with real Spark; done again it ends, and nothing is lost."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestamptzType

from neve.api import Neve
from neve.commit.marker import Marker
from neve.maintenance.quarantine import TRASH, Candidate, Fate
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from tests.builders.expired_tables import Expiring
from tests.builders.killed_operations import DOOMED, OPERATIONS, Ahead, kill_all, open_neve
from tests.builders.spark_connections import entries, manifest_paths
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "ts", TimestamptzType(), required=False))
DAYS = 30
"""How far ahead the clock is when operations are killed: snapshots are old by then, and the trash is to be purged."""
OLD, YOUNG = 100, 0

NOT_NOTED = {
    "expire": "after SparkSnapshotRemoval.expire",
    "orphans": "after StateStore.record_candidates 2",
    "settle": "half StoredFiles.move",
    "purge": "half StoredFiles.delete",
    "restore": "half StoredFiles.put_back",
    "manifests": "after SparkManifests.commit",
    "stats": "after SparkStatistics.publish",
    "tags": "after SparkTags.change_tags",
    "ttl": "after SparkPastRows.drop",
    "prevent": "after TableBridge.swap_properties",
    "deletes": "after TableBridge.row_delta",
}
"""Done, wholly or in part, and nobody has written that down."""
NOT_DONE = {
    **{operation: point.replace("after", "before").replace("half", "before") for operation, point in NOT_NOTED.items()},
    "orphans": "before StateStore.record_candidates",
    "ttl": "before SparkPastRows.delete",
}
"""All is prepared, files are written, and nothing has changed yet; of ttl, only whole files are gone."""
NOT_RECORDED = {
    **dict.fromkeys(OPERATIONS, "before StateStore.start_run"),
    "expire": "before StateStore.record_candidates",
    "orphans": "before StateStore.finish_run",
}
"""All is done but the record; of an expiry the snapshots are gone, and the files that only they needed not written down."""
ONLY_MARKED = {
    **dict.fromkeys(OPERATIONS, "after TableBridge.swap_property"),
    **dict.fromkeys(("settle", "purge", "restore"), "after PlainEntry.swap_property"),
    "prevent": "before TableBridge.swap_properties",
}
"""The lease is taken, and nothing has happened."""
ROUNDS = {"not_noted": NOT_NOTED, "not_done": NOT_DONE, "not_recorded": NOT_RECORDED, "only_marked": ONLY_MARKED}
WITHOUT_LEASE = ("start_run", "finish_run", "swap_properties")
"""Records are kept when the lease has been given back, and `prevent` takes none."""


@dataclass
class Kept:
    """The table of one operation, and what it was before anything happened to it."""

    bench: Bench
    operation: str
    strays: dict[str, bytes] = field(default_factory=dict)
    """Files that no snapshot needs, with what is in them."""
    needed: str = ""

    @property
    def name(self) -> str:
        return f"{self.bench.namespace}.{self.bench.name}"

    @property
    def home(self) -> Path:
        return self.bench.warehouse / self.bench.namespace / self.bench.name

    @property
    def uuid(self) -> str:
        return str(self.bench.load().metadata.table_uuid)

    def is_marked(self) -> bool:
        return Marker.of(self.bench.load().properties) is not None

    def rows(self) -> dict[str, list[int]]:
        """The ids of every ref as pyiceberg reads them, where DuckDB finds as many in main and every file that is named is."""
        assert {path for path in Expiring(self.bench).named() if not Path(path).exists()} == set()
        found = Expiring(self.bench).ids_of_refs()
        assert len(self.bench.duckdb()) == len(found["main"])
        return found

    def contents(self) -> set[str]:
        """Of every file in the table's directory, the trash included."""
        files = [path for path in self.home.rglob("*") if path.is_file() and path.suffix != ".crc"]
        return {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def in_trash(self) -> int:
        return sum(1 for path in self.home.rglob("*.parquet") if TRASH in path.parts)

    def plant(self) -> None:
        for name in ("a", "b", "c"):
            path = self.home / "data" / f"{name}-stray.parquet"
            path.write_bytes(name.encode() * 100)
            os.utime(path, (moment := time.time() - 10 * 86_400, moment))
            self.strays[str(path)] = path.read_bytes()

    def found_strays(self) -> dict[str, bytes]:
        """Those that are in their place."""
        return {path: Path(path).read_bytes() for path in self.strays if Path(path).exists()}

    def make(self) -> None:
        """Ids 0 to 39 in four files, of which the first is old, the second by half; a tag, and a branch with five more."""
        properties = {"write.parquet.compression-codec": "gzip", "format-version": "2"}
        now, table = datetime.now(UTC), Expiring(self.bench)
        with closing(self.bench.catalog()) as catalog:
            name = (self.bench.namespace, self.bench.name)
            loaded = catalog.create_table(name, SCHEMA, str(self.home), properties=properties)
            for start in (0, 10, 20, 30):
                ids = range(start, start + 10)
                days = [OLD if i < 10 or (i < 20 and i % 2) else YOUNG for i in ids]
                loaded.append(pa.table({"id": list(ids), "ts": [now - timedelta(days=d) for d in days]}, SCHEMA.as_arrow()))
        table.tag("kept")
        table.branch("audit")
        table.change(lambda t: t.append(pa.table({"id": [100, 101], "ts": [now, now]}, SCHEMA.as_arrow()), branch="audit"))

    def prepare(self, neve: Neve, store: StateStore) -> None:
        """What the operation needs to have something to do."""
        self.make()
        match self.operation:
            case "expire":
                Expiring(self.bench).change(lambda table: table.delete("id < 10"))
            case "orphans":
                self.plant()
            case "settle" | "purge" | "restore":
                self.plant()
                self.needed = next(iter(sorted(self.bench.paths())))
                doomed = [Candidate(path=path, reason="no snapshot needs it") for path in (*self.strays, self.needed)]
                store.record_candidates(self.uuid, DOOMED, doomed, Ahead(0).now_ms())
                if self.operation != "settle":
                    assert neve.settle(self.name, at_once=True).files == 3
            case "ttl":
                assert neve.ttl(self.name).counts.rows_deleted == 5
            case "deletes":
                modes = "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition'"
                self.bench.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({modes})")
                self.bench.sql("DELETE FROM {} WHERE id IN (22, 32)")
                self.bench.sql("DELETE FROM {} WHERE id IN (23, 33)")


@pytest.fixture(scope="module")
def clock() -> Ahead:
    return Ahead(0)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state") / "state.db"


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, state: Path, clock: Ahead) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.killed")
    with open_neve(warehouse, state, clock) as opened:
        opened.connection.session = spark
        yield opened


@dataclass(frozen=True)
class Killed:
    """What a killed process left, a table for each operation, and what these were before."""

    points: Mapping[str, str]
    tables: Mapping[str, Kept]
    before: Mapping[str, tuple[Mapping[str, list[int]], set[str]]]


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, spark: SparkSession, warehouse: Path, neve: Neve, state: Path, clock: Ahead
) -> Killed:
    namespace, points = f"killed_{request.param}", ROUNDS[request.param]
    spark.sql(f"CREATE NAMESPACE local.{namespace}")
    tables = {operation: Kept(Bench(spark, warehouse, namespace, operation), operation) for operation in OPERATIONS}
    clock.days = 0
    with StateStore.open(f"sqlite:///{state}") as store:
        for kept in tables.values():
            kept.prepare(neve, store)
    clock.days = DAYS
    before = {operation: (kept.rows(), kept.contents()) for operation, kept in tables.items()}
    kill_all(warehouse, state, DAYS, points, {operation: kept.name for operation, kept in tables.items()})
    return Killed(points, tables, before)


QUICK = "not_noted"
"""Each round starts a Spark of its own; the most treacherous one runs every time, the others in `make soak`."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "killed", [pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in ROUNDS], indirect=True
)
def test_what_was_killed_in_the_middle_is_finished_by_the_next_run_and_nothing_is_lost(
    killed: Killed, operation: str, neve: Neve
) -> None:
    kept, (rows, contents) = killed.tables[operation], killed.before[operation]
    assert kept.is_marked() == (not killed.points[operation].endswith(WITHOUT_LEASE))
    _check(kept, rows, contents)
    again, third = OPERATIONS[operation](neve, kept.name), OPERATIONS[operation](neve, kept.name)
    assert again.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO), again.reason
    assert third.outcome is RunOutcome.NOTHING_TO_DO
    _check(kept, rows, contents)
    CHECKS[operation](kept, neve)
    assert not kept.is_marked()
    assert [run.kind for run in neve.runs(kept.name) if run.finished_ms is None] == []


def _check(kept: Kept, rows: Mapping[str, list[int]], contents: set[str]) -> None:
    """Every ref reads what it read before, and every file that there was is there."""
    found = kept.rows()
    expected = dict(rows)
    if kept.operation == "ttl":
        young = [i for i in rows["main"] if i >= 20 or (i >= 10 and i % 2 == 0)]
        some = [i for i in rows["main"] if i >= 10]
        assert found["main"] in (rows["main"], some, young)
        expected["main"] = found["main"]
    assert {name: ids for name, ids in found.items() if name in rows} == expected
    purged = {hashlib.sha256(content).hexdigest() for content in kept.strays.values()} if kept.operation == "purge" else set()
    assert contents - kept.contents() <= purged


def _expired(kept: Kept, neve: Neve) -> None:
    """One snapshot for each ref; what is not needed any more is written down, goes to the trash, and comes back."""
    table = Expiring(kept.bench)
    assert len(table.snapshots()) == 3
    unneeded, contents = table.on_disk() - table.named(), kept.contents()
    recorded = list(neve.quarantined(kept.name))
    assert {file.path.removeprefix("file:") for file in recorded} == unneeded
    (run,) = {file.run_id for file in recorded}
    assert neve.settle(kept.name, at_once=True).files == len(unneeded)
    assert neve.restore(run).files == len(unneeded)
    assert (table.on_disk() - table.named() - unneeded, kept.contents() >= contents) == (set(), True)
    told = {row.outcome: row.record["reason"] for row in neve.runs(kept.name) if row.kind == "expire"}
    assert told.pop("done") is None
    assert set(told.values()) <= {f"it was interrupted; run {run[:8]} went on with it"}


def _orphans(kept: Kept, neve: Neve) -> None:
    assert {file.path: file.fate for file in neve.quarantined(kept.name)} == dict.fromkeys(kept.strays, Fate.RECORDED)
    for run in {file.run_id for file in neve.quarantined(kept.name)}:
        assert neve.restore(run).outcome is RunOutcome.DONE
    assert {file.fate for file in neve.quarantined(kept.name)} == {Fate.RESTORED}


def _fates(kept: Kept, neve: Neve) -> dict[Fate, int]:
    fates = {file.path: file.fate for file in neve.quarantined(kept.name)}
    assert (fates.pop(kept.needed), set(fates)) == (Fate.NEEDED, set(kept.strays))
    return {fate: list(fates.values()).count(fate) for fate in fates.values()}


def _settled(kept: Kept, neve: Neve) -> None:
    assert (_fates(kept, neve), kept.found_strays(), kept.in_trash()) == ({Fate.TRASHED: 3}, {}, 3)
    assert neve.restore(DOOMED, table=kept.name).files == 3
    assert (kept.found_strays(), kept.in_trash()) == (kept.strays, 0)


def _purged(kept: Kept, neve: Neve) -> None:
    assert (_fates(kept, neve), kept.found_strays(), kept.in_trash()) == ({Fate.PURGED: 3}, {}, 0)


def _restored(kept: Kept, neve: Neve) -> None:
    assert (_fates(kept, neve), kept.found_strays(), kept.in_trash()) == ({Fate.RESTORED: 3}, kept.strays, 0)


def _manifests(kept: Kept, neve: Neve) -> None:  # noqa: ARG001
    assert (len(manifest_paths(kept.bench)), len(entries(kept.bench))) == (1, 4)


def _stats(kept: Kept, neve: Neve) -> None:  # noqa: ARG001
    (file,) = kept.bench.load().metadata.statistics
    assert {blob.fields[0]: (blob.properties or {})["ndv"] for blob in file.blob_metadata}[1] == "40"
    assert Path(file.statistics_path.removeprefix("file:")).stat().st_size == file.file_size_in_bytes


def _tags(kept: Kept, neve: Neve) -> None:  # noqa: ARG001
    metadata = kept.bench.load().metadata
    ours = [ref.snapshot_id for name, ref in metadata.refs.items() if name.startswith("neve-daily-")]
    assert ours == [metadata.current_snapshot_id]


def _past(kept: Kept, neve: Neve) -> None:  # noqa: ARG001
    assert kept.rows()["main"] == [*range(10, 20, 2), *range(20, 40)]


def _prevented(kept: Kept, neve: Neve) -> None:
    codec = "write.parquet.compression-codec"
    assert kept.bench.load().properties[codec] == "zstd"
    assert neve.prevent(kept.name, undo=True).outcome is RunOutcome.DONE
    assert kept.bench.load().properties[codec] == "gzip"


def _deletes(kept: Kept, neve: Neve) -> None:  # noqa: ARG001
    assert len(kept.bench.deletes()) == 2


CHECKS: Mapping[str, Callable[[Kept, Neve], None]] = {
    "expire": _expired,
    "orphans": _orphans,
    "settle": _settled,
    "purge": _purged,
    "restore": _restored,
    "manifests": _manifests,
    "stats": _stats,
    "tags": _tags,
    "ttl": _past,
    "prevent": _prevented,
    "deletes": _deletes,
}
