"""How a number or a text tells a time: units since 1970, or digits in the order of a calendar such as yyyyMMdd. Pure.

Used by `core.ttl` and by the knob that names a format. Only formats whose values sort as their times do are accepted, so that
one comparison is enough; what does not look like a value of the format is never taken for a time.
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
    """A regular expression, for Java as for Python, that whole values of the pattern match."""
    parts = (f"[0-9]{{{len(token)}}}" if token in _FIELDS else re.escape(_plain(token)) for token in _tokens(pattern))
    return "^" + "".join(parts) + "$"


def matches(pattern: str, text: str) -> bool:
    """Whether a text looks like a value of the pattern."""
    return re.fullmatch(expression(pattern)[1:-1], text) is not None


def _plain(token: str) -> str:
    return token[1:-1] if token.startswith("'") else token


def _tokens(pattern: str) -> list[str]:
    found = _TOKEN.findall(pattern)
    fields = [token for token in found if token in _FIELDS]
    if "".join(found) != pattern or not fields or fields != list(_FIELDS)[: len(fields)] or found[0] != "yyyy":
        raise ValueError(
            f"{pattern!r} is no format of times; write {', '.join(UNITS)}, or fields from the year on, such as yyyy-MM-dd"
        )
    return found
