"""Snapshots are expired on real Iceberg. What was written down is then removed from the disk, and every ref read by another
engine: nothing that any of them needs may have been among it, and nothing else may be left."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.errors import BadRequestError, CommitUnknownError, VerificationError
from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.quarantine import Candidate
from neve.maintenance.retention import Keep
from neve.rewrite.record import RunOutcome
from neve.spark.maintenance.expiry import SparkSnapshotRemoval
from neve.spark.maintenance.reachable import SparkReachability, known_files
from neve.spark.table.bridge import TableBridge
from tests.builders.expired_tables import DAY, WEEK, Expiring, Later, on_spark
from tests.builders.spark_connections import opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
Make = Callable[..., Expiring]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.expiry")

    def make(**properties: str) -> Expiring:
        return Expiring.make(Bench(spark, warehouse, "expiry", f"t{next(NUMBERS)}"), **properties)

    return make


@pytest.fixture
def forked(make: Make) -> Expiring:
    """Files that main has no more are still those of a branch and of a tag, and one of these two is of that ref alone."""
    table = make()
    table.append(1, 2)
    table.branch("audit")
    table.append(30, branch="audit")
    table.append(3)
    table.tag("three")
    table.overwrite(5, 6)
    table.append(7)
    table.overwrite(8, 9)
    return table


ROWS = {"main": [8, 9], "audit": [1, 2, 30], "three": [1, 2, 3]}


UNSIZED = {"manifest list of an expired snapshot", "metadata or statistics that the table names no more"}


def assert_sizes(table: Expiring, record: ExpiryRecord) -> None:
    """Every recorded size is that on disk, and only files whose size no metadata has are without one."""
    rows = table.quarantine.files.values()
    sized = {row.path: row.size_bytes for row in rows if row.size_bytes is not None}
    assert sized == {path: Path(path.removeprefix("file:")).stat().st_size for path in sized}
    assert {row.reason for row in rows if row.size_bytes is None} <= UNSIZED
    assert (record.size_bytes, record.files_without_size) == (sum(sized.values()), len(rows) - len(sized))


def test_every_ref_reads_in_full_when_all_that_was_written_down_is_gone(forked: Expiring) -> None:
    assert forked.ids_of_refs() == ROWS
    disk = forked.on_disk()
    record = forked.expire()
    assert (record.outcome, record.reason) == (RunOutcome.DONE, None)
    assert (record.snapshots_before, len(record.expired), record.kept) == (8, 5, {Keep.HEAD: 2, Keep.TAG: 1})
    assert disk <= forked.on_disk()
    assert record.recorded == len(forked.quarantine.recorded) > 3
    assert_sizes(forked, record)
    sized = {row.reason for row in forked.quarantine.files.values() if row.size_bytes}
    assert sized == {"data file of expired snapshots", "manifest of expired snapshots"}
    assert forked.remove_recorded() <= disk
    assert forked.ids_of_refs() == ROWS
    assert forked.on_disk() == forked.named()


def test_a_dry_run_lists_what_the_run_then_writes_down_and_changes_nothing(forked: Expiring) -> None:
    location, disk = forked.bench.load().metadata_location, forked.on_disk()
    told = forked.expire(dry_run=True)
    assert (forked.bench.load().metadata_location, forked.on_disk(), forked.quarantine.files) == (location, disk, {})
    record = forked.expire()
    assert set(told.listed) == forked.quarantine.recorded
    assert (told.expired, told.files, told.kept) == (record.expired, record.files, record.kept)
    assert (told.size_bytes, told.files_without_size) == (record.size_bytes, record.files_without_size)
    assert forked.expire().outcome is RunOutcome.NOTHING_TO_DO


def test_a_table_whose_files_others_may_need_loses_metadata_alone(make: Make) -> None:
    # Nessie's branches are not Iceberg's: its tables say so, and the files of other branches are invisible from this one.
    table = make(**{"gc.enabled": "false"})
    table.append(1)
    table.append(2)
    record = table.expire()
    assert len(record.expired) == 1
    assert record.metadata_only == "the table says gc.enabled=false: another catalog may need its files"
    assert (record.files, table.quarantine.files) == ({}, {})
    bridge = TableBridge(table.bench.spark, table.bench.state().name)
    with known_files(table.bench.spark, bridge) as known:
        assert {row.path for row in known.collect()} >= table.bench.paths()


def test_a_reader_of_an_expired_snapshot_still_reads_it(forked: Expiring) -> None:
    old = forked.snapshots()[0]
    planned = forked.sql(f"SELECT id FROM {{}} VERSION AS OF {old}").rdd  # read only after the snapshot is gone
    record = forked.expire(snapshots=(old,))
    assert (record.expired, old in forked.snapshots()) == ((old,), False)
    assert sorted(row.id for row in planned.collect()) == [1, 2]


def test_a_tag_that_comes_between_plan_and_commit_keeps_its_snapshot(forked: Expiring) -> None:
    first = forked.snapshots()[0]
    record = forked.expire(strike=lambda: forked.tag("late", first))
    assert (record.outcome, len(record.expired), record.kept[Keep.TAG]) == (RunOutcome.DONE, 4, 2)
    forked.remove_recorded()
    assert forked.ids_of_refs() == ROWS | {"late": [1, 2]}


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(forked: Expiring) -> None:
    record = forked.expire(replace(WEEK, limit=2), loses_answer=CommitUnknownError("Cannot tell whether the commit landed: x"))
    assert (record.outcome, len(record.expired), record.kept[Keep.LIMIT]) == (RunOutcome.DONE, 2, 3)
    assert len(forked.snapshots()) == 6
    forked.remove_recorded()
    assert forked.ids_of_refs() == ROWS


def test_metadata_that_would_lose_a_ref_is_not_sent(forked: Expiring) -> None:
    past = SparkSnapshotRemoval(TableBridge(forked.bench.spark, forked.bench.state().name))
    history = past.history()
    with pytest.raises(VerificationError, match="Cannot expire snapshots: three would go with them"):
        past.expire(history, [forked.snapshot("three")], properties={})
    assert forked.ids_of_refs() == ROWS


def test_branches_go_by_their_own_retention_and_refs_only_by_their_own_age(make: Make) -> None:
    table = make(**{"history.expire.max-ref-age-ms": "1"})  # Iceberg's expiry would drop every ref by this
    for i in range(4):
        table.append(i)
    table.branch("long", max_ref_age_ms=30 * DAY, max_snapshot_age_ms=20 * DAY, min_snapshots_to_keep=3)
    table.tag("short", max_ref_age_ms=5 * DAY)
    table.tag("forever")
    table.append(4)
    record = table.expire()
    assert (record.refs_removed, record.expired) == (("short",), ())
    table.days = 25
    record = table.expire()
    assert (len(record.expired), record.kept) == (1, {Keep.HEAD: 2, Keep.COUNT: 2})
    assert table.ids_of_refs() == {"main": [0, 1, 2, 3, 4], "long": [0, 1, 2, 3], "forever": [0, 1, 2, 3]}


def test_a_vector_file_stays_while_one_of_its_vectors_is_live(spark: SparkSession, warehouse: Path) -> None:
    table = Expiring(Bench(spark, warehouse, "expiry", "vectors"))
    how = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.delete.distribution-mode' = 'none'"
    table.sql(f"CREATE TABLE {{}} (id BIGINT, region STRING) USING iceberg TBLPROPERTIES ({how})")
    table.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(0, 10)")
    table.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, 'b' FROM range(10, 20)")
    table.sql("DELETE FROM {} WHERE id IN (3, 13)")
    shared = table.bench.deletes()
    table.sql("DELETE FROM {} WHERE id = 4")
    vectors, ids = table.bench.deletes(), [i for i in range(20) if i not in (3, 4, 13)]
    assert (len(shared), len(vectors), shared < vectors) == (1, 2, True)
    record = table.expire()
    assert len(record.expired) == 3
    assert_sizes(table, record)
    assert not vectors & table.remove_recorded()
    assert sorted(int(row.split("'id': ")[1].split(",")[0]) for row in table.bench.duckdb()) == ids


def test_specs_that_use_one_field_id_for_two_fields_cost_only_the_sizes_of_data_files(
    spark: SparkSession, warehouse: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """As old writers left tables of format version 1: Iceberg cannot list the files of such a table."""
    table = make().bench.name  # the namespace is there
    bench = Bench(spark, warehouse, "expiry", f"{table}_specs")
    bench.sql(
        "CREATE TABLE {} (id BIGINT, part BIGINT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '1')"
    )
    for n in (1, 2):
        bench.sql(f"INSERT OVERWRITE {{}} VALUES ({n}, 1)")
    with closing(bench.catalog()) as catalog:
        location = catalog.load_table(("expiry", bench.name)).metadata_location.removeprefix("file:")
        metadata = json.loads(Path(location).read_text())
        (first,) = metadata["partition-specs"]
        field = {"name": "id_bucket", "transform": "bucket[4]", "source-id": 1, "field-id": first["fields"][0]["field-id"]}
        metadata["partition-specs"].append({"spec-id": 1, "fields": [field]})
        changed = Path(location).with_name("00009-changed.metadata.json")
        changed.write_text(json.dumps(metadata))
        catalog.drop_table(("expiry", bench.name))
        catalog.register_table(("expiry", bench.name), str(changed))
    old = Expiring(bench, reach=on_spark)  # in Python the sizes are known
    record = old.expire()
    assert (record.outcome, len(record.expired)) == (RunOutcome.DONE, 1)
    sized = {row.reason: row.size_bytes is not None for row in old.quarantine.files.values()}
    assert sized["data file of expired snapshots"] is False
    assert sized["manifest of expired snapshots"] is True
    assert "the sizes of expired files are not known yet" in caplog.text
    old.remove_recorded()
    assert old.ids_of_refs() == {"main": [2]}


def test_statistics_go_with_their_snapshot_and_old_metadata_by_its_number(make: Make) -> None:
    table = make()
    for i in (1, 2):
        table.append(i)
        table.add_statistics()
    record = table.expire(metadata_keep=2)
    assert (len(record.expired), record.metadata_keep) == (1, 2)
    assert record.files["statistics of an expired snapshot"] == 1
    assert_sizes(table, record)
    assert [row.size_bytes for path, row in table.quarantine.files.items() if path.endswith(".stats")] == [4]
    assert record.files["metadata or statistics that the table names no more"] > 1
    table.remove_recorded()
    after = table.bench.load().metadata
    assert (after.properties["write.metadata.previous-versions-max"], len(after.metadata_log)) == ("2", 2)
    # Taking the run's mark off is one more commit, after all was written down: one version more has left the log.
    left = table.on_disk() - table.named()
    assert [path.endswith(".metadata.json") for path in left] == [True]
    assert table.ids_of_refs() == {"main": [1, 2]}


def test_an_expiry_ends_though_files_of_a_killed_one_were_removed_as_orphans(forked: Expiring) -> None:
    before = forked.bench.load()
    assert len(forked.expire(metadata_only=True).expired) == 5  # as one that was killed before it wrote anything down
    for gone in {found.snapshot_id for found in before.snapshots()} - {*forked.snapshots()}:
        Path(str(before.snapshot_by_id(gone).manifest_list).removeprefix("file:")).unlink()
    forked.overwrite(10)
    record = forked.expire(tools={"killed": lambda: [{"metadata_before": before.metadata_location}]})
    assert (record.outcome, len(record.expired)) == (RunOutcome.PARTLY_DONE, 2)
    assert f"what {before.metadata_location} named could not be found out" in str(record.reason)
    assert record.recorded == len(forked.quarantine.recorded) > 1
    forked.remove_recorded()
    assert forked.ids_of_refs() == ROWS | {"main": [10]}


def test_a_moment_stays_where_it_is_however_long_the_run_takes(make: Make, tmp_path: Path) -> None:
    class Hurried(Later):
        """Between any two looks at it a minute passes."""

        def now_ms(self) -> int:
            self.days += 1 / 1440
            return super().now_ms()

    table = make()
    for i in range(4):
        table.append(i)
    first, _, third, _ = sorted(table.bench.load().metadata.snapshots, key=lambda found: found.sequence_number or 0)
    moment = datetime.fromtimestamp(third.timestamp_ms / 1000, UTC).isoformat()
    with opened(table.bench.spark, table.bench.warehouse, tmp_path / "state.db", clock=Hurried(10)) as neve:
        record = neve.expire(f"expiry.{table.bench.name}", older_than=moment, dry_run=True)
    assert (record.expired, record.kept) == ((first.snapshot_id,), {Keep.HEAD: 1, Keep.AGE: 1, Keep.PERIOD_START: 1})


def test_files_are_told_by_any_spelling(forked: Expiring) -> None:
    bridge = TableBridge(forked.bench.spark, forked.bench.state().name)
    files = SparkReachability(forked.bench.spark, bridge)
    path = next(iter(forked.bench.paths()))
    asked = [f"file:{path}", f"file://{path}", f"file:////{path}", f"{path}x", "s3://bucket/elsewhere"]
    assert set(files.needed(asked)) == set(asked[:3])
    assert set(files.needed([])) == set()
    location = forked.bench.load().metadata_location
    assert set(files.needed([location, location + ".old"])) == {location}
    assert list(files.lost_since(location)) == []


def test_a_file_that_is_needed_again_is_struck_off_the_list(forked: Expiring) -> None:
    needed = next(iter(forked.bench.paths()))

    class Mistaken(SparkReachability):
        def lost_since(self, metadata_location: str):  # type: ignore[no-untyped-def]
            yield from super().lost_since(metadata_location)
            yield Candidate(path=needed, reason="mistaken")

    bridge = TableBridge(forked.bench.spark, forked.bench.state().name)
    record = forked.expire(tools={"files": Mistaken(forked.bench.spark, bridge)})
    assert record.reason == "1 file came into use again meanwhile and stay"
    assert needed not in forked.remove_recorded()
    assert forked.ids_of_refs() == ROWS


def test_snapshots_asked_for_by_id_are_refused_where_somebody_needs_them(forked: Expiring) -> None:
    head = forked.snapshot("audit")
    with pytest.raises(BadRequestError, match=f"Cannot expire snapshot {head} of local.expiry.*: head of audit"):
        forked.expire(snapshots=(head,))
    with pytest.raises(BadRequestError, match=r"Cannot expire snapshot 5 of local.expiry.*: there is no such"):
        forked.expire(snapshots=(5,))
    assert forked.ids_of_refs() == ROWS
