"""Orphans are found on real Iceberg, and nothing that any snapshot, table or writer needs is ever among them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from neve.api import Neve
from neve.commit.marker import PROPERTY, Marker
from neve.context.table import TableContext
from neve.errors import BadRequestError, InDoubtError, LeaseHeldError
from neve.maintenance.orphans import OrphanRules, Verdict
from neve.operations import other_versions
from neve.operations.other_versions import OtherVersions, open_versions
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.spark.maintenance.judging import is_inside, located, verdicts
from neve.spark.maintenance.orphans import SparkOrphanSearch
from neve.spark.table.bridge import TableBridge
from neve.state import StateStore
from neve.storage.files import REFUSAL
from neve.table.location import Spellings, home_of
from tests.builders.orphan_tables import BY_DAY, DAY, Yard
from tests.builders.quarantine_lists import ListedQuarantine
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)

Make = Callable[..., Yard]


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.orphans")
    state = tmp_path_factory.mktemp("state") / "state.db"
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


@pytest.fixture
def quarantine(monkeypatch: pytest.MonkeyPatch) -> ListedQuarantine:
    listed = ListedQuarantine()
    for method in ("record_candidates", "quarantined"):
        told = getattr(listed, method)
        monkeypatch.setattr(StateStore, method, lambda _, *args, told=told, **words: told(*args, **words), raising=False)
    return listed


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, neve: Neve, quarantine: ListedQuarantine) -> Iterator[Make]:
    made = []

    def make(
        properties: dict[str, str] | None = None, *, spec: Any = None, location: Path | None = None, name: str | None = None
    ) -> Yard:
        bench = Bench(spark, warehouse, "orphans", name or f"t{next(NUMBERS)}")
        yard = Yard(bench, neve, quarantine, location or warehouse / "orphans" / bench.name)
        yard.create(properties, spec)
        made.append(yard)
        return yard

    yield make
    for yard in made:
        with closing(yard.bench.catalog()) as catalog, suppress(NoSuchTableError):
            catalog.drop_table(("orphans", yard.bench.name))
        shutil.rmtree(yard.home, ignore_errors=True)


@pytest.fixture
def yard(make: Make) -> Yard:
    """Ids 0 to 29 in three snapshots; everything is ten days old."""
    yard = make()
    for start in (0, 10, 20):
        yard.append(start, start + 10)
    yard.age()
    return yard


def test_orphans_are_recorded_and_every_snapshot_reads_without_them(yard: Yard) -> None:
    before, orphans = yard.reads(), [yard.plant("data/lost.parquet"), yard.plant("metadata/lost-m0.avro", content=b"lost")]
    record = yard.run()
    assert (record.outcome, record.taken, record.limited, record.orphan_bytes) == (RunOutcome.DONE, 2, False, 8)
    assert sorted(yard.quarantine.files) == sorted(orphans)
    assert {file.run_id for file in yard.quarantine.files.values()} == {record.run_id}
    assert all(Path(path).is_file() for path in orphans)
    yard.sweep()
    assert yard.reads() == before
    assert PROPERTY not in yard.load().properties
    kept = yard.neve.runs(limit=1)[0]
    assert (kept.run_id, kept.kind, kept.outcome) == (record.run_id, "orphans", "done")
    assert kept.record["verdicts"]["orphan"] == 2


def test_settings_state_store_and_catalog_are_no_orphans_of_the_table_they_lie_in(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = yard.plant("data/stray.parquet")
    for name in ("neve/state.db", "neve/state.db-wal", "neve/state.db.lock", "neve/state.db.bak", "neve.yaml", "lake.db"):
        yard.plant(name)
    connection = yard.neve.connection
    monkeypatch.setattr(connection, "loaded", replace(connection.loaded, file=yard.home / "neve.yaml"))
    monkeypatch.setattr(
        connection, "databases", lambda: [f"sqlite:///{yard.home}/neve/state.db", f"sqlite:///{yard.home}/lake.db"]
    )
    yard.age()
    assert [str(yard.home / path) for path in yard.found()] == [stray]


def test_a_dry_run_lists_what_a_run_takes_and_changes_nothing(yard: Yard) -> None:
    yard.plant("data/a.parquet")
    yard.plant("data/deep/down/b.parquet")
    metadata = yard.load().metadata_location
    assert yard.found() == ["data/a.parquet", "data/deep/down/b.parquet"]
    assert (yard.quarantine.files, yard.load().metadata_location) == ({}, metadata)
    yard.run()
    assert list(yard.quarantine.files) == [f"{yard.home}/data/a.parquet", f"{yard.home}/data/deep/down/b.parquet"]


def test_a_limit_is_kept_and_the_next_run_goes_on(yard: Yard) -> None:
    for i in range(5):
        yard.plant(f"data/{i}.parquet")
    assert [yard.run(limit=2).limited for _ in range(2)] == [True, True]
    assert len(yard.quarantine.files) == 4
    last = yard.run(limit=2)
    assert (last.taken, last.limited, len(yard.quarantine.files)) == (1, False, 5)
    again = yard.run(limit=2)
    assert (again.outcome, again.reason) == (RunOutcome.NOTHING_TO_DO, "all 5 orphans wait in the quarantine already")


def test_what_only_a_branch_or_a_tag_needs_is_in_use(yard: Yard) -> None:
    table = yard.load()
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, "january").create_branch(head, "audit").commit()
    yard.append(100, 101, branch="audit")
    table.refresh()
    table.delete("id >= 0")
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    expire = table.maintenance.expire_snapshots()
    expire.by_ids([snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id not in heads]).commit()
    yard.age()
    before = yard.reads()
    assert (before["main"], len(before["january"]), len(before["audit"])) == ([], 30, 31)
    yard.plant("data/lost.parquet")
    yard.run()
    taken = [Path(path).name for path in yard.quarantine.files]
    # Whoever expired the two snapshots left their manifest lists behind.
    assert ([name for name in taken if not name.startswith("snap-")], len(taken)) == (["lost.parquet"], 3)
    yard.sweep()
    assert yard.reads() == before


def test_deletes_and_vectors_are_in_use(spark: SparkSession, make: Make) -> None:
    yard = make()
    modes = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"ALTER TABLE {yard.bench.sql_name} SET TBLPROPERTIES ({modes})")
    yard.bench.sql("INSERT INTO {} SELECT id, 'x' FROM range(0, 10, 1, 1)")
    yard.bench.sql("DELETE FROM {} WHERE id = 3")
    yard.bench.delete_equal(5)
    yard.age()
    record = yard.run(dry_run=True)
    assert (record.files, record.verdicts.get(Verdict.MISSING, 0), len(yard.bench.deletes())) == ((), 0, 2)
    assert yard.bench.ids() == [0, 1, 2, 4, 6, 7, 8, 9]


def test_fresh_files_may_be_a_writer_s(yard: Yard) -> None:
    yard.plant("data/old.parquet", days=3.01)
    yard.plant("data/in-flight.parquet", days=2.9)
    record = yard.run(dry_run=True)
    assert ([Path(file.path).name for file in record.files], record.verdicts[Verdict.FRESH]) == (["old.parquet"], 1)


def test_young_files_are_due_when_the_oldest_of_them_reaches_the_age(yard: Yard) -> None:
    yard.plant("data/younger.parquet", days=1)
    first = Path(yard.plant("data/first.parquet", days=2.9))
    record = yard.run(dry_run=True)
    assert record.reason == "2 files that no snapshot needs are younger than 3 days"
    [rule] = record.not_due
    written_ms = int(first.stat().st_mtime * 1000)
    assert rule.due_ms == written_ms + 3 * 86_400_000 + 1


def test_the_floor_gives_way_to_two_flags_together(yard: Yard) -> None:
    yard.plant("data/young.parquet", days=0.5)
    with pytest.raises(BadRequestError, match=r"^Cannot take files of 60 min for orphans: writers may need up to 3 days"):
        yard.run(older_than="1h", dry_run=True)
    assert yard.found(writers_may_be_running=True) == []
    assert yard.found(older_than="1h", writers_may_be_running=True) == ["data/young.parquet"]


def test_what_is_committed_after_the_listing_is_in_use(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that took ten days commits at the worst moment."""
    slow = yard.plant("data/slow.parquet")
    list_files = SparkOrphanSearch.list_files

    def struck(self: SparkOrphanSearch, *args: Any) -> None:
        list_files(self, *args)
        commit_file(yard, slow)

    monkeypatch.setattr(SparkOrphanSearch, "list_files", struck)
    record = yard.run()
    assert (record.verdicts.get(Verdict.ORPHAN, 0), yard.quarantine.files) == (0, {})
    assert slow in yard.load().inspect.files()["file_path"].to_pylist()


def test_a_second_table_at_the_same_location_stops_it(yard: Yard, make: Make) -> None:
    other = make(location=yard.home)
    other.append(0, 5)
    other.age()
    with pytest.raises(InDoubtError, match=rf"local\.orphans\.{other.bench.name} has files in (file:)?{yard.home}"):
        yard.run()
    assert yard.quarantine.files == {}
    assert other.reads()["main"] == [0, 1, 2, 3, 4]


def test_a_second_table_that_the_catalog_does_not_know_stops_it(yard: Yard, make: Make) -> None:
    other = make(location=yard.home)
    other.append(0, 5)
    other.age()
    table = other.load()
    drop(other.bench, other.bench.name)
    with pytest.raises(InDoubtError, match=rf"metadata of another table is there \({table.metadata.table_uuid}: "):
        yard.run()
    assert yard.quarantine.files == {}
    assert len(table.scan().to_arrow()) == 5


def test_a_table_that_was_renamed_and_made_anew_at_its_old_place_stops_it(yard: Yard, make: Make) -> None:
    old = f"{yard.bench.name}_old"
    with closing(yard.bench.catalog()) as catalog:
        catalog.rename_table(("orphans", yard.bench.name), ("orphans", old))
    new = make(name=yard.bench.name)
    new.append(0, 1)
    new.age()
    assert new.load().location() == str(yard.home)
    with pytest.raises(InDoubtError, match=rf"orphans\.{old} has files in"):
        new.run()
    drop(yard.bench, old)
    with pytest.raises(InDoubtError, match="metadata of another table is there"):
        new.run()


@pytest.mark.parametrize("inner", ["data/nested", "nested"])
def test_tables_inside_one_another_stop_it_on_both_sides(yard: Yard, make: Make, inner: str) -> None:
    nested = make(location=yard.home / inner)
    nested.append(0, 3)
    yard.age()
    with pytest.raises(InDoubtError, match=rf"{nested.bench.name} has files in (file:)?{yard.home}/{inner}"):
        yard.run()
    with pytest.raises(InDoubtError, match=rf"{yard.bench.name} has files in (file:)?{yard.home}"):
        nested.run()


def test_a_young_file_that_another_table_imported_is_not_one_that_no_snapshot_needs(yard: Yard, make: Make) -> None:
    other, imported = make(), f"{yard.home}/import/f.parquet"
    Path(imported).parent.mkdir()
    pq.write_table(other.load().scan().to_arrow(), imported)
    other.load().add_files([imported])
    record = yard.run(dry_run=True)
    assert (record.verdicts.get(Verdict.FRESH, 0), record.verdicts[Verdict.SHARED]) == (0, 1)
    assert record.reason == "every file is accounted for"


def test_another_table_s_data_path_counts_as_its_place(yard: Yard, make: Make) -> None:
    other = make({"write.data.path": f"{yard.home}/data/shared"})
    other.append(0, 3)
    yard.age()
    with pytest.raises(InDoubtError, match=rf"{other.bench.name} has files in (file:)?{yard.home}/data/shared"):
        yard.run()


def test_a_table_that_cannot_be_loaded_may_be_anywhere(yard: Yard, make: Make) -> None:
    broken = make()
    broken.append(0, 5)
    yard.plant("data/lost.parquet")
    for path in (broken.home / "metadata").glob("*.json"):
        path.unlink()
    with pytest.raises(InDoubtError, match=rf"it is not known where local\.orphans\.{broken.bench.name} has its files"):
        yard.run(dry_run=True)
    assert yard.found(no_other_table_is_here=True) == ["data/lost.parquet"]


def test_a_sibling_whose_name_begins_alike_is_left_alone(yard: Yard, make: Make, tmp_path: Path) -> None:
    sibling = make(name=f"{yard.bench.name}_2")
    sibling.append(0, 5)
    sibling.age()
    lost = yard.plant("data/lost.parquet")
    inventory = write_inventory(tmp_path / "i.parquet", [*files(yard.home), *files(sibling.home)])
    for words in ({}, {"inventory": inventory}):
        record = yard.run(dry_run=True, **words)
        assert [file.path for file in record.files] == [lost]
        assert record.listed == len(files(yard.home))


def test_a_delta_table_at_the_same_location_stops_it(yard: Yard) -> None:
    yard.plant("_delta_log/00000000000000000000.json")
    with pytest.raises(InDoubtError, match=r"_delta_log/00000000000000000000\.json belongs to a table of another format"):
        yard.run()


def test_statistics_are_in_use_whatever_they_are_called(yard: Yard) -> None:
    jvm: Any = yard.bench.spark._jvm
    table = TableBridge(yard.bench.spark, yard.neve.connection.name(yard.name)).table
    snapshot = table.currentSnapshot().snapshotId()
    numbers, parts = yard.plant("metadata/numbers.puffin"), yard.plant("metadata/parts.parquet")
    assert yard.found() == ["metadata/numbers.puffin", "metadata/parts.parquet"]
    entry = jvm.org.apache.iceberg.GenericStatisticsFile(snapshot, numbers, 4, 4, jvm.java.util.ArrayList())
    table.updateStatistics().setStatistics(entry).commit()
    builder = jvm.org.apache.iceberg.ImmutableGenericPartitionStatisticsFile.builder().snapshotId(snapshot)
    table.updatePartitionStatistics().setPartitionStatistics(builder.path(parts).fileSizeInBytes(4).build()).commit()
    yard.age()
    assert yard.found() == []


def test_old_metadata_files_of_the_table_itself_are_neither_orphans_nor_a_reason_to_stop(make: Make) -> None:
    yard = make({"write.metadata.previous-versions-max": "1"})
    for start in range(4):
        yard.append(start, start + 1)
    sorted((yard.home / "metadata").glob("*.json"))[2].unlink()  # through which the older ones could be found
    yard.age()
    record = yard.run(dry_run=True)
    assert (record.files, record.verdicts[Verdict.STRANGE]) == ((), 2)


def plain(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def twin_of(yard: Yard) -> Table:
    """The table as a second catalog has it, which has committed to it: ids 50 to 54 besides, in files that only it knows."""
    with closing(yard.bench.catalog()) as catalog:
        catalog.register_table(("orphans", f"{yard.bench.name}_b"), yard.load().metadata_location)
    bench = Bench(yard.bench.spark, yard.bench.warehouse, "orphans", f"{yard.bench.name}_b")
    twin = Yard(bench, yard.neve, yard.quarantine, yard.home)
    twin.append(50, 55)
    table = twin.load()
    drop(twin.bench, twin.bench.name)
    return table


@pytest.mark.parametrize("log", [100, 1])
def test_a_table_that_lives_on_in_another_catalog_keeps_its_files_however_long_ago_that_was(make: Make, log: int) -> None:
    """Registered elsewhere, committed to there: its files are here, and this catalog does not know them."""
    yard = make({"write.metadata.previous-versions-max": str(log)})
    yard.append(0, 30)
    table = twin_of(yard)
    for start in range(60, 64):
        yard.append(start, start + 1)
    lost = yard.plant("data/lost.parquet")
    yard.age()
    record = yard.run()
    assert (list(yard.quarantine.files), record.verdicts[Verdict.HELD]) == ([lost], 3)
    (warning,) = record.warnings
    place = plain(table.metadata_location)
    assert warning.startswith(
        f"3 files kept for 1 version of the table not in its history, such as {place}: of a second catalog"
    )
    yard.sweep()
    assert len(table.scan().to_arrow()) == 35
    assert len(yard.found(no_other_table_is_here=True)) == 3


def test_a_version_keeps_what_its_manifests_name_that_are_there(yard: Yard) -> None:
    """Its others may be expired: what it had in common with the table."""
    table = twin_of(yard)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    yard.append(60, 61)
    yard.age()
    assert yard.found() == []
    (own,) = (found for found in snapshot.manifests(table.io) if found.added_snapshot_id == snapshot.snapshot_id)
    plain(own.manifest_path).unlink()
    (data,) = yard.found()
    assert data.startswith("data/")
    plain(snapshot.manifest_list).unlink()
    assert yard.found() == [data]


@pytest.mark.parametrize("by", ["location", "inventory"])
def test_versions_are_looked_for_where_no_metadata_is_listed(yard: Yard, by: str, tmp_path: Path) -> None:
    twin_of(yard)
    yard.age()
    asked = {"location": f"{yard.home}/data"}
    if by == "inventory":
        asked["inventory"] = str(tmp_path / "list.parquet")
        paths = [str(path) for path in (yard.home / "data").glob("*.parquet")]
        pq.write_table(pa.table({"path": paths, "size": [1] * 4, "modified": [1_000_000_000_000] * 4}), asked["inventory"])
    record = yard.run(dry_run=True, **asked)
    assert (record.files, record.verdicts[Verdict.HELD]) == ((), 1)
    assert len(yard.found(no_other_table_is_here=True, **asked)) == 1


def test_a_metadata_file_that_may_not_be_read_is_not_taken_for_one_that_is_gone(yard: Yard) -> None:
    there = Path(yard.plant("metadata/00098-x.metadata.json"))
    there.unlink()
    there.mkdir()
    (there / "inside").touch()  # Java cannot read a directory, and says that it was not found
    yard.age()
    with TableContext(yard.neve.connection, yard.name) as context:
        versions = open_versions(context)
        with pytest.raises(InDoubtError, match=r"^Cannot tell which table .*00098-x\.metadata\.json belongs to: "):
            versions.owners([str(there)], may_be_gone=True)


def test_a_version_that_is_gone_when_it_is_looked_at_stops_it(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    version = plain(twin_of(yard).metadata_location)
    yard.age()
    real = OtherVersions.owners

    def late(versions: OtherVersions, paths: Any, **options: bool) -> dict[str, str]:
        version.unlink()
        return real(versions, paths, **options)

    monkeypatch.setattr(OtherVersions, "owners", late)
    with pytest.raises(InDoubtError, match=r"metadata\.json belonged to: it is gone since it was listed$"):
        yard.run()
    assert yard.quarantine.files == {}


def test_many_versions_that_are_not_in_the_history_stop_it(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    twin_of(yard)
    yard.append(60, 61)
    yard.age()
    monkeypatch.setattr(other_versions, "_MOST_SNAPSHOTS", 0)
    with pytest.raises(InDoubtError, match=r"metadata\.json are not in its history, and have over 0 snapshots of their own$"):
        yard.run()
    assert yard.quarantine.files == {}


def test_versions_that_left_the_log_keep_nothing_as_long_as_the_table_s_own_history_leads_to_them(make: Make) -> None:
    """Snapshots that were expired without their files are for the search to find."""
    yard = make({"write.metadata.previous-versions-max": "1"})
    for start in range(4):
        yard.append(start, start + 1, snapshot_properties={})
    with closing(yard.bench.catalog()) as catalog:
        table = catalog.load_table(("orphans", yard.bench.name))
        table.delete()
        ids = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    yard.age()
    found = yard.found()
    assert len([path for path in found if path.startswith("data/")]) == 4
    sorted((yard.home / "metadata").glob("*.json"))[4].unlink()  # through which the older ones could be found
    record = yard.run(dry_run=True)
    assert record.verdicts[Verdict.HELD] > 4
    assert len(yard.found(no_other_table_is_here=True)) == len(found)


def test_a_metadata_file_that_cannot_be_read_stops_it(yard: Yard) -> None:
    yard.plant("metadata/00099-x.metadata.json", content=b"{")
    with pytest.raises(InDoubtError, match=r"^Cannot tell which table .*00099-x\.metadata\.json belongs to: "):
        yard.run()


def test_hidden_files_are_not_iceberg_s_unless_they_are_partitions(make: Make) -> None:
    yard = make(spec=BY_DAY)
    yard.append(0, 10)
    yard.age()
    before = yard.reads()
    yard.plant("data/_day=monday/lost.parquet")
    for name in ("_SUCCESS", "data/_temporary/0/x.parquet", "data/.hive-staging/x.parquet", "data/_other=1/x.parquet"):
        yard.plant(name)
    assert yard.found() == ["data/_day=monday/lost.parquet"]
    assert yard.run().taken == 1
    yard.sweep()
    assert yard.reads() == before


def test_files_of_an_unfinished_run_are_left_to_it(yard: Yard) -> None:
    _, plan = yard.bench.plan()
    yard.plant("data/neve-r1-0-00000.parquet")
    lost = yard.plant("data/neve-r2-0-00000.parquet")
    groups = (JournaledGroup(group_id=0, output_prefix=f"file:{yard.home}/data/neve-r1-0"),)
    run = JournaledRun(run_id=f"r1-{yard.bench.name}", owner="elsewhere:1", started_ms=1, plan=plan, groups=groups)
    with StateStore.open(yard.neve.connection.state_url) as store:
        store.begin(run)
    record = yard.run()
    assert ([*yard.quarantine.files], record.verdicts[Verdict.RUNNING]) == ([lost], 1)
    with StateStore.open(yard.neve.connection.state_url) as store:
        store.finish_run(run.run_id, finished_ms=2, outcome="failed", record={})


def test_it_waits_for_whoever_is_at_work_on_the_table(yard: Yard) -> None:
    yard.plant("data/lost.parquet")
    marker = Marker(run_id="other", owner="elsewhere:1", until_ms=10**14)
    with yard.load().transaction() as change:
        change.set_properties({PROPERTY: marker.text})
    with pytest.raises(LeaseHeldError, match=r"run other \(elsewhere:1\) is at work on it"):
        yard.run()
    assert yard.quarantine.files == {}


def test_a_table_whose_files_others_may_need_is_refused(yard: Yard) -> None:
    with yard.load().transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(BadRequestError, match=r"its property gc\.enabled is false$"):
        yard.run(dry_run=True)


def test_paths_are_compared_by_what_they_mean(yard: Yard, make: Make) -> None:
    """A table whose files are spelled in four ways, its location among them."""
    other = make(location=Path(f"{yard.home}-spelled"))
    home = other.home
    for i, prefix in enumerate([f"{home}/data/", f"file:{home}/data/", f"file://{home}//data/", f"{home}/./data/"]):
        add_file(other, f"{prefix}{i}%20 #?.parquet", Path(f"{home}/data/{i}%20 #?.parquet"))
    other.age()
    lost = other.plant("data/0  #?.parquet")
    assert [file.path for file in other.run(dry_run=True).files] == [lost]
    shutil.rmtree(home)


def test_the_same_path_in_another_store_is_doubtful(make: Make, tmp_path: Path) -> None:
    yard = make(location=tmp_path / "t")
    yard.append(0, 5)
    add_file(yard, f"viewfs:{yard.home}/data/elsewhere.parquet", yard.home / "data" / "elsewhere.parquet")
    yard.age()
    with pytest.raises(InDoubtError, match=rf"elsewhere\.parquet is listed and the table names viewfs:{yard.home}/data/else"):
        yard.run(dry_run=True)
    assert yard.found(equal_schemes=["viewfs=file"]) == []


def test_only_places_of_the_table_are_looked_at(yard: Yard, warehouse: Path) -> None:
    yard.plant("data/lost.parquet")
    yard.plant("metadata/lost.avro")
    assert yard.found(location=f"{yard.home}/data/") == ["data/lost.parquet"]
    for elsewhere in (warehouse, f"{yard.home}_2", "/"):
        with pytest.raises(BadRequestError, match=r"^Cannot look for orphans in .*: "):
            yard.run(location=str(elsewhere))


def test_an_inventory_in_csv_says_the_same_as_a_listing(yard: Yard, tmp_path: Path) -> None:
    yard.plant("data/lost.parquet")
    yard.plant("data/young.parquet", days=1)
    inventory = tmp_path / "inventory.csv"
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    rows = [f"{path},{size},{time.strftime(stamp, time.gmtime(ms // 1000))}" for path, size, ms in files(yard.home)]
    inventory.write_text("\n".join(["path,size,modified", *rows]) + "\n")
    assert yard.found(inventory=str(inventory)) == yard.found() == ["data/lost.parquet"]


def test_an_inventory_is_read_before_the_table_is_loaded_anew(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.plant("data/lost.parquet")
    inventory, refresh = write_inventory(tmp_path / "i.parquet", files(yard.home)), TableBridge.refresh

    def gone(bridge: TableBridge) -> None:
        Path(inventory).unlink(missing_ok=True)
        refresh(bridge)

    monkeypatch.setattr(TableBridge, "refresh", gone)
    assert yard.found(inventory=inventory) == ["data/lost.parquet"]
    assert not Path(inventory).exists()


def test_the_newest_version_in_an_inventory_counts(yard: Yard, tmp_path: Path) -> None:
    young = yard.plant("data/young.parquet", days=1)
    old = (young, 4, int((time.time() - 50 * DAY) * 1000))
    inventory = write_inventory(tmp_path / "i.parquet", [old, *files(yard.home), old])
    assert yard.found(inventory=inventory) == []


def test_a_version_of_unknown_age_in_an_inventory_keeps_the_file(yard: Yard, tmp_path: Path) -> None:
    lost = yard.plant("data/lost.parquet")
    rows: list[Any] = [*files(yard.home), (lost, 4, None)]
    assert yard.found(inventory=write_inventory(tmp_path / "once.parquet", rows[:-1])) == ["data/lost.parquet"]
    assert yard.found(inventory=write_inventory(tmp_path / "twice.parquet", rows)) == []


def test_an_inventory_in_seconds_or_without_a_column_or_of_another_place_is_refused(yard: Yard, tmp_path: Path) -> None:
    seconds = [(path, size, ms // 1000) for path, size, ms in files(yard.home)]
    with pytest.raises(BadRequestError, match=r"it has files from before the year 2000$"):
        yard.run(inventory=write_inventory(tmp_path / "s.parquet", seconds))
    pq.write_table(pa.table({"path": ["x"], "size": [1]}), tmp_path / "c.parquet")
    with pytest.raises(BadRequestError, match=r"it has no column modified$"):
        yard.run(inventory=str(tmp_path / "c.parquet"))
    with pytest.raises(BadRequestError, match=r"^Cannot read the inventory .*none\.parquet: "):
        yard.run(inventory=str(tmp_path / "none.parquet"))
    yard.plant("data/lost.parquet")
    some = [file for file in files(yard.home) if "/metadata/" not in file[0]]
    with pytest.raises(InDoubtError, match=r"the listing lacks \d+ of \d+ files that the table needs there"):
        yard.run(inventory=write_inventory(tmp_path / "p.parquet", some))


@pytest.mark.parametrize("storage", [{}, {REFUSAL: "not for tasks"}], ids=["tasks", "file-io"])
def test_a_large_listing_finds_what_a_small_one_does(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, storage: dict[str, str]
) -> None:
    planted = sorted(yard.plant(f"data/p={i % 7}/q={i % 3}/{i} %20.parquet") for i in range(40))
    yard.plant("_delta/x.parquet")
    small = yard.run(dry_run=True)
    assert [file.path for file in small.files] == planted
    monkeypatch.setattr(yard.neve.connection, "storage", lambda _: storage)
    monkeypatch.setattr("neve.spark.maintenance.listing._BATCH_FILES", 7)
    large = yard.run(dry_run=True)
    assert (large.files, large.listed, large.verdicts) == (small.files, small.listed, small.verdicts)


def test_spark_parses_locations_as_tasks_do(spark: SparkSession) -> None:
    homes = ["", "file:", "file://", "S3a://B", "s3n://b", "s3://b", "hdfs://NN:8020", "viewfs:", "9x://b", "s3:/", "ü://b"]
    keys = [
        "",
        "/",
        "//t///f/",
        "/t/./f",
        "/t/../f",
        "/t/a/../../f",
        "/t/..",
        "/.",
        "/t/.f/..g/...",
        "/t/a%20 b#?:é/\n",
        "/t/f.parquet",
        "/t\n//",
        "t/f",
    ]
    spellings = Spellings.of(["viewfs=hdfs"], ["nn:8020=nn", "nn=b"])
    paths = [home + key for home in homes for key in keys]
    written = spark.createDataFrame([(path,) for path in paths], "path string")
    for usual in ("", "file:", "S3a://B", "hdfs://NN:8020"):
        found = {row.path: (row.scheme, row.authority, row.key) for row in located(written, spellings, usual).collect()}
        assert found == {path: tuple(spellings.parse(path)) for path in paths}


def test_what_spark_makes_of_a_file_is_what_the_rules_make_of_it(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    keys = [
        *(
            "/t/f",
            "/t/",
            "/t",
            "/t_2/f",
            "/t/_x/f",
            "/t/_p=1/f",
            "/t/.p=1/f",
            "/t/_neve/f",
            "/t/_neve=1/f",
            "/t/a/.neve-trash/f",
        ),
        *(
            "/t/c/metadata",
            "/t/c/offsets/0",
            "/t/c/sources/0/0",
            "/t/c/state/0/1/2.zip",
            "/t/chk-1/f",
            "/t/metadata/f",
            "/t/a/0",
        ),
        *("/t/_delta_log/0.json", "/t/a/.hoodie", "/t/a_delta_log/f", "/t/a/_delta_logs", "/t/a.hoodie/f"),
        *(
            "/t/m/1.metadata.json",
            "/t/m/1.metadata.json.gz",
            "/t/m/1.metadata.json\n",
            "/t/m/1.metadata.json\r",
            "/t/x.metadata.jsonl",
        ),
        *(
            "/t/version-hint.text",
            "/t/version-hint.text2",
            "/t/partition-stats-1",
            "/t/a/b.stats",
            "/t/b.stats/f",
            "/t/a\nb.stats",
        ),
        *("/t/a\rb.stats", "/t/b.stats\n", "/t//x/../f", "/t/d/", "/t/ä.stats"),
    ]
    paths = [f"{home}{key}" for home in ("", "file:", "s3://b", "s3a://B", "s3://c", "hdfs://b") for key in keys]
    rows = [(path, modified) for path in paths for modified in (None, 0, -1, 5, 10, 11)]
    frame = spark.createDataFrame(rows, "path string, modified_ms bigint")
    spellings = Spellings.of()
    for root in ("/t", "s3://b/t", "file:/t"):
        for hidden in ((), ("_p=", "_neve="), (".p=",)):
            rules = OrphanRules(root=spellings.parse(root), spellings=spellings, cutoff_ms=10, hidden=hidden)
            asked = [(path, modified, rules.judge(path, modified)) for path, modified in rows]
            verdict = f.when(is_inside(rules), verdicts(rules)).alias("verdict")
            found = located(frame, spellings, home_of(root)).select("path", "modified_ms", verdict).collect()
            assert {tuple(row) for row in found} == {(path, at, found[0].value if found else None) for path, at, found in asked}


def files(home: Path) -> list[tuple[str, int, int]]:
    found = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns // 10**6) for path in found]


def write_inventory(path: Path, rows: list[tuple[str, int, int]]) -> str:
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(("path", "size", "modified"), map(list, columns), strict=True))), path)
    return str(path)


def add_file(yard: Yard, spelled: str, real: Path) -> None:
    """Writes something and commits it under this spelling."""
    real.parent.mkdir(parents=True, exist_ok=True)
    real.write_bytes(b"PAR1")
    commit_file(yard, spelled)


def drop(bench: Bench, name: str) -> None:
    with closing(bench.catalog()) as catalog:
        catalog.drop_table(("orphans", name))


def commit_file(yard: Yard, spelled: str) -> None:
    iceberg: Any = yard.bench.spark._jvm.org.apache.iceberg
    table = TableBridge(yard.bench.spark, yard.neve.connection.name(yard.name)).table
    builder = iceberg.DataFiles.builder(table.spec()).withPath(spelled).withFileSizeInBytes(4)
    table.newAppend().appendFile(builder.withFormat("parquet").withRecordCount(1).build()).commit()
