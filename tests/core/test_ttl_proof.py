"""Which files may be dropped as a whole: those whose own footers confirm what metadata says, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from neve.maintenance.ttl import TtlLimits, TtlRule, limits_of
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn, why_unproved
from neve.rewrite.live_files import LiveFile
from neve.table.state import PartitionField, PartitionSpec

DAY = 20_000
CUTOFF_MS = DAY * 86_400_000
MICROS = CUTOFF_MS * 1000


def rule(kind: str = "timestamptz", form: str | None = None) -> TtlRule:
    return TtlRule(column="ts", field_id=1, type=kind, format=form, keep_seconds=86_400)


def spec(transform: str) -> PartitionSpec:
    return PartitionSpec(spec_id=0, fields=(PartitionField(name="p", source_id=1, transform=transform, field_id=1000),))


def judged(stored: FooterFinding, by: TtlRule, partition: Any = None, transform: str | None = None) -> tuple[str, bool] | None:
    file = LiveFile({"file-path": "f", "partition": [] if transform is None else [partition]})
    limits: TtlLimits = limits_of(by, CUTOFF_MS)
    found = why_unproved(file, stored, by, limits, spec(transform) if transform else None)
    return None if found is None else (found.reason, found.left)


def column(kind: str = "timestamptz", nulls: int | None = 0, lower: Any = 1, upper: Any = 2) -> FooterFinding:
    return FooterFinding(StoredColumn(kind, nulls, lower, upper))


BOUNDS = "its bounds may be wrong"


@pytest.mark.parametrize(
    ("stored", "kind", "expected"),
    [
        (column(upper=MICROS - 1), "timestamptz", None),
        (column("int", lower=10**8, upper=10**8 + 1), "long", None),
        (column("timestamp in ms"), "timestamptz", f"it has ts as timestamp in ms, the table as timestamptz, so {BOUNDS}"),
        (column("timestamp"), "timestamptz", f"it has ts as timestamp, the table as timestamptz, so {BOUNDS}"),
        (column("timestamptz_ns"), "timestamptz", f"it has ts as timestamptz_ns, the table as timestamptz, so {BOUNDS}"),
        (column("long"), "int", f"it has ts as long, the table as int, so {BOUNDS}"),
        (FooterFinding(), "timestamptz", "it has no column that readers take for ts"),
        (column(nulls=None, lower=None, upper=None), "timestamptz", "its footer has no statistics of ts"),
        (FooterFinding(unknown="it is orc"), "timestamptz", "it is orc"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_confirmed_is_read_row_by_row(stored: FooterFinding, kind: str, expected: str | None) -> None:
    found = judged(stored, rule(kind, "seconds" if kind in ("int", "long") else None))
    assert found == (None if expected is None else (expected, False))


@pytest.mark.parametrize("stored", [column(upper=MICROS), column(nulls=1)])
def test_statistics_that_contradict_the_manifest_s_bounds_are_believed(stored: FooterFinding) -> None:
    reason = "the table's metadata says that every row is past its time, the statistics of ts in its footer do not"
    assert judged(stored, rule()) == (reason, False)
    # By its partition Spark would delete every row without reading it.
    assert judged(stored, rule(), "1970-01-01", "day") == (reason, True)


@pytest.mark.parametrize(
    ("stored", "is_left"),
    [
        (FooterFinding(), False),  # the column is only in the partition, as in Hive
        (column("date", lower=1, upper=1), False),
        (column("date", lower=1, upper=2), True),
        (column("date", lower=DAY, upper=DAY), True),
        (column("date", nulls=1, lower=1, upper=1), True),
        (column("date", nulls=None, lower=None, upper=None), True),
        (column("timestamp in milliseconds", lower=1, upper=1), True),
    ],
)
def test_rows_that_do_not_confirm_their_partition_s_value_are_left_alone(stored: FooterFinding, is_left: bool) -> None:
    """Spark reads the partition's value in place of the rows', and PyIceberg the rows'."""
    reason = "its rows do not confirm its partition value of ts, so readers may see different values"
    assert judged(stored, rule("date"), "1970-01-02", "identity") == ((reason, True) if is_left else None)


def test_texts_are_proved_by_a_partition_whose_value_all_rows_have() -> None:
    by = rule("string", "yyyy-MM-dd")
    assert judged(column("string", lower="1970-01-02", upper="1970-01-02"), by, "1970-01-02", "identity") is None
    assert judged(column("string", lower="1970-01-02", upper="2970-01-02"), by, "1970-01-02", "identity") is not None


def test_a_damaged_file_is_left_alone() -> None:
    assert judged(FooterFinding(unknown="Cannot read f", is_damaged=True), rule()) == ("Cannot read f", True)
