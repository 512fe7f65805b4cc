"""The ten numbers of a run."""

from __future__ import annotations

from neve.health.condition import Condition
from neve.rewrite.record import RunOutcome, RunRecord, SnapshotExpiry
from neve.table.units import MIB
from tests.builders.inspections import make_inspection, make_shallow
from tests.builders.run_records import AFTER, BEFORE, make_empty_record, make_record


def test_before_and_after_are_the_table_s_and_the_rest_is_the_run_s_own_doing() -> None:
    # Somebody appended ten files while the run was under way: they are in `files_after`, and not held against the run.
    after = AFTER.model_copy(update={"data_files": 20})
    stats = make_record().between(BEFORE, after).stats
    assert stats is not None
    assert stats.model_dump() == {
        "files_before": 255,
        "files_after": 20,
        "files_compacted": 250,
        "files_removed": 245,
        "bytes_before": 12 * MIB,
        "bytes_after": 11 * MIB,
        "bytes_saved": MIB,
        "snapshots_expired": 0,
        "small_files_remaining": 7,
        "compaction_time_ms": 2400,
    }


def test_snapshots_that_were_expired_after_the_compaction_are_counted() -> None:
    expiry = SnapshotExpiry(run_id="e", outcome=RunOutcome.DONE, snapshots=10)
    stats = make_record(expiry=expiry).between(BEFORE, AFTER).stats
    assert stats is not None
    assert stats.snapshots_expired == 10


def test_a_run_that_did_nothing_saved_nothing() -> None:
    told = make_empty_record().between(BEFORE, BEFORE).stats
    assert told is not None
    assert (told.files_compacted, told.files_removed, told.bytes_saved, told.compaction_time_ms) == (0, 0, 0, 0)
    assert told.files_before == told.files_after == 255


def test_a_condition_holds_the_numbers_of_an_inspection_that_a_compaction_changes() -> None:
    look = make_inspection()
    assert look.deletes is not None
    assert Condition.of(look).model_dump() == {
        "snapshot_id": look.snapshot_id,
        "data_files": 1204,
        "data_bytes": look.data_bytes,
        "average_file_bytes": look.average_file_bytes,
        "small_files": look.small_files,
        "delete_files": 324,
        "health": 50,
        "clustering": None,
    }


def test_what_a_shallow_look_does_not_know_counts_as_none() -> None:
    assert Condition.of(make_shallow()).delete_files == 0


def test_a_record_with_its_conditions_survives_json() -> None:
    record = make_record().between(BEFORE, AFTER)
    assert RunRecord.model_validate_json(record.model_dump_json()) == record
