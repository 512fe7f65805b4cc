"""The last write to a table outlives the snapshots that show it, and where it is unknown nobody makes one up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.maintenance.last_write import adds_rows, facts, facts_to_keep, last_write
from neve.maintenance.retention import SnapshotHistory
from neve.table.properties import LAST_WRITES
from neve.table.state import RUN_ID, Ref, RefKind, Snapshot

NOW = 1_000_000
OURS = {RUN_ID: "r"}


def snapshot(number: int, at: int, operation: str = "append", parent: int | None = 0, **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_id=number - 1 if parent == 0 else parent,
        sequence_number=number,
        timestamp_ms=at,
        operation=operation,
        summary={key.replace("_", "-"): value for key, value in summary.items()},
    )


def ours(number: int, at: int, operation: str = "replace") -> Snapshot:
    return snapshot(number, at, operation).model_copy(update={"summary": OURS})


def history(
    *snapshots: Snapshot, head: int, properties: dict[str, str] | None = None, refs: tuple[Ref, ...] = ()
) -> SnapshotHistory:
    main = Ref(name="main", kind=RefKind.BRANCH, snapshot_id=head)
    return SnapshotHistory("m", properties or {}, snapshots, (main, *refs), head)


def expired(past: SnapshotHistory, *gone: int) -> SnapshotHistory:
    """What an expiry leaves, with the property that it sets in the same commit."""
    left = tuple(found for found in past.snapshots if found.snapshot_id not in gone)
    return SnapshotHistory("m", {**past.properties, **facts_to_keep(past, gone, now_ms=NOW)}, left, past.refs, past.head)


def known(past: SnapshotHistory, head: int | None = None, now_ms: int = NOW) -> int | None:
    return last_write(past.snapshots, head or past.head, past.properties, now_ms=now_ms).ms


@pytest.mark.parametrize(
    ("operation", "summary", "expected"),
    [
        ("append", {}, True),
        ("append", {"added_data_files": "1", "total_records": "5"}, True),
        ("overwrite", {"added_records": "3"}, True),
        ("append", {"total_records": "5"}, False),
        ("append", {"added_records": "0", "total_records": "5"}, False),
        ("overwrite", {"added_delete_files": "1", "changed_partition_count": "1"}, False),
        ("replace", {"added_data_files": "1"}, False),
        ("delete", {"deleted_data_files": "1"}, False),
        ("unknown", {}, False),
        ("append", {"added_data_files": "1", "snapshot.producer": "OPTIMIZE"}, False),
        ("overwrite", {"added_data_files": "1", "snapshot.producer": "DATA_EXPIRATION"}, False),
        ("append", {"added_data_files": "1", "snapshot.producer": "INGESTION"}, True),
    ],
)
def test_only_what_adds_rows_is_a_write(operation: str, summary: dict[str, Any], expected: bool) -> None:
    assert adds_rows(snapshot(1, 5, operation, **summary)) is expected
    assert not adds_rows(ours(1, 5, operation))


def test_the_last_write_is_known_after_expiry_leaves_only_our_own_commits() -> None:
    past = history(snapshot(1, 10, parent=None), snapshot(2, 20), ours(3, 500), ours(4, 600, "delete"), head=4)
    assert known(past) == 20
    once = expired(past, 1, 2, 3)
    assert (known(once), once.properties) == (20, {LAST_WRITES: '{"4": 20}'})
    grown = history(*once.snapshots, ours(5, 700), head=5, properties=dict(once.properties))
    twice = expired(grown, 4)
    assert (known(twice), twice.properties) == (20, {LAST_WRITES: '{"5": 20}'})


def test_a_history_that_others_cut_is_unknown_and_not_now() -> None:
    cut = history(ours(4, 600), head=4)
    found = last_write(cut.snapshots, 4, {}, now_ms=NOW)
    assert found.ms is None
    assert found.why_unknown == "the last write to branch main is unknown: older snapshots were expired by another tool"
    assert expired(cut).properties == {}
    never = last_write([ours(1, 5).model_copy(update={"parent_id": None})], 1, {}, now_ms=NOW)
    assert never.why_unknown == "the last write to branch main is unknown: no snapshot in its history added rows"
    assert last_write([], None, {}, now_ms=NOW, branch="b").why_unknown == "branch b has no snapshot"


def test_a_fact_about_another_snapshot_says_nothing() -> None:
    cut = history(ours(4, 600), head=4, properties={LAST_WRITES: '{"3": 20}'})
    assert known(cut) is None


def test_a_moment_in_the_future_is_passed_over() -> None:
    past = history(snapshot(1, 10, parent=None), snapshot(2, NOW + 1), head=2)
    assert (known(past), known(past, now_ms=NOW + 1)) == (10, NOW + 1)
    only = history(snapshot(2, NOW + 1), head=2)
    assert known(only) is None
    left = expired(past, 1)
    assert (known(left), left.properties) == (10, {LAST_WRITES: '{"2": 10}'})


def test_each_branch_has_a_last_write_of_its_own_and_a_rollback_goes_back_to_an_older_one() -> None:
    audit = Ref(name="audit", kind=RefKind.BRANCH, snapshot_id=9)
    past = history(snapshot(1, 10, parent=None), snapshot(2, 20), ours(3, 30), snapshot(9, 90, parent=1), head=3, refs=(audit,))
    assert (known(past), known(past, head=9), known(past, head=1)) == (20, 90, 10)
    assert known(expired(past, 2), head=9) == 90


def test_a_replaced_table_begins_a_history_of_its_own() -> None:
    past = history(snapshot(1, 10, parent=None), snapshot(7, 70, parent=None), head=7)
    assert known(past) == 70


def test_nothing_is_written_where_the_snapshots_that_stay_tell_it() -> None:
    past = history(snapshot(1, 10, parent=None), snapshot(2, 20), ours(3, 30), head=3)
    assert facts_to_keep(past, [1], now_ms=NOW) == {}
    assert facts_to_keep(past, [], now_ms=NOW) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"x": 1}', '{"1": "2"}', '{"1": true}', '{"1": 2.5}', '{"1": null}', '{"\u0661": 2}']
)
def test_a_property_that_cannot_be_read_tells_nothing(text: str) -> None:
    assert facts({LAST_WRITES: text}) == {}


STEP = st.tuples(st.sampled_from(["write", "compact", "replace", "expire", "cut", "back"]), st.integers(-50, 100))


@settings(deadline=None, max_examples=300)
@given(st.lists(STEP, max_size=30))
def test_whatever_happens_the_last_write_is_never_told_too_late(steps: list[tuple[str, int]]) -> None:
    """Writers' clocks go wrong, maintenance and other tools remove history, heads go back: at most it is told too early."""
    past, truth, now = history(snapshot(1, 500, parent=None), head=1), {1: 500}, 1_000
    for number, (what, shift) in enumerate(steps, start=2):
        now += 10
        ids, head = [found.snapshot_id for found in past.snapshots], past.head or 0
        if what in ("write", "compact", "replace"):
            new = {"write": snapshot(number, now + shift), "compact": ours(number, now)}.get(what)
            new = (new or snapshot(number, now, "replace")).model_copy(update={"parent_id": head})
            truth[number] = now if what == "write" else truth[head]
            past = history(*past.snapshots, new, head=number, properties=dict(past.properties))
        elif what == "expire":
            kept = facts_to_keep(past, set(ids) - {head}, now_ms=now)
            alone = [found for found in past.snapshots if found.snapshot_id == head]
            past = history(*alone, head=head, properties={**past.properties, **kept})
        elif what == "cut":
            past = history(*(s for s in past.snapshots if s.snapshot_id == head), head=head, properties=dict(past.properties))
        elif len(ids) > 1:
            past = history(*past.snapshots, head=ids[shift % len(ids)], properties=dict(past.properties))
        told, true = known(past, now_ms=now), truth[past.head or 0]
        ahead = max(0, *(shift for _, shift in steps)) if len(steps) > 1 else 100
        assert told is None or told <= true + ahead
        if all(kind != "cut" and shift == 0 for kind, shift in steps):
            assert told == true
