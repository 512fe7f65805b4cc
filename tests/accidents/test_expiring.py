"""Expiring and deleting: no snapshot goes that a ref, a run or a reader needs, and a file can come back until the very end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from neve.errors import CommitIncidentError, NeveError, VerificationError
from neve.maintenance.quarantine import waiting_since_ms
from neve.maintenance.retention import Keep, Rules, _Past
from neve.operations import quarantine, trash_needed
from neve.operations.expire_snapshots import _Expiry
from neve.operations.quarantine import EXPIRED_STAYS
from neve.operations.reachable import Reachable
from neve.operations.remove_orphans import _Search
from neve.rewrite.journal import JournaledRun
from neve.spark.maintenance import expiry
from neve.spark.maintenance.expiry import SparkSnapshotRemoval
from neve.spark.maintenance.orphans import SparkOrphanSearch
from neve.spark.maintenance.reachable import SparkReachability
from neve.state import StateStore
from neve.storage.moves import StoredFiles
from neve.table.properties import files_may_be_removed
from tests.accidents.unguarded import accident, answering
from tests.builders.cleanup_tables import Make, Site, assert_there, rows
from tests.builders.expired_tables import DAY, WEEK, Expiring, in_python, on_spark
from tests.builders.spark_tables import Bench
from tests.builders.table_integrity import assert_whole

OF_THE_CURRENT_SNAPSHOT = """(
    (current := metadata.currentSnapshot().snapshotId()),
    (alone := without(self._bridge, metadata, snapshot_ids(self._bridge, metadata) - {current})),
    self._iceberg.content(self._iceberg.static(alone)).unionByName(self._iceberg.others(self._iceberg.static(metadata))),
)[-1]"""

ROWS = {"main": [8, 9], "audit": [1, 2, 30], "three": [1, 2, 3]}


@pytest.fixture(params=[on_spark, in_python])
def forked(bench: Bench, request: pytest.FixtureRequest) -> Expiring:
    """Files that main has no more are still those of a branch and of a tag."""
    table = Expiring.make(bench)
    table.reach = request.param
    table.append(1, 2)
    table.branch("audit")
    table.append(30, branch="audit")
    table.append(3)
    table.tag("three")
    table.overwrite(5, 6)
    table.overwrite(8, 9)
    return table


@accident(
    "Expiry deleted live files of a table with several refs",
    evidence="iceberg #13568",
    guard="what is left is compared with all that any ref needs; what was written down is looked up once more",
    behind=[
        answering(SparkReachability._needed_by, OF_THE_CURRENT_SNAPSHOT),
        answering(Reachable._kept_manifests, "self._manifests(after.version, after.lists[-1:])"),
    ],
    without=[answering(_Expiry._strike_needed, "0")],
    sees="lost files",
)
def test_files_are_shared_by_refs(forked: Expiring) -> None:
    assert len(forked.expire().expired) > 0
    forked.remove_recorded()
    assert_whole(forked.bench.load(), ROWS)


@accident(
    "Expiry took the heads of branches and tags, and the refs with them",
    evidence="iceberg-go #1829, seaweedfs #10774",
    guard="heads are kept whatever the age and the number to keep; metadata that would lose a ref is not sent",
    behind=[
        answering(_Past.heads, "iter(())"),
        answering(_Past._min_count, "self.rules.min_count"),
    ],
    without=[answering(expiry.lost_refs, "set()")],
    sees="other rows",
)
def test_everything_is_past_its_age_and_none_is_to_be_kept(forked: Expiring) -> None:
    with suppress(VerificationError, CommitIncidentError):
        forked.expire(Rules(keep_ms=7 * DAY, min_count=0))
        forked.remove_recorded()
    assert_whole(forked.bench.load(), ROWS)


@accident(
    "A tag was made while expiry went on, and its snapshot was gone",
    evidence="iceberg #13568",
    guard="the change lands only on the metadata that it was decided on",
    without=[answering(SparkSnapshotRemoval._judged_metadata, "self._bridge.table.operations().refresh()")],
    sees="other rows",
)
def test_a_tag_comes_between_decision_and_commit(forked: Expiring) -> None:
    first = forked.snapshots()[0]
    forked.expire(WEEK, strike=lambda: forked.tag("late", first))
    forked.remove_recorded()
    assert_whole(forked.bench.load(), ROWS | {"late": [1, 2]})


@accident(
    "The snapshot that a running job started from was expired",
    evidence="iceberg #17202, paimon #9548",
    guard="what runs were planned from which have not ended is kept, by their journal",
    without=[answering(_Past.for_runs, "iter(())")],
    sees="lost snapshot",
)
def test_a_run_goes_on_while_its_snapshot_is_expired(site: Site) -> None:
    _, plan = site.bench.plan()
    assert plan.snapshot_id is not None
    with StateStore.open(site.neve.connection.state_url) as store:
        store.begin(JournaledRun(run_id="r1", owner="elsewhere:1", started_ms=1, plan=plan, groups=()))
    site.append(30, 31)
    site.clock.days = 10
    assert len(site.neve.expire(site.name).expired) > 0
    site.sweep()
    table = site.load()
    assert table.snapshot_by_id(plan.snapshot_id) is not None, f"lost snapshot {plan.snapshot_id}"
    assert sorted(table.scan(snapshot_id=plan.snapshot_id).to_arrow()["id"].to_pylist()) == list(range(30))
    site.assert_whole(main=range(31))


@accident(
    "A streaming job did not find the snapshot of its last commit any more, and wrote its rows twice",
    evidence="iceberg #9002",
    guard="the newest snapshot of every streaming writer is kept, told by a key in its summary",
    without=[answering(_Past.for_consumers, "iter(())")],
    sees="other rows",
)
def test_a_stream_goes_on_after_an_expiry(bench: Bench, benches: Callable[[], Bench], tmp_path: Path) -> None:
    table, source = Expiring.make(bench), Expiring.make(benches())
    source.append(1)

    def stream() -> None:
        reading = bench.spark.readStream.format("iceberg").load(source.bench.sql_name)
        writing = reading.writeStream.format("iceberg").option("checkpointLocation", str(tmp_path / "point"))
        writing.trigger(availableNow=True).toTable(bench.sql_name).awaitTermination(120)

    stream()
    for i in range(2, 5):
        table.append(i)
    rules = Rules(7 * DAY, 1, consumers=("spark.sql.streaming.queryId",), consumer_keep_ms=30 * DAY)
    record = table.expire(rules)
    # The last epoch is committed again, as after a crash: the sink finds its snapshot and passes it over.
    for commit in (tmp_path / "point" / "commits").iterdir():
        commit.unlink()
    stream()
    assert_whole(bench.load(), {"main": [1, 2, 3, 4]})
    assert record.kept == {Keep.HEAD: 1, Keep.CONSUMER: 3}
    table.days = 31
    assert len(table.expire(rules).expired) == 3


@pytest.fixture
def replaced(sites: Make) -> Site:
    """Ids 0 to 9 until two weeks ago, 10 to 19 since."""
    site = sites(ids=10)
    replace(site)
    return site


def replace(site: Site) -> None:
    with closing(site.bench.catalog()) as catalog:
        catalog.load_table(("accidents", site.bench.name)).overwrite(rows(range(10, 20)))
    site.age()
    site.clock.days = 14


@accident(
    "A writer took longer than the age of orphans, and committed after its file was found to be one",
    evidence="iceberg #4194",
    guard="after the grace time every file is looked up in the table's newest metadata, and again before it goes for good",
    without=[answering(quarantine._needed, "set()")],
    sees="lost files",
)
def test_a_writer_commits_during_the_grace_time(site: Site) -> None:
    slow = site.write("data/slow.parquet", 30)
    assert site.run().taken == 1
    site.commit(slow)
    site.clear()
    site.assert_whole(main=range(31))


@accident(
    "A query that had begun on an older snapshot found its files deleted",
    evidence="iceberg #9002",
    guard="files stay in their place for the grace time",
    without=[answering(waiting_since_ms, "now_ms + 1")],
    sees="lost files",
)
def test_a_query_reads_on_while_its_snapshot_is_expired(replaced: Site) -> None:
    old = replaced.load().snapshots()[0].snapshot_id
    planned = [task.file.file_path for task in replaced.load().scan(snapshot_id=old).plan_files()]
    assert old in replaced.neve.expire(replaced.name).expired
    replaced.neve.settle(replaced.name)
    assert_there(planned)
    replaced.assert_whole(main=range(10, 20))


@accident(
    "Files were deleted that somebody wanted back",
    evidence="OpenHouse's trash, Nessie's deferred deletes, DuckLake's scheduled deletes",
    guard="files go to a trash before they are deleted, and `neve restore` brings them back from there",
    without=[answering(StoredFiles.move, "self.delete([source for source, _ in moves], proof)")],
    sees="lost files",
)
def test_an_expired_snapshot_is_wanted_back(sites: Make) -> None:
    site = sites(ids=10)
    before = site.load().metadata_location
    replace(site)
    record = site.neve.expire(site.name)
    site.clock.days += 2
    assert site.neve.settle(site.name).files > 0
    assert site.neve.restore(record.run_id).note == EXPIRED_STAYS
    assert_whole(StaticTable.from_metadata(before), {"main": range(10)})
    site.assert_whole(main=range(10, 20))


@accident(
    "Older metadata was registered again, and purging failed as if the catalog did not answer, without a way out",
    evidence="Neve's own trials",
    guard="a file that the metadata needs and the trash has is named, with the command that brings it back",
    without=[answering(trash_needed._in_the_trash, "None")],
    sees="no way back",
)
def test_older_metadata_is_registered_again(sites: Make) -> None:
    site = sites(ids=10)
    before = site.load().metadata_location
    replace(site)
    record = site.neve.expire(site.name)
    site.clock.days += 2
    site.neve.settle(site.name)
    with closing(site.bench.catalog()) as catalog:
        catalog.drop_table(site.name)
        catalog.register_table(site.name, before)
    site.bench.sql("REFRESH TABLE {}")
    site.clock.days += 10
    with pytest.raises(NeveError) as refused:
        site.neve.purge(site.name)
    assert f"neve restore {record.recorded_id[:8]}" in str(refused.value.hint), f"no way back: {refused.value}"
    site.neve.restore(record.run_id)
    site.assert_whole(main=range(10))


@pytest.fixture
def branched(sites: Make, tmp_path: Path) -> Iterator[tuple[Site, Table]]:
    """A table with another branch of its catalog, as Nessie has them: the same table at other metadata, seen only there."""
    site = sites({"gc.enabled": "false"}, ids=10)
    with closing(SqlCatalog("branch", uri=f"sqlite:///{tmp_path}/branch.db", warehouse=str(tmp_path))) as branch:
        branch.create_namespace("db")
        table = branch.register_table(("db", "t"), site.load().metadata_location)
        replace(site)
        yield site, table


@accident(
    "Expiry on one branch of the catalog deleted the files of another",
    evidence="iceberg #5718, #9562, #17791, nessie #855, #10046",
    guard="with gc.enabled=false expiry takes metadata alone; the quarantine moves no file of such a table",
    behind=[answering(_Expiry._metadata_only, "None")],
    without=[answering(files_may_be_removed, "True")],
    sees="lost files",
)
def test_a_catalog_has_branches_and_snapshots_are_expired(branched: tuple[Site, Table]) -> None:
    site, branch = branched
    assert len(site.neve.expire(site.name).expired) > 0
    site.clear()
    assert_whole(branch, {"main": range(10)})
    site.assert_whole(main=range(10, 20))


@accident(
    "The orphan job on one branch of the catalog deleted the files of another",
    evidence="iceberg #5718",
    guard="orphans are not looked for where gc.enabled=false",
    without=[answering(_Search._refuse_kept_tables, "None")],
    sees="lost files",
)
def test_a_catalog_has_branches_and_orphans_are_removed(branched: tuple[Site, Table]) -> None:
    site, branch = branched
    site.neve.expire(site.name)
    site.search()
    assert_whole(branch, {"main": range(10)})


@accident(
    "A rule of the bucket deleted old files, and nobody knew until a query failed",
    evidence="Slack's notes",
    guard="files that the table needs and that are gone are told by `neve orphans`, and so are rules that delete",
    without=[answering(SparkOrphanSearch._absent, "iter(())")],
    sees="nobody was told of",
)
def test_others_delete_a_file_that_is_needed(site: Site) -> None:
    gone = sorted(site.bench.paths())[0]
    content = Path(gone).read_bytes()
    Path(gone).unlink()
    warnings = site.run().warnings
    assert warnings == (f"1 file that the table needs is not there, such as {gone}",), f"nobody was told of {gone}"
    Path(gone).write_bytes(content)
    site.assert_whole(main=range(30))
