"""Identity partition values from Iceberg's JSON: of every year, and exact to the nanosecond."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from neve.kernels.arrow.constants import constant, partition_scalar
from neve.kernels.arrow.schema import primitive


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("date", "2025-01-17", 20_105),
        ("date", "+10000-01-01", 2_932_897),
        ("date", "-0044-03-15", -735_525),
        ("time", "01:00:00.000001", 3_600_000_001),
        ("time", "01:00", 3_600_000_000),
        ("timestamp", "+57017-01-05T23:17:18.194", 1_737_115_975_038_194_000),
        ("timestamp", "2025-01-17T00:00", 1_737_072_000_000_000),
        ("timestamptz", "+294247-01-10T04:00:54.775807+00:00", 2**63 - 1),
        ("timestamptz", "-290308-12-21T19:59:05.224192+00:00", -(2**63)),
        ("timestamp_ns", "1677-09-21T00:12:43.145224192", -(2**63)),
        ("timestamptz_ns", "2262-04-11T23:47:16.854775807+00:00", 2**63 - 1),
    ],
)
def test_dates_and_times_are_whole_numbers_of_any_year(kind: str, value: str, stored: int) -> None:
    assert constant(kind, value) == stored
    scalar = partition_scalar(kind, stored)
    assert (scalar.type, scalar.value) == (primitive(kind), stored)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "a", "a"),
        ("long", 7, 7),
        ("boolean", True, True),
        ("decimal(9, 2)", "1.50", Decimal("1.50")),
        ("binary", "00FF", b"\x00\xff"),
        ("date", None, None),
    ],
)
def test_other_values_are_as_python_has_them(kind: str, value: Any, expected: Any) -> None:
    assert constant(kind, value) == expected
    assert isinstance(partition_scalar(kind, expected), pa.Scalar)
