"""What usually suits a kind of table: triggers, schedule and knobs that a policy takes with `preset: NAME`. Data only.

Sizes: 64 MB for small or often updated tables, 128 to 512 MB for most, 1 GB for billions of rows, 256 MB for CDC.
Times: streaming tables daily, change data capture weekly, appended tables once their average file size has fallen.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from neve.policy.document import PolicyDocument, Schedule, Triggers, kebab
from neve.table.frozen import Frozen
from neve.table.units import GIB, MIB, TIB

AUTO = "auto"
"""The value of target-file-size in a policy by which the table's own size decides."""

TARGET_KEY = "target-file-size"


class WorkloadPreset(Frozen):
    """Which tables it is for, and what it sets."""

    suits: str
    knobs: dict[str, Any]
    triggers: Triggers = Triggers()
    schedule: Schedule = Schedule()


def _triggers(**values: Any) -> Triggers:
    return Triggers.model_validate(values)


WORKLOAD_PRESETS: Mapping[str, WorkloadPreset] = {
    "small": WorkloadPreset(
        suits="small tables, and tables that are updated often",
        knobs={TARGET_KEY: "64 MB"},
        triggers=_triggers(small_files=20, delete_ratio=0.1, at_most_every="1 h"),
    ),
    "normal": WorkloadPreset(
        suits="most tables",
        knobs={TARGET_KEY: "128 MB"},
        triggers=_triggers(small_files=50, delete_ratio=0.1, at_most_every="1 h"),
    ),
    "large": WorkloadPreset(
        suits="tables of terabytes",
        knobs={TARGET_KEY: "512 MB"},
        triggers=_triggers(small_files=200, delete_ratio=0.1, at_most_every="6 h"),
    ),
    "huge": WorkloadPreset(
        suits="tables with billions of rows",
        knobs={TARGET_KEY: "1 GB"},
        triggers=_triggers(small_files=500, delete_ratio=0.1, at_most_every="1 day"),
    ),
    "streaming": WorkloadPreset(
        suits="tables that a stream appends to every few minutes; once a day",
        knobs={TARGET_KEY: "128 MB"},
        triggers=_triggers(since_last_run="1 day"),
    ),
    "cdc": WorkloadPreset(
        suits="tables that change data capture writes to; once a week",
        knobs={TARGET_KEY: "256 MB"},
        triggers=_triggers(since_last_run="7 days"),
    ),
    "append": WorkloadPreset(
        suits="tables that are appended to now and then; once files are below half the target on average",
        knobs={TARGET_KEY: "128 MB"},
        triggers=_triggers(average_file_size_below="64 MB", at_most_every="1 h"),
    ),
}


def parse_workload_preset(name: str) -> str:
    """The name of a preset; ValueError names the nearest one."""
    if name in WORKLOAD_PRESETS:
        return name
    close = get_close_matches(name.lower(), WORKLOAD_PRESETS, n=1)
    advice = f", did you mean {close[0]}?" if close else f"; write one of {', '.join(WORKLOAD_PRESETS)}"
    raise ValueError(f"there is no workload preset {name!r}{advice}")


def with_workload_preset(document: PolicyDocument) -> PolicyDocument:
    """Returns the document with what its preset sets, except where the document sets it itself."""
    if document.preset is None:
        return document
    preset = WORKLOAD_PRESETS[document.preset]
    merged = {
        "triggers": preset.triggers.model_copy(update=_set_in(document.triggers)),
        "schedule": preset.schedule.model_copy(update=_set_in(document.schedule)),
        "knobs": preset.knobs | document.knobs,
    }
    return document.model_copy(update=merged)


def keys_of_preset(merged: PolicyDocument) -> tuple[str, ...]:
    """Returns the keys of triggers and schedule that such a document has from its preset: `triggers.since-last-run`."""
    if merged.preset is None:
        return ()
    preset = WORKLOAD_PRESETS[merged.preset]
    parts: dict[str, tuple[Triggers | Schedule, Triggers | Schedule]] = {
        "triggers": (preset.triggers, merged.triggers),
        "schedule": (preset.schedule, merged.schedule),
    }
    return tuple(
        f"{key}.{kebab(name)}"
        for key, (theirs, in_force) in parts.items()
        for name, value in _set_in(theirs).items()
        if getattr(in_force, name) == value
    )


def _set_in(part: Triggers | Schedule) -> dict[str, Any]:
    """Values that are not the default; `model_fields_set` would not survive being stored."""
    default = type(part)()
    return {name: getattr(part, name) for name in type(part).model_fields if getattr(part, name) != getattr(default, name)}


_STEPS: tuple[tuple[int, int], ...] = ((8 * GIB, 64 * MIB), (512 * GIB, 128 * MIB), (2 * TIB, 256 * MIB), (8 * TIB, 512 * MIB))
"""Up to so many bytes of data, files of this size; 1 GB above."""
SMALLEST_AUTOMATIC, _LARGEST_AUTOMATIC = 64 * MIB, GIB
_BILLION = 10**9
_FEW_FILES = 100
_MARGIN = 1.5
"""A table has to outgrow its step by this factor before its target changes, so that one at the edge is not rewritten often."""


def automatic_target(data_bytes: int | None, *, rows: int | None = None, current: int | None = None) -> int | None:
    """Returns the target file size in bytes for a table of this size; None if its size is unknown.

    A table with billions of rows gets 1 GB if that leaves it 100 files. `current` is the target in use: it stays while the
    table is less than 1.5 times beyond the sizes that it suits.
    """
    if data_bytes is None:
        return current
    if current is not None and _target(data_bytes / _MARGIN, rows) <= current <= _target(data_bytes * _MARGIN, rows):
        return current
    return _target(data_bytes, rows)


def _target(data_bytes: float, rows: int | None) -> int:
    if rows is not None and rows >= _BILLION and data_bytes >= _FEW_FILES * _LARGEST_AUTOMATIC:
        return _LARGEST_AUTOMATIC
    return next((size for limit, size in _STEPS if data_bytes < limit), _LARGEST_AUTOMATIC)
