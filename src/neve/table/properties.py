"""Table properties: how Iceberg reads them, and those that Neve keeps notes in. Pure."""

from __future__ import annotations

from collections.abc import Mapping

GC_ENABLED = "gc.enabled"

LAST_WRITES = "neve.last-writes"
"""JSON of snapshot id to the moment, in milliseconds, of the last write at or before that snapshot."""
LEASE = "neve.lease"
"""The marker of a run at work (`commit.marker`)."""
PREVENTION = "neve.prevention"
"""What `neve prevent` has set, and what was there before."""
NOTES = frozenset({LAST_WRITES, LEASE, PREVENTION})
"""Properties that operations write for themselves. Every other property that begins with `neve.` is a knob of the policy."""


def is_true(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Returns a boolean property by the rule of Iceberg's Java: `true` in any case is true, any other text is false."""
    value = properties.get(key)
    return default if value is None else value.lower() == "true"


def files_may_be_removed(properties: Mapping[str, str]) -> bool:
    """Returns whether the table allows anyone to remove its files: `no` or `0` forbid it as `false` does."""
    return is_true(properties, GC_ENABLED, default=True)
