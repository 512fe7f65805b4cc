"""Partitions are spelled as Iceberg's own tools spell them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from neve.table.partition import TypedField, human, partition_path


@pytest.mark.parametrize(
    ("transform", "type_", "value", "text"),
    [
        ("identity", "string", "a b/c=d", "a b/c=d"),
        ("identity", "string", None, "null"),
        ("identity", "int", -7, "-7"),
        ("identity", "boolean", True, "true"),
        ("identity", "date", 20105, "2025-01-17"),
        ("identity", "date", dt.date(2025, 1, 17), "2025-01-17"),
        ("identity", "date", -1, "1969-12-31"),
        ("identity", "timestamp", 1_737_115_975_038_194, "2025-01-17T12:12:55.038194"),
        ("identity", "timestamp", 1_737_115_975_500_000, "2025-01-17T12:12:55.5"),
        ("identity", "timestamp", -1, "1969-12-31T23:59:59.999999"),
        ("identity", "timestamptz", 1_737_115_975_000_000, "2025-01-17T12:12:55+00:00"),
        ("identity", "timestamptz", dt.datetime(2025, 1, 17, tzinfo=dt.UTC), "2025-01-17T00:00:00+00:00"),
        ("identity", "timestamp_ns", 1_737_115_975_000_000_001, "2025-01-17T12:12:55.000000001"),
        ("identity", "time", 3_600_000_001, "01:00:00.000001"),
        ("identity", "decimal", Decimal("12.50"), "12.50"),
        ("identity", "decimal(9,2)", Decimal("1E+3"), "1000"),
        ("identity", "uuid", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("identity", "binary", b"\x00\xff", "AP8="),
        ("identity", "fixed[2]", b"\x00\xff", "AP8="),
        ("bucket[16]", "int", 3, "3"),
        ("truncate[4]", "string", "abcd", "abcd"),
        ("truncate[2]", "binary", b"ab", "YWI="),
        ("year", "int", 55, "2025"),
        ("month", "int", 660, "2025-01"),
        ("month", "int", -1, "1969-12"),
        ("day", "date", 20105, "2025-01-17"),
        ("day", "int", dt.date(2025, 1, 17), "2025-01-17"),
        ("hour", "int", 482_532, "2025-01-17-12"),
        # Beyond the years of Python, such as of an epoch that was scaled wrongly; as Iceberg's own tools spell them.
        ("identity", "date", 2_932_897, "10000-01-01"),
        ("identity", "date", 2**31 - 1, "5881580-07-11"),
        ("identity", "date", -(2**31), "-5877641-06-23"),
        ("identity", "timestamp", 1_737_115_975_038_194_000, "+57017-01-05T23:17:18.194"),
        ("identity", "timestamptz", -(2**63), "-290308-12-21T19:59:05.224192+00:00"),
        ("identity", "timestamp_ns", -(2**63), "1677-09-21T00:12:43.145224192"),
        ("day", "date", 2_932_897, "10000-01-01"),
        ("day", "int", -719_529, "-001-12-31"),
        ("hour", "int", 2**31 - 1, "246953-10-09-07"),
        ("hour", "int", -(2**31), "-243014-03-24-16"),
        ("month", "int", 2**31 - 1, "178958940-08"),
        ("year", "int", -2014, "-044"),
        ("identity", "string", "\udcc3", "\udcc3"),
    ],
)
def test_spells_a_value(transform: str, type_: str, value: Any, text: str) -> None:
    assert human(transform, type_, value) == text


def test_joins_fields_and_escapes_what_a_path_cannot_hold() -> None:
    fields = [TypedField("day", "day", "date"), TypedField("re gion", "identity", "string"), TypedField("old", "void", "int")]
    assert partition_path(fields, [20105, "a/b=c d", None]) == "day=2025-01-17/re+gion=a%2Fb%3Dc+d"


def test_half_a_pair_of_surrogates_is_spelled_as_its_own() -> None:
    field = TypedField("p", "identity", "string")
    assert partition_path([field], ["a\ud800"]) == "p=a%ED%A0%80"


def test_an_unpartitioned_table_has_the_empty_path() -> None:
    assert partition_path([], []) == ""


def test_the_text_null_is_another_partition_than_no_value() -> None:
    fields = [TypedField("region", "identity", "string")]
    assert [partition_path(fields, [value]) for value in (None, "null", "nullify")] == [
        "region=null",
        "region=%6Eull",
        "region=nullify",
    ]
