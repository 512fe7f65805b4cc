from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from neve.errors import BadRequestError
from neve.table.literals import serialized
from tests.builders.bounds import make_column, ranges_of

LITERALS: list[tuple[str, Any, Any]] = [
    ("int", 7, 7),
    ("double", 1, 1.0),
    ("boolean", True, True),
    ("date", "1970-01-03", 2),
    ("date", date(1970, 1, 3), 2),
    ("time", "00:00:01.5", 1_500_000),
    ("time", time(1), 3_600_000_000),
    ("timestamp", "1970-01-02T00:00:00", 86_400_000_000),
    ("timestamptz", datetime(1970, 1, 1, 1, tzinfo=UTC), 3_600_000_000),
    ("timestamptz", "1970-01-01T02:00:00+01:00", 3_600_000_000),
    ("timestamp_ns", "1970-01-01T00:00:00.000001", 1000),
    ("decimal(9, 2)", "-1.50", -150),
    ("decimal(9, 2)", Decimal("3"), 300),
    ("decimal(38, 2)", "123456789012345678901234567890123456.78", 12345678901234567890123456789012345678),
    ("uuid", "00000000-0000-0000-0000-000000000001", bytes(15) + b"\x01"),
    ("uuid", UUID(int=1), bytes(15) + b"\x01"),
    ("string", "é", "é"),
    ("binary", b"\x00", b"\x00"),
    ("binary", "00ff", b"\x00\xff"),
    ("date", 2, 2),
    ("timestamp", 5, 5),
]


@pytest.mark.parametrize(("kind", "written", "value"), LITERALS)
def test_values_are_written_as_people_write_them(kind: str, written: Any, value: Any) -> None:
    ranges = ranges_of(kind, [(value, value)])
    assert ranges.key_of(0, serialized(make_column(kind), written)) == ranges.keys[0][0]


WRONG: list[tuple[str, Any]] = [
    ("long", 1.5),
    ("long", "x"),
    ("long", 2**70),
    ("date", "yesterday"),
    ("decimal(9, 2)", "x"),
    ("uuid", "x"),
    ("string", 5),
    ("boolean", "true"),
    ("binary", "x"),
]


@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(BadRequestError) as error:
        serialized(make_column(kind), value)
    assert str(error.value) == f"Cannot compare a with {value!r}: not a value of type {kind}"
