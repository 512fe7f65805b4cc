"""Deletes in commits, on real Iceberg: each snapshot reads right to Spark and DuckDB, and a conflict leaves the table alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.errors import CommitConflictError, CommitUnknownError
from neve.rewrite.live_files import LiveFile, delete_key
from neve.spark.table.outcome import committing
from tests.builders.spark_files import TableFiles
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
SUMMARY = {"neve.run-id": "run", "neve.commit-id": "commit"}
MODES = "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none', 'write.delete.distribution-mode' = 'none'"

Make = Callable[..., TableFiles]
Send = Callable[[], None]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    """A table of three files with ten ids each, numbered 1 to 3."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.deltas")

    def make(version: int, *, scope: str = "file") -> TableFiles:
        bench = Bench(spark, warehouse, "deltas", f"t{next(NUMBERS)}")
        bench.sql(
            "CREATE TABLE {} (id BIGINT) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.granularity' = '{scope}', {MODES})"
        )
        for start in (0, 10, 20):
            append(bench, start)
        return TableFiles.on(bench, version)

    return make


@pytest.fixture(params=[2, 3])
def with_equality(make: Make, request: pytest.FixtureRequest) -> TableFiles:
    """A table where id 3 is deleted by position, 5 and 15 by equality."""
    hand = make(request.param)
    hand.bench.sql("DELETE FROM {} WHERE id = 3")
    hand.bench.delete_equal(5, 15)
    return hand


def append(bench: Bench, start: int, rows: int = 10) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + rows}, 1, 1)")


def without(*gone: int, upto: int = 30) -> list[int]:
    return [i for i in range(upto) if i not in gone]


def compact_by_others(bench: Bench) -> None:
    options = "options => map('rewrite-all', 'true')"
    bench.spark.sql(f"CALL local.system.rewrite_data_files(table => 'deltas.{bench.name}', {options})").collect()


def moving(hand: TableFiles, inputs: Sequence[LiveFile], late: Sequence[int], *, number: int | None, removes: bool) -> Send:
    """Replaces inputs by one file of all their rows, with deletes for the ids that were deleted late; ready to be sent."""
    head, output = hand.head(), hand.merged(inputs)
    paths = {file.path for file in inputs}
    old = {key: d for file in hand.live() if file.path in paths for key, d in file.described_deletes.items()}
    added = hand.deletes(output, [hand.ids_in(output["file-path"]).index(i) for i in late])
    return lambda: hand.bridge.rewrite(
        [file.data_file for file in inputs],
        [output],
        head=head,
        sequence_number=number,
        summary=SUMMARY,
        removed_deletes=list(old.values()) if removes else (),
        added_deletes=[added],
    )


def converting(hand: TableFiles, *, branch: str = "main") -> Send:
    """Replaces the equality delete of ids 5 and 15 where 3 is deleted by position; ready to be sent."""
    head, (first, second, third) = hand.head(branch), hand.live(branch)
    (equality,) = third.shared.deletes
    removed = [d for d in first.described_deletes.values() if d is equality or hand.version == 3]
    added = [hand.deletes(first.data_file, [3, 5] if hand.version == 3 else [5]), hand.deletes(second.data_file, [5])]
    referenced = [first.path, second.path, third.path]
    return lambda: hand.bridge.row_delta(added, removed, referenced=referenced, head=head, summary=SUMMARY, branch=branch)


def refused(hand: TableFiles, send: Send, reason: str, *, ids: list[int]) -> None:
    """A conflict, and the table is as others left it."""
    head = hand.head()
    with pytest.raises(CommitConflictError, match=reason):
        send()
    assert hand.head() == head
    assert hand.reads(head) == ids


def test_files_share_their_equality_deletes_even_if_a_scan_is_told_in_pieces(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = make(2)
    hand.bench.sql("DELETE FROM {} WHERE id IN (3, 13)")
    hand.bench.delete_equal(5, 15)
    whole = hand.live()
    monkeypatch.setattr("neve.spark.table.descriptions._CHUNK_WITH_DELETES", 1)
    pieces = hand.live()

    assert pieces == whole
    assert [len(file.position_deletes) for file in pieces] == [1, 1, 0]
    assert len({id(file.shared) for file in pieces}) == 1
    assert all(len(file.shared.deletes) == 1 for file in pieces)


def test_a_scan_describes_each_delete_once_and_every_sequence_number_is_known(make: Make) -> None:
    hand = make(3)
    hand.bench.sql("DELETE FROM {} WHERE id IN (3, 13)")  # one Puffin file with two vectors
    hand.bench.delete_equal(5, 15)
    append(hand.bench, 30)
    first, second, third, fourth = hand.live()

    assert [len(file.deletes) for file in (first, second, third, fourth)] == [2, 2, 1, 0]
    (equality,) = third.shared.deletes
    assert (equality["content"], equality["equality-ids"]) == ("equality-deletes", [1])
    assert all(any(each is equality for each in file.described_deletes.values()) for file in (first, second))
    vectors = [next(d for d in file.described_deletes.values() if d is not equality) for file in (first, second)]
    assert [vector["referenced-data-file"] for vector in vectors] == [first.path, second.path]
    assert vectors[0]["file-path"] == vectors[1]["file-path"]
    assert vectors[0]["content-offset"] != vectors[1]["content-offset"]

    described = hand.bridge.delete_files(hand.head())
    assert sorted(map(delete_key, described)) == sorted(first.deletes | second.deletes)
    assert hand.bridge.delete_files(hand.snapshots()[2].snapshot_id) == []
    assert [schema["schema-id"] for schema in hand.bridge.schemas_json()] == [0]

    numbers = {first.path: 1, second.path: 2, third.path: 3, vectors[0]["file-path"]: 4, equality["file-path"]: 5}
    assert hand.bridge.sequence_numbers(hand.head()) == {**numbers, fourth.path: 6}
    assert hand.bridge.sequence_numbers(hand.snapshots()[-2].snapshot_id) == numbers


@pytest.mark.parametrize("keeps_number", [True, False])
@pytest.mark.parametrize("version", [2, 3])
def test_a_late_delete_moves_to_the_output_in_one_snapshot(make: Make, version: int, keeps_number: bool) -> None:
    hand = make(version)
    inputs = hand.live()[:2] if keeps_number else hand.live()
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    head = hand.head()
    moving(hand, inputs, [13], number=3 if keeps_number else None, removes=True)()

    latest = hand.snapshots()[-1]
    assert latest.parent_snapshot_id == head
    assert {key: latest.summary[key] for key in SUMMARY} == SUMMARY
    assert (latest.summary["added-delete-files"], latest.summary["removed-delete-files"]) == ("1", "1")
    assert hand.reads(latest.snapshot_id) == without(13)
    output = hand.live()[0]
    numbers = hand.bridge.sequence_numbers(hand.head())
    assert (numbers[output.path], numbers[output.own[0]["file-path"]]) == (3 if keeps_number else 5, 5)
    append(hand.bench, 30)
    assert hand.reads(hand.head()) == without(13, upto=40)


@pytest.mark.parametrize("keeps_number", [True, False])
def test_where_no_delete_goes_the_new_ones_come_a_snapshot_before_the_output(make: Make, keeps_number: bool) -> None:
    hand = make(2, scope="partition")
    inputs = hand.live()[:2] if keeps_number else hand.live()
    hand.bench.sql("DELETE FROM {} WHERE id IN (13, 25)")  # one file that names two data files, one of which may stay
    head = hand.head()
    moving(hand, inputs, [13] if keeps_number else [13, 25], number=3 if keeps_number else None, removes=False)()

    *_, before, between, after = hand.snapshots()
    assert before.snapshot_id == head
    assert [hand.reads(each.snapshot_id) for each in (before, between, after)] == [without(13, 25)] * 3
    assert (between.summary.get("neve.run-id"), between.summary.get("neve.commit-id")) == ("run", None)
    assert {key: after.summary[key] for key in SUMMARY} == SUMMARY
    output = hand.live()[0]
    numbers = hand.bridge.sequence_numbers(hand.head())
    assert numbers[output.path] == (3 if keeps_number else 4)
    assert 5 in {numbers[path] for path, _ in output.deletes}
    append(hand.bench, 30)
    compact_by_others(hand.bench)
    assert hand.reads(hand.head()) == without(13, 25, upto=40)


@pytest.fixture(params=["before it is put together", "before it is sent"])
def strike_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets others do something between the last check and the commit."""

    def strike_at(strike: Callable[[], object]) -> None:
        if request.param == "before it is put together":
            strike()
            return

        @contextmanager
        def struck() -> Iterator[None]:
            strike()
            with committing():
                yield

        monkeypatch.setattr("neve.spark.table.deltas.committing", struck)

    return strike_at


StrikeAt = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize("removes", [True, False])
def test_others_may_append_between_check_and_commit(make: Make, strike_at: StrikeAt, removes: bool) -> None:
    hand = make(2)
    inputs = hand.live()[:2]
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    send = moving(hand, inputs, [13], number=3, removes=removes)
    strike_at(lambda: append(hand.bench, 30, 1))
    send()
    ours = hand.snapshots()[-1 if removes else -2 :]
    assert [hand.reads(each.snapshot_id) for each in ours] == [without(13, upto=31)] * len(ours)


@pytest.mark.parametrize("removes", [True, False])
def test_an_equality_delete_after_the_check_applies_to_the_output_where_an_old_file_stays(
    make: Make, strike_at: StrikeAt, removes: bool
) -> None:
    hand = make(2)
    inputs = hand.live()[:2]
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    send = moving(hand, inputs, [13], number=3, removes=removes)
    strike_at(lambda: hand.bench.delete_equal(7))
    send()
    ours = hand.snapshots()[-1 if removes else -2 :]
    assert [hand.reads(each.snapshot_id) for each in ours] == [without(7, 13)] * len(ours)


@pytest.mark.parametrize(
    ("removes", "reason"),
    [(True, "found new delete for replaced data file"), (False, "Found new conflicting delete files")],
)
def test_an_equality_delete_after_the_check_is_a_conflict_where_nothing_old_stays(
    make: Make, strike_at: StrikeAt, removes: bool, reason: str
) -> None:
    hand = make(2)
    inputs = hand.live()
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    send = moving(hand, inputs, [13], number=None, removes=removes)
    strike_at(lambda: hand.bench.delete_equal(7))
    with pytest.raises(CommitConflictError, match=reason):
        send()
    assert hand.reads(hand.head()) == without(7, 13)
    assert {file.path for file in hand.live()} == {file.path for file in inputs}


@pytest.mark.parametrize("version", [2, 3])
def test_another_delete_after_the_check_is_a_conflict(make: Make, version: int) -> None:
    hand = make(version)
    inputs = hand.live()[:2]
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    send = moving(hand, inputs, [13], number=3, removes=True)
    hand.bench.sql("DELETE FROM {} WHERE id = 14")
    refused(hand, send, "found new position delete for replaced data file", ids=without(13, 14))


def test_a_delete_file_that_others_removed_after_the_check_is_a_conflict(make: Make) -> None:
    hand = make(2)
    inputs = hand.live()[:2]
    hand.bench.sql("DELETE FROM {} WHERE id = 13")
    send = moving(hand, inputs, [13], number=3, removes=True)
    rewrite = f"CALL local.system.rewrite_position_delete_files('deltas.{hand.bench.name}', map('rewrite-all', 'true'))"
    hand.bench.spark.sql(rewrite).collect()
    refused(hand, send, "Missing required files to delete", ids=without(13))


def test_iceberg_itself_drops_vectors_with_their_file_and_deletes_older_than_all_files_but_the_newest(
    with_equality: TableFiles,
) -> None:
    """Why deletes that were applied are removed by name: whether Iceberg drops one depends on what else is in the table."""
    hand = with_equality
    inputs = hand.live()
    output = hand.merged(inputs, without=[3, 5, 15])
    hand.bridge.rewrite([f.data_file for f in inputs], [output], head=hand.head(), sequence_number=None, summary=SUMMARY)
    assert hand.snapshots()[-1].summary["removed-delete-files"] == "1"
    (left,) = hand.bridge.delete_files(hand.head())  # and it applies to nothing any more
    assert (left["content"], left["equality-ids"], left["record-count"]) == ("equality-deletes", [1], 2)
    assert [file.deletes for file in hand.live()] == [frozenset()]
    assert hand.reads(hand.head()) == without(3, 5, 15)


def test_equality_deletes_become_deletes_by_position(with_equality: TableFiles) -> None:
    hand, before = with_equality, with_equality.head()
    converting(hand)()
    latest = hand.snapshots()[-1]
    assert (latest.parent_snapshot_id, latest.summary.operation.value) == (before, "delete")
    assert {key: latest.summary[key] for key in SUMMARY} == SUMMARY
    assert [hand.reads(each) for each in (before, latest.snapshot_id)] == [without(3, 5, 15)] * 2
    assert [len(file.equality_deletes) for file in hand.live()] == [0, 0, 0]
    assert [len(file.deletes) for file in hand.live()] == [2 if hand.version == 2 else 1, 1, 0]


def test_others_may_append_while_deletes_are_converted(with_equality: TableFiles, strike_at: StrikeAt) -> None:
    send = converting(with_equality)
    strike_at(lambda: append(with_equality.bench, 5, 1))
    send()
    assert with_equality.reads(with_equality.head()) == sorted([*without(3, 5, 15), 5])


def test_a_conversion_loses_to_whoever_rewrote_a_file_that_the_delete_applies_to(with_equality: TableFiles) -> None:
    send = converting(with_equality)
    compact_by_others(with_equality.bench)
    refused(with_equality, send, "Cannot commit, missing data files", ids=without(3, 5, 15))


def test_a_conversion_loses_to_whoever_removed_the_equality_delete(with_equality: TableFiles) -> None:
    send = converting(with_equality)
    converting(with_equality)()
    reason = {2: "Missing required files to delete", 3: "Found concurrently added DV"}[with_equality.version]
    refused(with_equality, send, reason, ids=without(3, 5, 15))


@pytest.mark.parametrize("gone", [4, 14])
def test_a_vector_for_the_same_file_meanwhile_is_a_conflict(make: Make, gone: int) -> None:
    hand = make(3)
    hand.bench.sql("DELETE FROM {} WHERE id = 3")
    hand.bench.delete_equal(5, 15)
    send = converting(hand)
    hand.bench.sql(f"DELETE FROM {{}} WHERE id = {gone}")  # 4 is in a file that had a vector, 14 in one that had none
    refused(hand, send, "Found concurrently added DV", ids=without(3, 5, 15, gone))


def test_a_position_delete_for_the_same_file_meanwhile_stays_beside_the_converted_ones(make: Make) -> None:
    hand = make(2)
    hand.bench.sql("DELETE FROM {} WHERE id = 3")
    hand.bench.delete_equal(5, 15)
    send = converting(hand)
    hand.bench.sql("DELETE FROM {} WHERE id = 14")
    send()
    assert hand.reads(hand.head()) == without(3, 5, 14, 15)


def test_a_branch_is_converted_and_main_is_not(with_equality: TableFiles) -> None:
    hand, main = with_equality, with_equality.head()
    hand.bench.sql("ALTER TABLE {} CREATE BRANCH side")
    converting(hand, branch="side")()
    assert hand.head() == main
    assert hand.reads(hand.head("side")) == hand.reads(main) == without(3, 5, 15)
    assert [len(file.equality_deletes) for file in hand.live("side")] == [0, 0, 0]


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_several_partition_specs_are_added_and_removed_in_one_commit(make: Make, version: int) -> None:
    hand = make(version)
    hand.bench.sql("ALTER TABLE {} ADD PARTITION FIELD truncate(10, id)")
    append(hand.bench, 30)
    files = hand.live()
    for taken, rows in (([], [0]), ([0], [0, 1])):
        before = [d for file in hand.live() for d in file.described_deletes.values()]
        assert [(d["spec-id"], d["partition"]) for d in before] == [(0, []), (1, [30])][: 2 * len(taken)]
        assert sorted(map(delete_key, hand.bridge.delete_files(hand.head()))) == sorted(map(delete_key, before))
        added = [hand.deletes(file.data_file, rows) for file in (files[0], files[3])]
        referenced = [files[0].path, files[3].path]
        hand.bridge.row_delta(added, before, referenced=referenced, head=hand.head(), summary=SUMMARY)
        assert hand.reads(hand.head()) == without(*rows, *(30 + row for row in rows), upto=40)
        assert len(hand.bridge.delete_files(hand.head())) == 2


@pytest.mark.parametrize(("version", "other", "reason"), [(2, 3, "Must not use DVs"), (3, 2, "Must use DVs")])
def test_deletes_of_another_format_version_are_refused_before_anything_is_sent(
    make: Make, version: int, other: int, reason: str
) -> None:
    hand = make(version)
    hand.version = other
    send = moving(hand, hand.live()[:2], [3], number=3, removes=False)
    refused(hand, send, f"Cannot prepare the commit: {reason}", ids=without())


@pytest.mark.parametrize("kind", ["one snapshot", "two snapshots", "row delta"])
def test_nobody_knows_what_became_of_a_commit_that_the_catalog_did_not_answer(
    make: Make, warehouse: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = make(2)
    hand.bench.sql("DELETE FROM {} WHERE id = 3")
    hand.bench.delete_equal(5, 15)
    inputs, head = hand.live()[:2], hand.head()
    send = converting(hand) if kind == "row delta" else moving(hand, inputs, [3], number=3, removes=kind == "one snapshot")

    @contextmanager
    def unanswered() -> Iterator[None]:
        with closing(sqlite3.connect(warehouse / "catalog.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with committing():
                yield

    with monkeypatch.context() as patch:
        patch.setattr("neve.spark.table.deltas.committing", unanswered)
        with pytest.raises(CommitUnknownError, match="Cannot tell whether the commit landed"):
            send()
    assert hand.head() == head
    assert hand.reads(head) == without(3, 5, 15)


def test_a_puffin_file_stays_while_one_of_its_vectors_is_live(make: Make) -> None:
    hand = make(3)
    hand.bench.sql("DELETE FROM {} WHERE id IN (3, 13)")
    first, second, _ = hand.live()
    (vector,) = first.own
    assert vector["file-path"] == second.own[0]["file-path"]
    output = hand.merged([first], without=[3])
    hand.bridge.rewrite([first.data_file], [output], head=hand.head(), sequence_number=None, summary=SUMMARY)
    assert hand.snapshots()[-1].summary["removed-delete-files"] == "1"
    append(hand.bench, 30)
    until = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    hand.bench.spark.sql(f"CALL local.system.expire_snapshots(table => 'deltas.{hand.bench.name}', {until})").collect()
    assert len(hand.bench.load().snapshots()) == 1
    assert not local(first.path).exists()
    assert local(vector["file-path"]).exists()
    assert hand.reads(hand.head()) == without(3, 13, upto=40)
