"""Sizes and durations as people write them, and back.

Used by policy, settings and surfaces. `MB` is 1024-based, as in the tools our users come from; `MiB` and `Mi` mean the same.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_SIZE_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1} | {
    prefix + suffix: factor
    for prefix, factor in (("k", KIB), ("m", MIB), ("g", GIB), ("t", TIB), ("p", 1024 * TIB))
    for suffix in ("", "b", "i", "ib")
}
_TIME_UNITS = {
    name: seconds
    for seconds, names in (
        (Fraction(1, 1000), "ms millisecond milliseconds"),
        (Fraction(1), "s sec second seconds"),
        (Fraction(60), "m min minute minutes"),
        (Fraction(3600), "h hour hours"),
        (Fraction(86400), "d day days"),
        (Fraction(604800), "w week weeks"),
    )
    for name in names.split()
}
_QUANTITY = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def whole_number(text: str) -> int | None:
    """A number of plain digits, None for any other text. `str.isdigit` also takes digits that `int` does not, such as ²."""
    return int(text) if text.isascii() and text.isdigit() else None


def parse_bytes(value: object) -> int:
    """`128 MB`, `128Mi`, `1.5 GiB` or a plain number of bytes; a part of a byte is dropped (`1.1 GB`)."""
    number, unit = _quantity(value, "size", "128 MB")
    if unit not in _SIZE_UNITS:
        raise ValueError(f"unknown unit {unit!r} in size {value!r}; write B, KB, MB, GB or TB (1024-based), such as 128 MB")
    if _SIZE_UNITS[unit] == 1 and number.denominator != 1:
        raise ValueError(f"size {value!r} is not a whole number of bytes; write a unit, such as 128 MB")
    return int(number * _SIZE_UNITS[unit])


def parse_seconds(value: object) -> float:
    """`7 days`, `90s`, `1.5 h` or a plain number of seconds."""
    number, unit = _quantity(value, "duration", "7 days")
    if unit and unit not in _TIME_UNITS:
        raise ValueError(f"unknown unit {unit!r} in duration {value!r}; write ms, s, min, h, days or weeks, such as 7 days")
    return float(number * _TIME_UNITS.get(unit, 1))


def _quantity(value: object, what: str, example: str) -> tuple[Fraction, str]:
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
    if not match or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a {what}; write a number and a unit, such as {example}")
    # A fraction, since a float would lose the last bytes of a number beyond 2**53.
    return Fraction(re.sub("[_,]", "", match[1])), match[2].lower()


def format_bytes(value: float) -> str:
    """`1.5 GB`: the same 1024-based units that `parse_bytes` reads."""
    for unit, factor in (("PB", 1024 * TIB), ("TB", TIB), ("GB", GIB), ("MB", MIB), ("KB", KIB)):
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def exact_bytes(value: int) -> str:
    """`128 MB` where that says it all, `134,217,729 B` where the short form would round."""
    short = format_bytes(value)
    return short if parse_bytes(short) == value else f"{value:,} B"


def format_seconds(value: float) -> str:
    """`3.2 days`, `45 min`, `12 s`: one unit, enough digits."""
    for unit, factor in (("days", 86400), ("h", 3600), ("min", 60)):
        if value >= 2 * factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{_three_digits(value)} s"


def _three_digits(value: float) -> str:
    # `g` would write 999.9 as 1e+03.
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def exact_seconds(value: float) -> str:
    """`7 days` where that says it all, `90,061 s` where the short form would round."""
    short = format_seconds(value)
    return short if parse_seconds(short) == value else f"{f'{value:,}'.removesuffix('.0')} s"


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 file`, `1,204 files`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def averaged(value: float, singular: str) -> str:
    """`4.5 files`, `1 file`, `fewer than 1 file`: an average or a median in at most three digits."""
    if 0 < value < 1:
        return f"fewer than 1 {singular}"
    number = f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
    return f"{number} {singular}" if number == "1" else f"{number} {singular}s"
