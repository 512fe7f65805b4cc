"""The rules of a commit, one by one, on real Iceberg: a writer strikes after the files are written, or after the last check."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.commit.protocol import COMMIT_ID
from neve.errors import CommitConflictError, CommitUnknownError
from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from tests.builders.spark_tables import Bench, StrikingBridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none', 'write.delete.distribution-mode' = 'none'"
)
NUMBERS = count(1)
ROWS = list(range(30))

Make = Callable[..., Bench]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    """A table of three files with ten ids each; `bench.inputs` are the first two, the third is nobody's business."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.rules")

    def make(version: int = 2, location: str | None = None, properties: str = "") -> Bench:
        bench = Bench(spark, warehouse, "rules", f"t{next(NUMBERS)}")
        where = f"LOCATION '{location}/{bench.name}'" if location else ""
        bench.sql(
            f"CREATE TABLE {{}} (id BIGINT, v DOUBLE) USING iceberg {where} "
            f"TBLPROPERTIES ('format-version' = '{version}', {MERGE_ON_READ}{properties})"
        )
        for start in (0, 10, 20):
            append(bench, start)
            if start == 10:
                bench.inputs = bench.paths()
        return bench

    return make


def append(bench: Bench, start: int, rows: int = 10) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id, CAST(id AS DOUBLE) FROM range({start}, {start + rows}, 1, 1)")


def ended(record: RunRecord) -> tuple[GroupState, str]:
    """The state of the one group, and the reason."""
    (group,) = record.groups
    return group.state, group.reason


def committed(bench: Bench, record: RunRecord, ids: list[int]) -> None:
    """Ours is in, and every reader sees these ids."""
    assert ended(record)[0] is GroupState.COMMITTED, ended(record)
    assert record.outcome is RunOutcome.DONE
    assert not bench.paths() & bench.inputs
    same(bench, ids)


def same(bench: Bench, ids: list[int]) -> None:
    assert bench.ids() == ids
    assert len(bench.duckdb()) == len(ids)


def dropped(bench: Bench, record: RunRecord, ids: list[int]) -> str:
    """Ours is not in, all of it is in the quarantine, and every reader sees these ids."""
    state, reason = ended(record)
    assert state in (GroupState.DROPPED, GroupState.SUPERSEDED), (state, reason)
    written = [output.path for group in record.groups for output in group.outputs]
    assert sorted(bench.quarantine.paths) == sorted(written) != []
    assert {run for _, run, _ in bench.quarantine.recorded.values()} == {record.run_id}
    assert all(Path(path).exists() for path in written)
    same(bench, ids)
    return reason


def test_an_append_does_not_matter(make: Make) -> None:
    bench = make()
    record = bench.compact(paths=bench.inputs, strike=lambda: append(bench, 30, 1))
    committed(bench, record, [*ROWS, 30])
    snapshot = bench.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["neve.run-id"] == record.run_id


def test_an_append_after_the_last_check_does_not_matter(make: Make) -> None:
    bench = make()
    record = bench.compact(paths=bench.inputs, strike_at_commit=lambda: append(bench, 30, 1))
    committed(bench, record, [*ROWS, 30])


def test_an_overwrite_of_an_input_supersedes_and_is_no_failure(make: Make) -> None:
    bench = make()
    record = bench.compact(paths=bench.inputs, strike=lambda: bench.sql("DELETE FROM {} WHERE id < 10"))
    assert "1 of 2 inputs are no longer live" in dropped(bench, record, ROWS[10:])
    assert record.outcome is RunOutcome.DONE


def test_a_compaction_by_others_after_the_last_check_supersedes(make: Make) -> None:
    bench = make()
    rewrite = f"CALL local.system.rewrite_data_files(table => 'rules.{bench.name}', options => map('rewrite-all', 'true'))"
    record = bench.compact(paths=bench.inputs, strike_at_commit=lambda: bench.spark.sql(rewrite).collect())
    assert "2 of 2 inputs are no longer live" in dropped(bench, record, ROWS)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_delete_on_an_input_drops_the_group_and_the_row_stays_deleted(make: Make, version: int, moment: str) -> None:
    bench = make(version)
    strike = {moment: lambda: bench.sql("DELETE FROM {} WHERE id = 3")}
    record = bench.compact(paths=bench.inputs, **strike)  # type: ignore[arg-type]
    assert "changed meanwhile" in dropped(bench, record, [i for i in ROWS if i != 3])


def test_a_position_delete_on_another_file_of_the_partition_does_not_matter(make: Make) -> None:
    bench = make(properties=", 'write.delete.granularity' = 'partition'")
    record = bench.compact(paths=bench.inputs, strike=lambda: bench.sql("DELETE FROM {} WHERE id = 25"))
    committed(bench, record, [i for i in ROWS if i != 25])


@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_late_equality_delete_still_applies_where_an_old_file_survives(make: Make, moment: str) -> None:
    bench = make()
    record = bench.compact(paths=bench.inputs, **{moment: lambda: bench.delete_equal(3, 25)})  # type: ignore[arg-type]
    committed(bench, record, [i for i in ROWS if i not in (3, 25)])
    append(bench, 40, 1)  # the next commit must not take the delete along either
    same(bench, [*(i for i in ROWS if i not in (3, 25)), 40])


@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_late_equality_delete_drops_the_group_where_no_old_file_survives(make: Make, moment: str) -> None:
    bench = make()

    def strike() -> None:
        bench.delete_equal(3)
        append(bench, 30, 1)

    record = bench.compact(**{moment: strike})  # type: ignore[arg-type]
    reason = dropped(bench, record, [*(i for i in ROWS if i != 3), 30])
    assert "no file that stays would keep it alive" in reason


def test_the_last_old_file_leaving_after_the_last_check_is_noticed_and_taken_back(make: Make) -> None:
    bench = make()

    def late_delete() -> None:
        bench.delete_equal(3)
        append(bench, 30, 1)

    drop = "DELETE FROM {} WHERE id >= 20 AND id < 30"
    record = bench.compact(paths=bench.inputs, strike=late_delete, strike_at_commit=lambda: bench.sql(drop))

    state, reason = ended(record)
    assert state is GroupState.IN_DOUBT
    assert reason.startswith("rolled back, for it took 1 deletes out of the table that are newer than its plan")
    same(bench, [*(i for i in range(20) if i != 3), 30])
    assert bench.inputs <= bench.paths()


@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_deletes_that_a_replace_commit_added_do_not_slip_through(make: Make, moment: str) -> None:
    bench = make(properties=", 'write.delete.granularity' = 'partition'")
    bench.sql("DELETE FROM {} WHERE id IN (3, 13)")
    again = (
        f"CALL local.system.rewrite_position_delete_files(table => 'rules.{bench.name}', options => map('rewrite-all', 'true'))"
    )
    before = bench.deletes()
    record = bench.compact(paths=bench.inputs, **{moment: lambda: bench.spark.sql(again).collect()})  # type: ignore[arg-type]

    assert not bench.deletes() & before
    same(bench, [i for i in ROWS if i not in (3, 13)])
    state, reason = ended(record)
    assert state is (GroupState.DROPPED if moment == "strike" else GroupState.IN_DOUBT)
    assert "changed meanwhile" in reason


def test_the_plans_snapshot_being_expired_does_not_matter(make: Make) -> None:
    bench = make()

    def strike() -> None:
        append(bench, 30, 1)
        bench.expire()

    record = bench.compact(paths=bench.inputs, strike=strike)
    assert not bench.bridge.knows(record.snapshot_before or 0)
    committed(bench, record, [*ROWS, 30])


def test_a_late_equality_delete_still_applies_where_the_plans_snapshot_was_expired(make: Make) -> None:
    bench = make()

    def strike() -> None:
        bench.delete_equal(3)
        bench.expire()

    committed(bench, bench.compact(paths=bench.inputs, strike=strike), [i for i in ROWS if i != 3])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')", "format version 2 became 3"),
        ("ALTER TABLE {} ADD COLUMN more STRING", "schema 0 became 1"),
        ("ALTER TABLE {} ADD PARTITION FIELD bucket(2, id)", "partition spec 0 became 1"),
        ("ALTER TABLE {} WRITE ORDERED BY id", "sort order 0 became 1"),
    ],
)
def test_a_change_of_the_tables_shape_drops_the_group(make: Make, change: str, reason: str) -> None:
    bench = make()
    record = bench.compact(paths=bench.inputs, strike=lambda: bench.sql(change))
    assert dropped(bench, record, ROWS) == reason


def test_an_upgrade_after_the_last_check_is_taken_back_where_rows_had_ids_by_then(make: Make) -> None:
    bench = make()

    def strike() -> None:
        bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
        append(bench, 30, 1)
        strike.ids = bench.rows("_row_id, id")  # type: ignore[attr-defined]

    record = bench.compact(paths=bench.inputs, strike_at_commit=strike)
    assert ended(record)[1] == "rolled back, for rows that had an id by then were rewritten without it"
    assert bench.rows("_row_id, id") == strike.ids  # type: ignore[attr-defined]
    same(bench, [*ROWS, 30])


class _Twice(StrikingBridge):
    """Tries a commit that has landed once more, as a client does whose answer was lost."""

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        super().rewrite(*args, **kwargs)
        self.table.refresh()
        super().rewrite(*args, **kwargs)


class _Deaf(StrikingBridge):
    """Never hears the answer."""

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        super().rewrite(*args, **kwargs)
        raise CommitUnknownError("Cannot tell whether the commit landed: nobody answered")


@pytest.mark.parametrize("kind", [_Twice, _Deaf])
def test_our_own_landed_commit_is_recognised_whatever_was_answered(
    make: Make, kind: type[StrikingBridge], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    monkeypatch.setattr("tests.builders.spark_tables.StrikingBridge", kind)
    record = bench.compact(paths=bench.inputs)
    committed(bench, record, ROWS)
    ours = [s for s in bench.load().snapshots() if s.summary is not None and s.summary.get(COMMIT_ID)]
    assert [s.snapshot_id for s in ours] == list(record.snapshots)


def test_committing_what_has_landed_again_raises_a_conflict_and_not_something_unknown(make: Make) -> None:
    """The fact on which the rule stands: the second try of a commit that had landed looks like a definite refusal."""
    bench = make()
    bench.compact(paths=bench.inputs)
    head = bench.bridge.head()
    assert head is not None
    missing = {"spec-id": 0, "content": "data", "file-path": "/gone.parquet", "file-format": "parquet", "partition": []}
    missing |= {"file-size-in-bytes": 10, "record-count": 1}
    with pytest.raises(CommitConflictError, match="Missing required files to delete"):
        bench.bridge.rewrite([missing], [], head=head, sequence_number=None, summary={})


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.SPARK])
def test_paths_are_spelled_as_the_table_spells_them(make: Make, warehouse: Path, kernel: Kernel) -> None:
    bench = make(location=f"{warehouse}/spelling")
    location = bench.load().location()
    assert location.startswith("file:/")  # the other tables here have locations without a scheme
    committed(bench, bench.compact(kernel, paths=bench.inputs), ROWS)
    assert all(path.startswith(f"{location}/data/") for path in bench.paths())
    bench.sql("DELETE FROM {} WHERE id = 3")  # a position delete names the file by its path
    assert len(bench.deletes()) == 1
    same(bench, [i for i in ROWS if i != 3])


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_whose_rows_are_all_deleted_leaves_no_file(make: Make, version: int) -> None:
    bench = make(version)
    bench.sql("DELETE FROM {} WHERE id < 20 AND id % 2 = 0")
    bench.delete_equal(*range(1, 20, 2))
    record = bench.compact(paths=bench.inputs)
    committed(bench, record, ROWS[20:])
    assert len(bench.paths()) == 1
