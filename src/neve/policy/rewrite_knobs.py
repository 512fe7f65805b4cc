"""The knobs of compaction: what is worth rewriting, how much at a time, and how the files come out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

from pydantic import BeforeValidator

from neve.policy.knobs import Knobs, knob
from neve.table.units import GIB, MIB, Bytes, Seconds

CODECS = ("zstd", "snappy", "gzip", "lz4", "lz4_raw", "brotli", "lzo", "uncompressed")


def parse_codec(value: object) -> str:
    """A Parquet codec by the name that Iceberg gives it, in any case."""
    name = str(value).lower()
    if not isinstance(value, str) or name not in CODECS:
        raise ValueError(f"{value!r} is not a codec; write one of {', '.join(CODECS)}")
    return name


STRATEGIES = ("small-files", "delete-files", "time-series", "dimensional", "cost-optimized", "adaptive")
"""The modules of `rewrite.strategies` by their names; spelled here, since loading them would slow every help."""


def parse_strategy(value: object) -> str:
    """The name of a strategy; ValueError names the nearest one."""
    if isinstance(value, str) and value in STRATEGIES:
        return value
    close = get_close_matches(str(value).lower(), STRATEGIES, n=1)
    advice = f", did you mean {close[0]}?" if close else ""
    raise ValueError(f"there is no strategy {value!r}{advice}; write one of {', '.join(STRATEGIES)}")


def parse_layout(value: object) -> str:
    """A layout as `table.layout` spells it, so that equal ones are equal texts."""
    from neve.table.layout import Layout  # it brings Arrow along, which help does not need

    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a layout; write columns, such as city, amount")
    return str(Layout.parse(value))


Codec = Annotated[str, BeforeValidator(parse_codec)]
LayoutText = Annotated[str, BeforeValidator(parse_layout)]
StrategyName = Annotated[str, BeforeValidator(parse_strategy)]


class RewriteKnobs(Knobs):
    """How data files should be."""

    target_file_size_bytes: Bytes = knob(
        128 * MIB,
        "target-file-size",
        unit="size",
        why="Files of about this size read well; 128 MB to 512 MB suits most tables, 1 GB very large ones.",
        properties=("self-optimizing.target-size", "write.target-file-size-bytes"),
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
        properties=("self-optimizing.fragment-ratio",),
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
        properties=("self-optimizing.max-file-count",),
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
        properties=("self-optimizing.minor.trigger.interval",),
        gt=0,
    )
    full_interval_seconds: Seconds | None = knob(
        None,
        "full-interval",
        unit="duration",
        why="A whole partition is rewritten once this much time has passed since the last compaction.",
        properties=("self-optimizing.full.trigger.interval",),
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
    row_change_interval_seconds: Seconds = knob(
        300,
        "row-change-interval",
        unit="duration",
        why="Partitions whose rows another writer is changing (UPDATE, DELETE, MERGE) are compacted at most this often: such a "
        "command fails if a file that it read is replaced before it commits.",
        ge=0,
    )
    gap_wait_seconds: Seconds = knob(
        60,
        "gap-wait",
        unit="duration",
        why="The longest that a commit waits for a writer that changes rows (UPDATE, DELETE, MERGE) to commit first, so that "
        "it lands between two of that writer's commands.",
        ge=0,
    )
    check_interval_writes: int = knob(
        100,
        "check-interval",
        unit="writes",
        why="A pipeline that asks after each write gets a fresh look at the table every so many writes.",
        ge=1,
    )
    advise: bool = knob(
        True,
        "advise",
        unit="yes/no",
        why="Whether writers are told that compaction is recommended.",
        properties=("self-optimizing.enabled",),
    )
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
        why="The most rows per row group of rewritten files; sizes decide unless set, since a fixed count fits few tables.",
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
        properties=("self-optimizing.major.trigger.duplicate-ratio",),
        gt=0,
        le=1,
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
