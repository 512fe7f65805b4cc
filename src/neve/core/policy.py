"""Every knob of the product, declared once: key, default, unit, reason, and the table properties that also set it.

Settings, flags, table properties and the reference page are derived from here; adding a knob is adding a field. Derived
thresholds are methods, so that a table's own target carries over to them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from neve.core.presets import parse_preset
from neve.core.units import GIB, MIB, Bytes, Seconds


@dataclass(frozen=True)
class Knob:
    """What a person needs to know of a knob besides its default; `unset` says what happens where it has none."""

    unit: str
    why: str
    properties: tuple[str, ...] = ()
    unset: str = ""


def knob(
    default: Any, key: str, *, unit: str, why: str, properties: tuple[str, ...] = (), unset: str = "", **limits: Any
) -> Any:
    """Declares a field; its own table property `neve.<key>` comes before the foreign ones."""
    meta = Knob(unit=unit, why=why, properties=(f"neve.{key}", *properties), unset=unset)
    return Field(default, alias=key, description=why, json_schema_extra={"knob": asdict(meta)}, **limits)


CODECS = ("zstd", "snappy", "gzip", "lz4", "lz4_raw", "brotli", "lzo", "uncompressed")


def parse_codec(value: object) -> str:
    """A Parquet codec by the name that Iceberg gives it, in any case."""
    name = str(value).lower()
    if not isinstance(value, str) or name not in CODECS:
        raise ValueError(f"{value!r} is not a codec; write one of {', '.join(CODECS)}")
    return name


STRATEGIES = ("small-files", "delete-files", "time-series", "dimensional", "cost-optimized", "adaptive")
"""The modules of `core.strategies` by their names; spelled here, since loading them would slow every help."""


def parse_strategy(value: object) -> str:
    """The name of a strategy; ValueError names the nearest one."""
    if isinstance(value, str) and value in STRATEGIES:
        return value
    close = get_close_matches(str(value).lower(), STRATEGIES, n=1)
    advice = f", did you mean {close[0]}?" if close else ""
    raise ValueError(f"there is no strategy {value!r}{advice}; write one of {', '.join(STRATEGIES)}")


def parse_layout(value: object) -> str:
    """A layout as `core.layout` spells it, so that equal ones are equal texts."""
    from neve.core.layout import Layout  # it brings Arrow along, which help does not need

    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a layout; write columns, such as city, amount")
    return str(Layout.parse(value))


Codec = Annotated[str, BeforeValidator(parse_codec)]
LayoutText = Annotated[str, BeforeValidator(parse_layout)]
StrategyName = Annotated[str, BeforeValidator(parse_strategy)]
PresetName = Annotated[str, BeforeValidator(parse_preset)]


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
        why="Files below this are small; at most half the target, so that two of them always make one good file.",
        unset="half of target-file-size",
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
    max_bytes: Bytes | None = knob(
        None,
        "max-bytes",
        unit="size",
        why="The most bytes that one run reads; the worst partitions come first, the rest waits for the next run.",
        unset="no limit",
        gt=0,
    )
    max_cost: float | None = knob(
        None,
        "max-cost",
        unit="money",
        why="The most that one run may cost by its own prediction, in the currency of the price table.",
        unset="no limit",
        ge=0,
    )
    max_parallelism: int = knob(
        16,
        "max-parallelism",
        unit="count",
        why="Groups in flight at a time, however many cores there are, so that storage and neighbours are left some air.",
        ge=1,
    )
    inline_delete_bytes: Bytes = knob(
        10 * MIB,
        "inline-deletes",
        unit="size",
        why="Deletes that several groups share travel with the work up to this size, instead of being read by every worker.",
        ge=0,
    )
    max_file_size_bytes: Bytes | None = knob(
        None,
        "max-file-size",
        unit="size",
        why="Files above this are cut; no output of a merge exceeds twice the target.",
        unset="files are never cut for their size alone",
        gt=0,
    )
    min_group_bytes: Bytes = knob(
        0,
        "min-group-size",
        unit="size",
        why="Groups with fewer bytes than this wait until there are more.",
        ge=0,
    )
    max_group_bytes: Bytes = knob(
        50 * GIB,
        "max-group-size",
        unit="size",
        why="A single file larger than this is left alone: one task could not finish it in good time.",
        gt=0,
    )
    minor_file_count: int = knob(
        12,
        "minor-file-count",
        unit="count",
        why="More fragments than this in a partition make the minor tier worth its commit.",
        properties=("self-optimizing.minor.trigger.file-count",),
        ge=1,
    )
    minor_interval_seconds: Seconds = knob(
        3600,
        "minor-interval",
        unit="duration",
        why="Fewer fragments are merged all the same once this much time has passed since the last compaction.",
        gt=0,
    )
    full_interval_seconds: Seconds | None = knob(
        None,
        "full-interval",
        unit="duration",
        why="A whole partition is rewritten once this much time has passed since the last compaction.",
        unset="never",
        gt=0,
    )
    reencode_after_seconds: Seconds = knob(
        86400,
        "reencode-after",
        unit="duration",
        why="Copied files keep their small row groups until this much time has passed since the last compaction, so that data "
        "which is still being added to is copied again and again but encoded once.",
        ge=0,
    )
    cool_down_seconds: Seconds = knob(
        0,
        "cool-down",
        unit="duration",
        why="Partitions written to more recently than this are left to their writer.",
        ge=0,
    )
    check_interval_writes: int = knob(
        100,
        "check-interval",
        unit="writes",
        why="A pipeline that asks after each write gets a fresh look at the table every so many writes.",
        ge=1,
    )
    advise: bool = knob(True, "advise", unit="yes/no", why="Whether writers are told that compaction is recommended.")
    compression_codec: Codec | None = knob(
        None,
        "compression-codec",
        unit="name",
        why="The codec of rewritten files; the table's own unless set.",
        properties=("write.parquet.compression-codec",),
        unset="the table's own",
    )
    row_group_rows: int | None = knob(
        None,
        "row-group-rows",
        unit="rows",
        why="Rows per row group of rewritten files; sizes decide unless set, since a fixed count fits few tables.",
        unset="by size",
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
    strategy: StrategyName = knob(
        "small-files",
        "strategy",
        unit="name",
        why="What is worth rewriting: small files, deletes, partitions by age, clustering, the best gain for the money, or the "
        "best of these for each partition (adaptive).",
    )
    cluster_by: LayoutText | None = knob(
        None,
        "cluster-by",
        unit="name",
        why="The columns that rows are laid out by, such as city, amount, or z-order(city, amount), or sort(city desc).",
        unset="the table's sort order, if it has one",
    )
    cluster_depth: float = knob(
        4.0,
        "cluster-depth",
        unit="count",
        why="As many files may hold the same values of the layout's columns before they are clustered again; fewer skip more "
        "and are rewritten more often.",
        ge=1,
    )
    hot_window_seconds: Seconds = knob(
        6 * 3600,
        "hot-window",
        unit="duration",
        why="A partition is hot until its writes, and its own time where it has one, are this long past: time-series only "
        "merges its fragments.",
        gt=0,
    )
    cold_after_seconds: Seconds = knob(
        30 * 86400,
        "cold-after",
        unit="duration",
        why="A partition whose writes and own time are this long past is cold: time-series leaves it alone.",
        gt=0,
    )
    reads_per_day: float = knob(
        100.0,
        "reads-per-day",
        unit="count",
        why="How often the table is read in a day, as far as anybody knows; what a rewrite gains is reckoned by it.",
        ge=0,
    )
    payback_seconds: Seconds = knob(
        30 * 86400,
        "payback",
        unit="duration",
        why="A rewrite has to gain its own price back within this, by prediction; else cost-optimized and adaptive leave it.",
        gt=0,
    )
    scan_parallelism: int | None = knob(
        None,
        "scan-parallelism",
        unit="count",
        why="Tasks that are to read a partition at a time; a merge is declined if a scan by them would take longer after it.",
        unset="any number of files will do",
        ge=1,
    )
    queries: str | None = knob(
        None,
        "queries",
        unit="predicates",
        why="What readers look for, as Spark SQL predicates with semicolons between them; a plan tells what they read now and "
        "what they would, a run what they do.",
        unset="none",
    )
    evolve_specs: bool = knob(
        False,
        "evolve-specs",
        unit="yes/no",
        why="Whether files of older partition specs are rewritten into partitions of the current one, for which Spark shuffles "
        "their rows.",
    )
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
    """A table property's value as its knob reads it: Iceberg's own names end in the unit that they are written in."""
    if name.startswith("neve.") or not name.endswith(("-bytes", "-ms")):
        return text
    if not text.strip().isdigit():
        raise ValueError(f"{text!r} is not a whole number of {'bytes' if name.endswith('-bytes') else 'milliseconds'}")
    return int(text) if name.endswith("-bytes") else f"{int(text)} ms"


def knobs() -> dict[str, Knob]:
    """Every knob by its key."""
    fields = Policy.model_fields.values()
    return {str(f.alias): Knob(**f.json_schema_extra["knob"]) for f in fields}  # type: ignore[arg-type,index]
