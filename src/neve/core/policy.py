"""Every knob of the product, declared once: key, default, unit, reason, and the table properties that also set it.

Settings, flags, table properties and the reference page are derived from here; adding a knob is adding a field. Derived
thresholds are methods, so that a table's own target carries over to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from neve.core.units import MIB, Bytes, Seconds


@dataclass(frozen=True)
class Knob:
    """What a person needs to know of a knob besides its default."""

    unit: str
    why: str
    properties: tuple[str, ...] = ()


def knob(default: Any, key: str, *, unit: str, why: str, properties: tuple[str, ...] = (), **limits: Any) -> Any:
    """Declares a field; its own table property `neve.<key>` comes before the foreign ones."""
    meta = Knob(unit=unit, why=why, properties=(f"neve.{key}", *properties))
    return Field(default, alias=key, description=why, json_schema_extra={"knob": meta.__dict__}, **limits)


class Policy(BaseModel):
    """How a table should be kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, validate_default=True)

    target_file_size_bytes: Bytes = knob(
        128 * MIB,
        "target-file-size",
        unit="size",
        why="Files of about this size read well; 128 MB to 512 MB suits most tables, 1 GB very large ones.",
        properties=("write.target-file-size-bytes",),
        gt=0,
    )
    small_file_threshold_bytes: Bytes | None = knob(
        None,
        "small-file-threshold",
        unit="size",
        why="Files below this are small; half the target unless set, so that two of them always make one good file.",
        gt=0,
    )
    fragment_ratio: int = knob(
        8,
        "fragment-ratio",
        unit="count",
        why="Files below target divided by this are fragments, which the minor tier merges often and cheaply.",
        ge=2,
    )
    min_input_files: int = knob(
        5,
        "min-input-files",
        unit="count",
        why="Merging fewer files than this is rarely worth a commit.",
        ge=2,
    )
    max_files: int = knob(
        10_000,
        "max-files",
        unit="count",
        why="The most files that one run rewrites; the rest waits for the next run.",
        ge=1,
    )
    check_interval_writes: int = knob(
        100,
        "check-interval",
        unit="writes",
        why="A pipeline that asks after each write gets a fresh look at the table every so many writes.",
        ge=1,
    )
    advise: bool = knob(True, "advise", unit="yes/no", why="Whether writers are told that compaction is recommended.")
    compression_codec: str | None = knob(
        None,
        "compression-codec",
        unit="name",
        why="The codec of rewritten files; the table's own unless set.",
        properties=("write.parquet.compression-codec",),
    )
    row_group_rows: int | None = knob(
        None,
        "row-group-rows",
        unit="rows",
        why="Rows per row group of rewritten files; sizes decide unless set, since a fixed count fits few tables.",
        gt=0,
    )
    row_group_min_bytes: Bytes = knob(
        8 * MIB,
        "row-group-min-size",
        unit="size",
        why="Row groups smaller than this on average cost readers more in seeks than they skip.",
        gt=0,
    )
    delete_ratio_limit: float = knob(
        0.1,
        "delete-ratio",
        unit="ratio",
        why="From this ratio of delete files to data files, or of deleted to stored rows, deletes are worth applying.",
        gt=0,
        le=1,
    )
    snapshot_keep_seconds: Seconds = knob(
        7 * 86400,
        "snapshot-keep",
        unit="duration",
        why="Snapshots older than this are worth expiring.",
        properties=("history.expire.max-snapshot-age-ms",),
        gt=0,
    )

    @model_validator(mode="after")
    def _small_is_below_target(self) -> Self:
        if self.small_file_threshold_bytes is not None and self.small_file_threshold_bytes > self.target_file_size_bytes:
            raise ValueError("small-file-threshold must not be above target-file-size, or every good file counts as small")
        return self

    @property
    def small_bytes(self) -> int:
        """Below this a file is small."""
        return self.small_file_threshold_bytes or self.target_file_size_bytes // 2

    @property
    def fragment_bytes(self) -> int:
        """Below this a file is a fragment."""
        return self.target_file_size_bytes // self.fragment_ratio


def knobs() -> dict[str, Knob]:
    """Every knob by its key."""
    fields = Policy.model_fields.values()
    return {str(f.alias): Knob(**f.json_schema_extra["knob"]) for f in fields}  # type: ignore[arg-type,index,call-arg]
