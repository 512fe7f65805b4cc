"""How a number or a text tells a time: units since 1970, or digits in the order of a calendar such as yyyyMMdd. Pure.

Used by `maintenance.ttl` and by the knob that names a format. Only formats whose values sort as their times do are accepted, so
that one comparison is enough; what does not look like a value of the format is never taken for a time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Formats of numbers that count from 1970, each by how many of them are a second."""

EARLIEST_SECONDS = 10**8
"""March 1973. A smaller number is no time: a zero that stands for nothing, or one in another unit than was stated, since
seconds read as milliseconds all lie before it."""

_FIRST_SECOND = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_FIELDS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_RANGES = {
    "yyyy": "[0-9]{4}",
    "MM": "(?:0[1-9]|1[0-2])",
    "dd": "(?:0[1-9]|[12][0-9]|3[01])",
    "HH": "(?:[01][0-9]|2[0-3])",
    "mm": "[0-5][0-9]",
    "ss": "[0-5][0-9]",
}
"""A value outside of them, such as 0000-00-00 for an unknown day, tells no time."""
_TOKEN = re.compile(r"yyyy|MM|dd|HH|mm|ss|'[^']*'|[^A-Za-z']")


def parse_format(value: object) -> str:
    """A unit, or a pattern of fields from the year on in falling order; ValueError says what is wrong."""
    text = str(value).strip()
    if text.lower() in UNITS:
        return text.lower()
    _tokens(text)
    return text


def is_numeric(pattern: str) -> bool:
    """Whether values of a pattern are digits alone, as a number column can hold them."""
    return all(token in _FIELDS for token in _tokens(pattern))


def written(pattern: str, seconds: int) -> str:
    """A moment by the pattern: the period, such as a day, that it lies in."""
    at = datetime.fromtimestamp(max(seconds, _FIRST_SECOND), UTC)
    # Python leaves out the zeros of early years.
    parts = (at.strftime(_FIELDS[token]).zfill(len(token)) if token in _FIELDS else _plain(token) for token in _tokens(pattern))
    return "".join(parts)


def expression(pattern: str) -> str:
    """A regular expression for Java's `find` that matches whole values of the pattern only.

    It ends with `\\z`: in Java as in Python `$` also matches before a line end, and so values that are none of the format.
    """
    return rf"\A{_body(pattern)}\z"


def matches(pattern: str, text: str) -> bool:
    """Whether a text is a value of the pattern."""
    return re.fullmatch(_body(pattern), text) is not None


def differ_in_last_field(pattern: str, one: int, other: int) -> bool:
    """Whether two numbers of the pattern differ in nothing but the last field: then every number between them is one too."""
    width = len(_tokens(pattern)[-1])
    return str(one)[:-width] == str(other)[:-width]


def _body(pattern: str) -> str:
    return "".join(_RANGES.get(token) or re.escape(_plain(token)) for token in _tokens(pattern))


def _plain(token: str) -> str:
    return token[1:-1] if token.startswith("'") else token


def _tokens(pattern: str) -> list[str]:
    found = _TOKEN.findall(pattern)
    fields = [token for token in found if token in _FIELDS]
    in_order = fields and fields == list(_FIELDS)[: len(fields)] and found[0] == "yyyy"
    if "".join(found) != pattern or not in_order or "''" in pattern:  # in Java '' is a quote, and no empty text
        raise ValueError(
            f"{pattern!r} is no format of times; write {', '.join(UNITS)}, or fields from the year on, such as yyyy-MM-dd"
        )
    return found
