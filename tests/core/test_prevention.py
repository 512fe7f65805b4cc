"""What is proposed for a table: from its writes and its findings, and nothing where they do not ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from neve.health.inspection import Finding, Health, WorkloadKind
from neve.maintenance.prevention import KeptProperty, PropertyChange, PropertyProposal, propose
from neve.policy.model import Policy
from neve.table.state import PartitionField, PartitionSpec, Snapshot
from neve.table.units import GIB, KIB, MIB, TIB
from tests.builders.inspections import make_inspection
from tests.builders.table_states import make_state

DAY = PartitionSpec(spec_id=0, fields=(PartitionField(name="day", transform="day", source_id=1, field_id=1000),))
PLAIN = PartitionSpec(spec_id=0, fields=())
TARGET = ("write.target-file-size-bytes", str(128 * MIB))


def write(number: int, files: int = 1, size: int = 128 * MIB, partitions: int = 1, **more: Any) -> Snapshot:
    counts = {"added-data-files": files, "added-files-size": size, "changed-partition-count": partitions}
    summary = {key: str(value) for key, value in counts.items()}
    plain = {"snapshot_id": number, "parent_id": number - 1, "sequence_number": number, "timestamp_ms": number * 60_000}
    return Snapshot(**{**plain, "operation": "append", "summary": summary, **more})


def proposal(
    *writes: Snapshot,
    spec: PartitionSpec = DAY,
    properties: dict[str, str] | None = None,
    explicit: tuple[str, ...] = (),
    knobs: dict[str, Any] | None = None,
    kind: WorkloadKind = WorkloadKind.STREAMING,
    gap: float | None = 60.0,
    data_bytes: int = GIB,
    sort_order: int = 0,
    findings: tuple[Finding, ...] = (),
) -> PropertyProposal:
    told = {"default_sort_order_id": sort_order, "specs": (spec,), "properties": properties or {}}
    snapshots = writes or (write(1),)
    state = make_state(snapshots=snapshots, snapshot_id=snapshots[-1].snapshot_id, **told)
    found = make_inspection(data_bytes=data_bytes, health=Health(score=50, findings=findings))
    workload = found.workload.model_copy(update={"kind": kind, "median_gap_seconds": gap})
    return propose(state, found.model_copy(update={"workload": workload}), Policy.model_validate(knobs or {}), explicit)


def values(found: PropertyProposal) -> dict[str, str]:
    return {change.key: change.value for change in found.changes}


def test_a_table_that_is_written_well_is_asked_only_to_state_its_target() -> None:
    assert values(proposal()) == dict([TARGET])
    found = proposal(properties=dict([TARGET]))
    assert (found.changes, found.advice, found.warnings) == ((), (), ())


@pytest.mark.parametrize(("data_bytes", "target"), [(GIB, 128 * MIB), (TIB, 256 * MIB), (20 * TIB, 512 * MIB)])
def test_larger_tables_get_larger_files(data_bytes: int, target: int) -> None:
    assert values(proposal(data_bytes=data_bytes)) == {TARGET[0]: str(target)}


def test_a_target_that_somebody_stated_is_kept_and_one_of_the_policy_wins() -> None:
    own = {TARGET[0]: str(64 * MIB)}
    assert values(proposal(properties=own, data_bytes=20 * TIB)) == {}
    asked = proposal(properties=own, knobs={"target-file-size": "32 MB"}, explicit=("target-file-size",))
    assert asked.changes[0] == PropertyChange(
        key=TARGET[0], before=own[TARGET[0]], value=str(32 * MIB), reason="writers and compactions aim at one size, 32 MB"
    )


def test_files_scattered_over_partitions_ask_for_a_shuffle_and_open_files() -> None:
    found = proposal(*(write(i, files=40, size=8 * MIB, partitions=4) for i in range(1, 6)))
    assert values(found) == {**dict([TARGET]), "write.distribution-mode": "hash", "write.spark.fanout.enabled": "true"}
    assert found.changes[1].reason == "a write makes 40 files for 4 partitions: rows of one partition should come to one task"
    interval, shuffle = found.advice
    assert interval == (
        "Commit every 60 min instead of every 60 s: a commit brings 8 MB to 4 partitions, "
        "and 64 of them would fill one good file each"
    )
    assert shuffle == "Shuffle by day before the write, where the engine does not do it by write.distribution-mode"


def test_writes_of_other_branches_are_not_those_of_this_one() -> None:
    audit = [write(i, files=40, size=8 * MIB, partitions=4, parent_id=1) for i in range(2, 6)]
    assert values(proposal(write(1), *audit, write(6, parent_id=1))) == dict([TARGET])


def test_half_a_file_of_a_median_is_told() -> None:
    writes = [write(i, files=4 + i % 2, size=8 * MIB, partitions=1) for i in range(1, 7)]
    reasons = [change.reason for change in proposal(*writes).changes]
    assert "a write makes 4.5 files for 1 partition: rows of one partition should come to one task" in reasons


def test_a_sorted_table_is_spread_by_its_order_and_many_partitions_are_not_kept_open() -> None:
    writes = [write(i, files=4000, size=8 * MIB, partitions=400) for i in range(1, 6)]
    assert values(proposal(*writes, sort_order=1))["write.distribution-mode"] == "range"
    assert "write.spark.fanout.enabled" not in values(proposal(*writes))
    fanned = proposal(*writes, properties={"write.spark.fanout.enabled": "true"})
    assert values(fanned)["write.spark.fanout.enabled"] == "false"


def test_without_partitions_only_the_writer_can_help() -> None:
    found = proposal(*(write(i, files=200, size=200 * MIB) for i in range(1, 6)), spec=PLAIN)
    assert values(found) == dict([TARGET])
    (advice,) = found.advice
    assert advice == (
        "Write with fewer tasks: coalesce(2) before the write gives 2 files instead of 200; "
        "no property can do that for a table without partitions"
    )


def test_files_that_the_bytes_ask_for_are_not_scattered() -> None:
    assert values(proposal(write(1, files=40, size=40 * 128 * MIB, partitions=2))) == dict([TARGET])


def test_compactions_and_deletes_are_no_writes() -> None:
    ours = write(2, files=500, size=MIB, operation="replace")
    deletes = write(3, files=0, size=0, operation="delete")
    assert values(proposal(write(1), ours, deletes)) == dict([TARGET])


@pytest.mark.parametrize(("codec", "proposed"), [("gzip", "zstd"), ("UNCOMPRESSED", "zstd"), ("snappy", None), (None, None)])
def test_a_wasteful_codec_is_changed_and_another_is_not(codec: str | None, proposed: str | None) -> None:
    properties = dict([TARGET]) | ({"write.parquet.compression-codec": codec} if codec else {})
    assert values(proposal(properties=properties)).get("write.parquet.compression-codec") == proposed


def test_a_codec_of_the_policy_is_set() -> None:
    found = proposal(knobs={"compression-codec": "snappy"}, explicit=("compression-codec",))
    assert values(found)["write.parquet.compression-codec"] == "snappy"


def test_row_groups_that_are_too_small_are_made_larger() -> None:
    small = proposal(properties={"write.parquet.row-group-size-bytes": str(64 * KIB)})
    assert values(small)["write.parquet.row-group-size-bytes"] == str(128 * MIB)
    assert "write.parquet.row-group-size-bytes" not in values(
        proposal(properties={"write.parquet.row-group-size-bytes": str(16 * MIB)})
    )


def test_a_number_of_rows_is_taken_as_rows_with_a_warning_where_it_is_small() -> None:
    few = proposal(knobs={"row-group-rows": 8192}, explicit=("row-group-rows",))
    assert values(few)["write.parquet.row-group-limit"] == "8192"
    assert few.warnings == (
        "row-group-rows is 8,192, which means rows: so few make row groups that read slowly. Leave it out to let sizes decide",
    )
    assert proposal(knobs={"row-group-rows": 1_000_000}).warnings == ()


def test_partitions_that_are_too_fine_are_told() -> None:
    finding = Finding(
        code="tiny-partitions", title="t", weight=5, severity=1, evidence="900 of 1,000 are tiny", fix="Partition by month"
    )
    assert proposal(findings=(finding,)).advice == ("Partition by month: 900 of 1,000 are tiny",)


def change(key: str, before: str | None, value: str) -> PropertyChange:
    return PropertyChange(key=key, before=before, value=value, reason="r")


def test_the_way_back_leads_to_what_was_there_before_the_first_change() -> None:
    first = KeptProperty({}).with_changes([change("a", None, "1"), change("b", "x", "2")])
    again = KeptProperty.of({"neve.prevention": first.text}).with_changes([change("a", "1", "3")])
    assert again.values == {"a": ("3", None), "b": ("2", "x")}
    theirs = again.with_changes([change("b", "y", "4")])  # somebody had set y since
    assert theirs.values["b"] == ("4", "y")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": {"set": "1"}}'])
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    assert KeptProperty.of({"neve.prevention": text}).values == {}
