"""Table properties as Iceberg reads them. Pure; called wherever a decision depends on one."""

from __future__ import annotations

from collections.abc import Mapping

GC_ENABLED = "gc.enabled"


def is_true(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Returns a boolean property by the rule of Iceberg's Java: `true` in any case is true, any other text is false."""
    value = properties.get(key)
    return default if value is None else value.lower() == "true"


def files_may_be_removed(properties: Mapping[str, str]) -> bool:
    """Returns whether the table allows anyone to remove its files: `no` or `0` forbid it as `false` does."""
    return is_true(properties, GC_ENABLED, default=True)
