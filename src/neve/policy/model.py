"""Every knob of the product, declared once: those of compaction and those of maintenance, with what is derived from them.

Settings, flags, table properties and the reference page are derived from here; adding a knob is adding a field. Derived
thresholds are methods, so that a table's own target carries over to them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from neve.policy.foreign_properties import read_foreign
from neve.policy.knobs import Knob, knob
from neve.policy.maintenance_knobs import MaintenanceKnobs
from neve.policy.presets import parse_preset
from neve.policy.rewrite_knobs import RewriteKnobs

PresetName = Annotated[str, BeforeValidator(parse_preset)]


class Policy(MaintenanceKnobs, RewriteKnobs):
    """How a table should be kept."""

    preset: PresetName | None = knob(
        None,
        "preset",
        unit="name",
        why="A set of knobs as another tool comes with it; a knob that is set in the same place, or in a higher one, wins.",
        unset="none",
    )

    @model_validator(mode="after")
    def _small_is_below_target(self) -> Self:
        if self.small_file_threshold_bytes is not None and self.small_file_threshold_bytes > self.target_file_size_bytes:
            raise ValueError(f"small-file-threshold {SMALL_ABOVE_TARGET}")
        return self

    @property
    def small_bytes(self) -> int:
        """Below this a file is small: never above half the target, since two larger files cannot make one good one."""
        half = self.target_file_size_bytes // 2
        return min(self.small_file_threshold_bytes or half, half)

    @property
    def large_bytes(self) -> int | None:
        """Above this a file is cut: never below twice the target, the most that a merge may write."""
        if self.max_file_size_bytes is None:
            return None
        return max(self.max_file_size_bytes, 2 * self.target_file_size_bytes)

    @property
    def fragment_bytes(self) -> int:
        """Below this a file is a fragment; every fragment is small."""
        return min(self.target_file_size_bytes // self.fragment_ratio, self.small_bytes)


SMALL_ABOVE_TARGET = "must not be above target-file-size, or every good file counts as small"


@dataclass(frozen=True)
class Contradiction:
    """Knobs that cannot all be meant, first the one to change."""

    keys: tuple[str, ...]
    reason: str


def contradictions(policy: Policy, explicit: Collection[str]) -> tuple[Contradiction, ...]:
    """Pairs of which at least one was set by a person; a default that does not fit gives way silently."""
    rules = (
        (
            ("fragment-ratio", "small-file-threshold", "target-file-size"),
            "fragment-ratio" in explicit and policy.target_file_size_bytes // policy.fragment_ratio > policy.small_bytes,
            "must be at least target-file-size divided by small-file-threshold, or fragments would not count as small",
        ),
        (
            ("row-group-min-size", "target-file-size"),
            "row-group-min-size" in explicit and policy.row_group_min_bytes > policy.target_file_size_bytes,
            "must not be above target-file-size, or every file counts as badly cut",
        ),
        (
            ("max-files", "min-input-files"),
            bool({"max-files", "min-input-files"} & set(explicit)) and policy.max_files < policy.min_input_files,
            "must not be below min-input-files, or nothing can ever be merged",
        ),
        (
            ("cold-after", "hot-window"),
            bool({"cold-after", "hot-window"} & set(explicit)) and policy.cold_after_seconds <= policy.hot_window_seconds,
            "must be above hot-window, or no partition is ever compacted properly",
        ),
    )
    return tuple(Contradiction(keys, reason) for keys, broken, reason in rules if broken)


def read_property(name: str, text: str) -> object:
    """A table property's value as its knob reads it: one of our own is written as everywhere, others in their tool's way."""
    return text if name.startswith("neve.") else read_foreign(name, text)


def knobs() -> dict[str, Knob]:
    """Every knob by its key."""
    fields = Policy.model_fields.values()
    return {str(f.alias): Knob(**f.json_schema_extra["knob"]) for f in fields}  # type: ignore[arg-type,index]
