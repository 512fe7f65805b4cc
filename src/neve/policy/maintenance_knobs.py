"""The knobs of maintenance: snapshots, files on their way out, manifests, statistics, tags, and rows past their time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator

from neve.policy.knobs import Knobs, knob
from neve.table.time_format import parse_format
from neve.table.units import MIB, Bytes, Seconds


def parse_tag_policy(value: object) -> str:
    """A policy of tags as `maintenance.tags` spells it."""
    from neve.policy.auto_tags import parse_keep, spell_keep

    return spell_keep(parse_keep(value))


def parse_tag_prefix(value: object) -> str:
    """Letters, digits and what may stand between them in the name of a reference."""
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value) is None:
        raise ValueError(f"{value!r} cannot begin a tag's name; write letters, digits, dashes, dots or underscores")
    return value


def parse_word(*words: str) -> Callable[[object], str]:
    """One of these words."""

    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"{value!r} is not one of {', '.join(words)}")
        return str(value)

    return parse


TimeFormat = Annotated[str, BeforeValidator(parse_format)]
TtlSince = Annotated[str, BeforeValidator(parse_word("now", "last-write"))]
TtlBy = Annotated[str, BeforeValidator(parse_word("row", "file"))]
TagPolicy = Annotated[str, BeforeValidator(parse_tag_policy)]
TagPrefix = Annotated[str, BeforeValidator(parse_tag_prefix)]


class MaintenanceKnobs(Knobs):
    """How what surrounds the data files should be kept."""

    snapshot_keep_seconds: Seconds = knob(
        7 * 86400,
        "snapshot-keep",
        unit="duration",
        why="Snapshots older than this are worth expiring, up to the one that was current then.",
        properties=("history.expire.max-snapshot-age-ms", "snapshot.keep.duration", "snapshot.base.keep.minutes"),
        table_first=True,
        gt=0,
    )
    snapshot_min_count: int = knob(
        1,
        "snapshot-min-count",
        unit="count",
        why="As many of the newest snapshots of each branch stay, however old they are.",
        properties=("history.expire.min-snapshots-to-keep",),
        table_first=True,
        ge=1,
    )
    snapshot_consumers: str = knob(
        "flink.job-id, flink.operator-id, spark.sql.streaming.queryId",
        "snapshot-consumers",
        unit="summary keys",
        why="Keys by which streaming writers find their last commit: for each value the newest snapshot that has it stays, and "
        "what came after it.",
    )
    snapshot_consumer_keep_seconds: Seconds = knob(
        30 * 86400,
        "snapshot-consumer-keep",
        unit="duration",
        why="A streaming writer that has not committed for this long is taken to be gone, and holds no snapshot any more.",
        gt=0,
    )
    snapshot_refs: bool = knob(
        True,
        "snapshot-refs",
        unit="yes/no",
        why="Whether branches and tags go whose own retention (RETAIN in Spark SQL) is over; no other ever does.",
    )
    snapshot_limit: int = knob(
        10_000,
        "snapshot-limit",
        unit="count",
        why="The most snapshots that one run expires; the oldest go first, the rest waits for the next run.",
        ge=1,
    )
    metadata_keep: int = knob(
        100,
        "metadata-keep",
        unit="count",
        why="As many earlier versions of the metadata file stay in its log; an expiry sets the table's property to it.",
        properties=("write.metadata.previous-versions-max",),
        ge=1,
    )
    quarantine_grace_seconds: Seconds = knob(
        86400,
        "quarantine-grace",
        unit="duration",
        why="Files that nothing seems to need stay in their place this long before they are looked at again and moved.",
        gt=0,
    )
    trash_keep_seconds: Seconds = knob(
        7 * 86400,
        "trash-keep",
        unit="duration",
        why="Files in the trash can be restored for this long; then a purge removes them for good.",
        gt=0,
    )
    purge_rate: float = knob(
        1000.0,
        "purge-rate",
        unit="count",
        why="Files that a purge removes in a second, so that storage keeps answering others.",
        gt=0,
    )
    orphan_age_seconds: Seconds = knob(
        3 * 86400,
        "orphan-age",
        unit="duration",
        why="Files that no snapshot names count as orphans from this age on; a writer may need up to 3 days to commit.",
        ge=0,
    )
    orphan_interval_seconds: Seconds = knob(
        7 * 86400,
        "orphan-interval",
        unit="duration",
        why="`neve maintain` looks for orphans again after this long: each search lists everything at the table's location.",
        gt=0,
    )
    maintain_compact: bool = knob(
        True,
        "maintain-compact",
        unit="yes/no",
        why="Whether `neve maintain` compacts the table.",
        properties=("self-optimizing.enabled",),
    )
    maintain_deletes: bool = knob(
        True,
        "maintain-deletes",
        unit="yes/no",
        why="Whether `neve maintain` converts, merges and prunes deletes that a compaction has not applied.",
    )
    maintain_expire: bool = knob(
        True,
        "maintain-expire",
        unit="yes/no",
        why="Whether `neve maintain` expires snapshots.",
        properties=("table-expire.enabled",),
    )
    maintain_manifests: bool = knob(
        True,
        "maintain-manifests",
        unit="yes/no",
        why="Whether `neve maintain` rewrites manifests.",
    )
    maintain_orphans: bool = knob(
        True,
        "maintain-orphans",
        unit="yes/no",
        why="Whether `neve maintain` looks for orphans.",
        properties=("clean-orphan-file.enabled",),
    )
    manifest_target_bytes: Bytes = knob(
        8 * MIB,
        "manifest-target-size",
        unit="size",
        why="Manifests of about this size are read well; larger ones keep a query's planning from going on in parallel.",
        properties=("commit.manifest.target-size-bytes",),
        gt=0,
    )
    manifest_min_count: int = knob(
        10,
        "manifest-min-count",
        unit="count",
        why="Manifests are rewritten where that spares a query at least so many of them, and half of what it opens.",
        ge=1,
    )
    stats_columns: str | None = knob(
        None,
        "stats-columns",
        unit="names",
        why="The columns whose different values are counted, with commas between them.",
        unset="all that hold one value each",
    )
    stats_change: float = knob(
        0.1,
        "stats-change",
        unit="ratio",
        why="Statistics are made anew once this share of the rows was added or removed since.",
        gt=0,
    )
    auto_tags: TagPolicy | None = knob(
        None,
        "auto-tags",
        unit="counts",
        why="How many tags are kept of ends of days, weeks and months, such as daily 7, weekly 4, monthly 12.",
        unset="no tag is made, and none is dropped",
    )
    auto_tag_prefix: TagPrefix = knob(
        "neve",
        "auto-tag-prefix",
        unit="name",
        why="How the names of such tags begin, as in neve-daily-2025-06-14. Tags with other names are never touched.",
    )
    ttl_seconds: Seconds | None = knob(
        None,
        "ttl",
        unit="duration",
        why="How long rows are kept; older ones are for `neve ttl` to remove, after a preview.",
        properties=("data-expire.retention-time",),
        unset="for ever",
        gt=0,
    )
    ttl_column: str | None = knob(
        None,
        "ttl-column",
        unit="name",
        why="The column that tells a row's age: a timestamp, a date, or a number or text with ttl-format.",
        properties=("data-expire.field",),
        unset="the only one that the table is partitioned by as a time",
    )
    ttl_format: TimeFormat | None = knob(
        None,
        "ttl-format",
        unit="name",
        why="How a number or a text tells its time: seconds, milliseconds, microseconds, nanoseconds, or such as yyyy-MM-dd; "
        "times are UTC.",
        properties=("data-expire.datetime-string-pattern", "data-expire.datetime-number-format"),
        unset="numbers and texts are refused",
    )
    ttl_by: TtlBy = knob(
        "row",
        "ttl-by",
        unit="name",
        why="Whether rows past their time also leave files that hold younger ones (row), or only whole files go (file).",
        properties=("data-expire.level",),
    )
    ttl_since: TtlSince = knob(
        "now",
        "ttl-since",
        unit="name",
        why="From when ttl counts back: now, or last-write, by which a table without writers keeps its rows.",
        properties=("data-expire.base-on-rule",),
    )
    ttl_floor_seconds: Seconds = knob(
        86400,
        "ttl-floor",
        unit="duration",
        why="A ttl below this is refused: in the wrong unit it would empty the table.",
        gt=0,
    )
