"""The value of the knob `auto-tags`: how many tags of each period a table keeps. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum


class Period(StrEnum):
    """What a tag stands for the end of."""

    DAILY = "daily"
    WEEKLY = "weekly"  # ISO: Monday to Sunday
    MONTHLY = "monthly"


Keep = Mapping[Period, int]
"""How many tags of each kind are kept. Kinds that it does not name are left alone."""


def parse_keep(value: object) -> dict[Period, int]:
    """`daily 7, weekly 4, monthly 12`; 0 drops all of a kind."""
    keep: dict[Period, int] = {}
    for part in str(value).split(",") if isinstance(value, str) else [""]:
        found = re.fullmatch(r"\s*(daily|weekly|monthly)\s+(\d{1,4})\s*", part)
        if found is None or Period(found[1]) in keep:
            raise ValueError(f"{value!r} does not say how many tags to keep; write daily 7, weekly 4, monthly 12")
        keep[Period(found[1])] = int(found[2])
    return keep


def spell_keep(keep: Keep) -> str:
    """The inverse; equal policies are equal texts."""
    return ", ".join(f"{period} {keep[period]}" for period in Period if period in keep)
