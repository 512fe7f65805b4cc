from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.table.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    averaged,
    exact_bytes,
    exact_seconds,
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_seconds,
    whole_number,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128 MB", 128 * MIB),
        ("128 MiB", 128 * MIB),
        ("128Mi", 128 * MIB),
        ("128m", 128 * MIB),
        ("128mb", 128 * MIB),
        ("1.5 GB", GIB + GIB // 2),
        ("1.1 GB", 1181116006),
        ("2T", 2 * TIB),
        ("64 KB", 64 * KIB),
        ("512 B", 512),
        ("0", 0),
        (" 1_000 ", 1000),
        ("1,048,576 bytes", MIB),
        (134217728, 128 * MIB),
        (1048576.0, MIB),
    ],
)
def test_reads_sizes_as_people_write_them(text: object, expected: int) -> None:
    assert parse_bytes(text) == expected


def test_keeps_the_last_byte_of_a_number_that_a_float_cannot_hold() -> None:
    assert parse_bytes(str(2**60 + 1)) == 2**60 + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 days", 604800),
        ("1 week", 604800),
        ("90s", 90),
        ("90", 90),
        (90, 90),
        ("1.5 h", 5400),
        ("15 min", 900),
        ("2m", 120),
        ("250 ms", 0.25),
        ("432000000 ms", 432000),
    ],
)
def test_reads_durations_as_people_write_them(text: object, expected: float) -> None:
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("128 XB", "unknown unit 'xb' in size '128 XB'; write B, KB, MB, GB or TB (1024-based), such as 128 MB"),
        ("big", "'big' is not a size; write a number and a unit, such as 128 MB"),
        ("", "'' is not a size; write a number and a unit, such as 128 MB"),
        ("-1 MB", "'-1 MB' is not a size; write a number and a unit, such as 128 MB"),
        (-1, "-1 is not a size; write a number and a unit, such as 128 MB"),
        (True, "True is not a size; write a number and a unit, such as 128 MB"),
        (None, "None is not a size; write a number and a unit, such as 128 MB"),
        (float("nan"), "nan is not a size; write a number and a unit, such as 128 MB"),
        ([128], "[128] is not a size; write a number and a unit, such as 128 MB"),
        ("1.5", "size '1.5' is not a whole number of bytes; write a unit, such as 128 MB"),
        ("1.5 B", "size '1.5 B' is not a whole number of bytes; write a unit, such as 128 MB"),
    ],
)
def test_refuses_what_is_not_a_size(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_bytes(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "7 fortnights",
            "unknown unit 'fortnights' in duration '7 fortnights'; write ms, s, min, h, days or weeks, such as 7 days",
        ),
        ("soon", "'soon' is not a duration; write a number and a unit, such as 7 days"),
    ],
)
def test_refuses_what_is_not_a_duration(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_seconds(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KB"),
        (128 * MIB, "128 MB"),
        (1.5 * GIB, "1.5 GB"),
        (999.4 * MIB, "999 MB"),
        (999.9 * MIB, "1000 MB"),
        (1023 * MIB, "1023 MB"),
        (5000 * 1024 * TIB, "5000 PB"),
        (-2048, "-2 KB"),
    ],
)
def test_writes_sizes_short(value: float, expected: str) -> None:
    assert format_bytes(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.25, "0.25 s"),
        (90, "90 s"),
        (120, "2 min"),
        (5400, "90 min"),
        (7200, "2 h"),
        (604800, "7 days"),
        (86400 * 999.6, "1000 days"),
    ],
)
def test_writes_durations_short(value: float, expected: str) -> None:
    assert format_seconds(value) == expected


def test_writes_a_size_in_full_where_the_short_form_would_round() -> None:
    assert exact_bytes(128 * MIB) == "128 MB"
    assert exact_bytes(128 * MIB + 1) == "134,217,729 B"
    assert exact_seconds(604800) == "7 days"
    assert exact_seconds(604801) == "604,801 s"
    assert exact_seconds(0.1) == "0.1 s"
    assert exact_seconds(10000000000.28125) == "10,000,000,000.28125 s"


@given(st.integers(min_value=0, max_value=2**62))
def test_reads_back_the_exact_size_that_it_wrote(value: int) -> None:
    assert parse_bytes(exact_bytes(value)) == value


@given(st.integers(min_value=0, max_value=2**40).map(lambda ms: ms / 1000))
def test_reads_back_the_exact_duration_that_it_wrote(value: float) -> None:
    assert parse_seconds(exact_seconds(value)) == value


@given(st.floats(min_value=0, max_value=2.0**60))
def test_a_short_size_is_within_half_a_percent(value: float) -> None:
    if value >= 1024:
        assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("", None),
        ("-1", None),
        ("1\n", None),
        (" 1", None),
        ("1.0", None),
        ("\u00b2", None),
        ("\u0661", None),
    ],
)
def test_a_whole_number_is_plain_digits_and_nothing_else(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 files"),
        (1 / 11, "fewer than 1 file"),
        (1, "1 file"),
        (1.5, "1.5 files"),
        (4.5, "4.5 files"),
        (22.51, "22.5 files"),
        (999.6, "1,000 files"),
        (12345.6, "12,346 files"),
    ],
)
def test_writes_an_average_with_its_noun(value: float, expected: str) -> None:
    assert averaged(value, "file") == expected
