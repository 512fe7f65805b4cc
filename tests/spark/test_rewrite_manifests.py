"""Manifests are rewritten on real Iceberg: pyiceberg and DuckDB find the same files, numbers and rows before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.errors import BadRequestError, CommitUnknownError, VerificationError
from neve.maintenance.manifests import ManifestGroup, ManifestPlan, ManifestReads, ManifestsRecord, Motive
from neve.rewrite.record import RunOutcome
from neve.spark.maintenance.manifests import SparkManifests
from neve.spark.table.bridge import TableBridge
from neve.table.units import MIB
from tests.builders.spark_connections import entries, manifest_paths, opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = count(1)
LINEAGE = "id, day, _row_id, _last_updated_sequence_number"
PLAIN = "'commit.manifest-merge.enabled' = 'false', 'write.distribution-mode' = 'none', 'write.delete.mode' = 'merge-on-read'"


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.lists")
    with opened(spark, warehouse, tmp_path_factory.mktemp("state") / "state.db", **{"policy.manifest-min-count": "3"}) as neve:
        yield neve


Make = Callable[..., Bench]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, neve: Neve) -> Make:  # noqa: ARG001 - it makes the namespace
    def make(version: int = 2, how: str = "PARTITIONED BY (day)", *, commits: int = 5, more: str = "") -> Bench:
        """Ids 0 to 10 * commits - 1, a file of each of five days in each commit."""
        bench = Bench(spark, warehouse, "lists", f"t{next(NUMBERS)}")
        properties = f"'format-version' = '{version}', {PLAIN}{more}"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, day INT) USING iceberg {how} TBLPROPERTIES ({properties})")
        for i in range(commits):
            append(bench, 10 * i)
        return bench

    return make


def append(bench: Bench, start: int, rows: int = 10) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id, CAST(id % 5 AS INT) FROM range({start}, {start + rows}, 1, 1)")


def run(neve: Neve, bench: Bench, **words: Any) -> ManifestsRecord:
    return neve.manifests(f"{bench.namespace}.{bench.name}", **words)


def row_ids(bench: Bench) -> list[Any]:
    bench.sql("REFRESH TABLE {}")
    return sorted(tuple(row) for row in bench.sql(f"SELECT {LINEAGE} FROM {{}}").collect())


@pytest.mark.parametrize("version", [2, 3])
def test_fewer_manifests_hold_the_same_entries_and_rows(make: Make, neve: Neve, version: int) -> None:
    bench = make(version)
    for gone in (3, 14):
        bench.sql(f"DELETE FROM {{}} WHERE id = {gone}")
    told, rows = entries(bench), bench.duckdb()
    ids = row_ids(bench) if version == 3 else []
    record = run(neve, bench)
    assert (record.outcome, record.reason) == (RunOutcome.DONE, None)
    assert (record.manifests_replaced, record.manifests_written, record.files) == (5, 1, 25)
    assert len(manifest_paths(bench)) == 1 + 2
    assert record.before is not None
    assert record.after is not None
    assert (record.before.whole, record.after.whole) == (7, 3)
    assert entries(bench) == told
    assert bench.duckdb() == rows
    assert len(rows) == 48
    if version == 3:
        assert row_ids(bench) == ids
    snapshot = bench.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert record.snapshots == (snapshot.snapshot_id,)
    assert (snapshot.summary.operation.value, snapshot.summary["neve.run-id"]) == ("replace", record.run_id)
    assert neve.runs(limit=1)[0].kind == "manifests"
    assert "neve.lease" not in bench.load().properties
    again = run(neve, bench)
    assert (again.outcome, again.snapshots) == (RunOutcome.NOTHING_TO_DO, ())


def test_a_dry_run_needs_no_spark_and_tells_what_the_run_does(make: Make, neve: Neve, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make()
    head, before = bench.load().metadata_location, set((bench.warehouse / "lists" / bench.name / "metadata").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(neve.connection, "session", None)
        told = run(neve, bench, dry_run=True)
    assert (bench.load().metadata_location, set((bench.warehouse / "lists" / bench.name / "metadata").iterdir())) == (
        head,
        before,
    )
    done = run(neve, bench)
    assert (told.manifests_replaced, told.manifests_written) == (done.manifests_replaced, done.manifests_written) == (5, 1)
    assert told.groups == done.groups
    assert told.after is not None
    assert done.after is not None
    assert (told.after.whole, told.after.one) == (done.after.whole, done.after.one) == (1, 1.0)


def test_a_query_of_one_partition_opens_few_where_manifests_are_sorted(make: Make, neve: Neve) -> None:
    bench = make(3, more=", 'commit.manifest.target-size-bytes' = '12000'", commits=8)
    told, ids = entries(bench), row_ids(bench)
    record = run(neve, bench, by=["day"])
    assert [group.motive for group in record.groups] == [Motive.CLUSTER]
    assert record.before is not None
    assert record.after is not None
    assert (record.before.one, record.manifests_replaced) == (8.0, 8)
    assert record.after.one is not None
    assert record.after.one <= record.after.whole / 2
    assert (entries(bench), row_ids(bench)) == (told, ids)
    assert run(neve, bench, by=["day"]).outcome is RunOutcome.NOTHING_TO_DO


def test_delete_manifests_are_merged_too(make: Make, neve: Neve) -> None:
    bench = make(3, commits=2)
    for i in range(5):
        bench.sql(f"DELETE FROM {{}} WHERE id = {i}")
    told, ids = entries(bench), row_ids(bench)
    record = run(neve, bench)
    assert [(group.holds_deletes, len(group.paths)) for group in record.groups] == [(True, 5)]
    assert (entries(bench), row_ids(bench)) == (told, ids)
    assert len(ids) == 15


def test_each_spec_keeps_its_own_manifests(make: Make, neve: Neve) -> None:
    bench = make(2)
    bench.sql("ALTER TABLE {} ADD PARTITION FIELD bucket(2, id)")
    for i in range(5):
        append(bench, 200 + 10 * i)
    told = entries(bench)
    record = run(neve, bench)
    assert sorted((group.spec_id, len(group.paths)) for group in record.groups) == [(0, 5), (1, 5)]
    assert entries(bench) == told
    bench.sql("REFRESH TABLE {}")
    specs = [row.partition_spec_id for row in bench.sql("SELECT partition_spec_id FROM {}.manifests").collect()]
    assert sorted(specs) == [0, 1]


def test_fields_that_the_spec_does_not_have_are_refused(make: Make, neve: Neve) -> None:
    bench = make(commits=1)
    with pytest.raises(BadRequestError, match=r"Cannot sort manifests of .* by city: city is no partition field"):
        run(neve, bench, by=["city"])


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Lets others do something between the writing and the first look before a commit; counts what is written."""

    def arm(strike: Callable[[], object]) -> list[int]:
        written: list[int] = []
        write = SparkManifests.write

        def struck(self: SparkManifests, plan: Any) -> Any:
            done = write(self, plan)
            written.append(len(done.added))
            if len(written) == 1:
                strike()
            return done

        monkeypatch.setattr(SparkManifests, "write", struck)
        return written

    return arm


def test_an_append_meanwhile_is_kept_and_costs_nothing(make: Make, neve: Neve, at_commit: Any) -> None:
    bench = make(3)
    written = at_commit(lambda: append(bench, 1000))
    record = run(neve, bench)
    assert (record.outcome, written) == (RunOutcome.DONE, [1])
    assert bench.ids() == [*range(50), *range(1000, 1010)]
    assert len(manifest_paths(bench)) == 2


def test_manifests_that_others_rewrite_meanwhile_are_written_again(make: Make, neve: Neve, at_commit: Any) -> None:
    bench = make(3)

    def strike() -> None:
        append(bench, 1000)
        bench.spark.sql(f"CALL local.system.rewrite_manifests('lists.{bench.name}')").collect()
        for i in range(5):
            append(bench, 2000 + 10 * i)

    written = at_commit(strike)
    record = run(neve, bench)
    assert (record.outcome, len(written)) == (RunOutcome.DONE, 2)
    assert bench.ids() == [*range(50), *range(1000, 1010), *range(2000, 2050)]


def test_row_ids_given_meanwhile_are_not_given_again(make: Make, neve: Neve, at_commit: Any) -> None:
    """After an upgrade rows get their ids at the next commit: manifests written before it know none of them."""
    bench = make(2)
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
    seen: list[Any] = []

    def strike() -> None:
        append(bench, 1000)
        seen.extend(row_ids(bench))

    written = at_commit(strike)
    record = run(neve, bench)
    assert (record.outcome, len(written)) == (RunOutcome.DONE, 2)
    assert row_ids(bench) == seen
    assert None not in {row[2] for row in seen}


def test_a_commit_whose_answer_was_lost_is_found_in_the_table(make: Make, neve: Neve, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(2)
    told, commit, sent = entries(bench), SparkManifests.commit, []

    def lost(self: SparkManifests, *args: Any) -> None:
        sent.append(1)
        commit(self, *args)
        raise CommitUnknownError("Cannot tell whether the commit landed: the line broke")

    monkeypatch.setattr(SparkManifests, "commit", lost)
    record = run(neve, bench)
    assert (record.outcome, len(sent), len(record.snapshots)) == (RunOutcome.DONE, 1, 1)
    assert entries(bench) == told


def test_manifests_that_lost_an_entry_are_never_committed(make: Make, neve: Neve, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(2)
    head, found = bench.load().metadata.current_snapshot_id, SparkManifests._entries
    calls = count()

    def fewer(self: SparkManifests, table: Any) -> DataFrame:
        seen = found(self, table)
        return seen if next(calls) == 0 else seen.limit(24)

    monkeypatch.setattr(SparkManifests, "_entries", fewer)
    with pytest.raises(VerificationError, match=r"they hold 24 files where 25 were"):
        run(neve, bench)
    assert bench.load().metadata.current_snapshot_id == head


def test_a_plan_of_manifests_that_are_gone_writes_nothing_and_calls_no_live_list_a_leftover(make: Make) -> None:
    bench = make(commits=1)
    before = ManifestPlan(
        snapshot_id=bench.load().metadata.current_snapshot_id,
        groups=(
            ManifestGroup(spec_id=0, holds_deletes=False, motive=Motive.MERGE, paths=("gone",), bytes=1, files=1, outputs=1),
        ),
        target_bytes=8 * MIB,
        before=ManifestReads(whole=1, one=None, seconds=0),
        after=ManifestReads(whole=1, one=None, seconds=0),
    )
    bridge = TableBridge(bench.spark, bench.state().name)
    written = SparkManifests(bench.spark, bridge).write(before)
    assert (written.replaced, written.added, written.leftovers) == ({}, (), ())


def test_a_rewrite_of_manifests_can_be_rolled_back(make: Make, neve: Neve) -> None:
    bench = make(2)
    before, told = manifest_paths(bench), entries(bench)
    record = run(neve, bench)
    done = neve.roll_back(record.run_id)
    assert (done.from_snapshot, done.to_snapshot) == (record.snapshots[0], record.snapshot_before)
    assert (manifest_paths(bench), entries(bench)) == (before, told)
