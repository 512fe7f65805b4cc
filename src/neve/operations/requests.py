"""What can be asked of each operation: its options, with defaults and help, declared once.

The command line, the Python API and the reference pages derive from these classes through `operations.registry`. Nothing heavy
is imported here, so that help is fast. The docstring of a request is the help of its command.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MAIN = "main"
LIMIT = 100_000
"""The most files that one run of the command line takes into the quarantine, or out of it."""


@dataclass(frozen=True)
class Option:
    """How a field of a request is typed on the command line. Its type and its default are the field's."""

    help: str
    flag: str | None = None
    """Unless it is the field's name."""
    metavar: str | None = None
    minimum: int | None = None
    commas: bool = False
    """Whether one value may be several names with commas between them."""
    choices: tuple[str, ...] = ()
    """The only values that it takes."""
    is_argument: bool = False
    """Whether it is given by its place, without a flag. In Python it may be given so too."""
    is_typed: bool = True
    """Whether the command line offers it."""
    typed_as: Any = None
    """The type on the command line, where it is not that of Python."""
    typed_default: Any = None
    """The default of the command line, where it is not that of Python."""


def option(default: Any, help: str, **how: Any) -> Any:  # noqa: A002 - what Typer calls it
    """A field of a request."""
    return field(default=default, metadata={"option": Option(help, **how)})


def required(help: str, **how: Any) -> Any:  # noqa: A002 - what Typer calls it
    """A field of a request without a default."""
    return field(metadata={"option": Option(help, **how)})


_DRY_RUN = "Only say what would be done; Spark is not started."
_BRANCH = "The branch to read and to commit to."

# The values of `rewrite.group` and `table.layout`; spelled out, since loading them would slow every help. A test compares them.
TIERS = ("minor", "major", "full")
KERNELS = ("copy", "arrow", "spark")
KINDS = ("sort", "z-order", "hilbert")
VERIFICATIONS = ("metadata", "content")
UPKEEP = ("convert", "rewrite", "prune")

_TIER = "How much to rewrite; decided for each partition unless given."
_KERNEL = "How to rewrite, where more than one way is right; the cheapest unless given."
_PARTITIONS = "Only partitions like this, such as 'day=2025-01-*'; repeatable."
_WHERE = 'Only files that may hold rows like this, in Spark SQL: "day >= current_date() - INTERVAL 7 DAYS".'
_FORCE = "Ignore size thresholds and quiet periods."
_VERIFY = "Counts and bounds are always compared; content reads every rewritten row once more."
_PROBE = "A query to run before and after: answers are compared, times are kept, slower than 1.2 times is told."


def _plan_only() -> Any:
    return option(False, "Only show the plan, as `neve plan` does.")


@dataclass(frozen=True)
class CompactRequest:
    """Compact small files into files of the target size, on Spark. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    Every group of files is proved before it is committed. Exits 0 when everything succeeded or nothing needed compaction, 3
    when some groups could not be committed, 1 when none could.
    """

    tier: str | None = option(None, _TIER, choices=TIERS)
    kernel: str | None = option(None, _KERNEL, choices=KERNELS)
    partitions: tuple[str, ...] = option((), _PARTITIONS, flag="--partition", metavar="PATTERN")
    where: str | None = option(None, _WHERE, metavar="PREDICATE")
    branch: str = option(MAIN, _BRANCH, metavar="NAME")
    verify: str = option("metadata", _VERIFY, choices=VERIFICATIONS)
    probe_query: str | None = option(None, _PROBE, metavar="SQL")
    force: bool = option(False, _FORCE)
    expire_snapshots: bool = option(False, "Then expire old snapshots, also if nothing needed compaction (see `neve expire`).")
    snapshot_retention_hours: float | None = option(
        None,
        "With --expire-snapshots: keep snapshots of the last N hours; the table's own retention unless given.",
        metavar="N",
        minimum=1,
        typed_as=int | None,
    )
    dry_run: bool = _plan_only()


@dataclass(frozen=True)
class ClusterRequest:
    """Bring rows with the same values of some columns into the same files, so that selective queries read few of them.

    Rewrites only files that overlap most, and nothing once the table is in order. The layout is kept in the table property
    neve.cluster-by: later runs go on with it, and it needs not be named again. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.
    """

    by: str | None = option(
        None,
        'The columns that queries look for, such as "city, amount", the most important first; as before unless given.',
        metavar="COLUMNS",
    )
    kind: str | None = option(
        None, "How rows are ordered; sort for one column, hilbert for several, unless given.", choices=KINDS
    )
    full: bool = option(False, "Every file, not only those that overlap most.")
    partitions: tuple[str, ...] = option((), _PARTITIONS, flag="--partition", metavar="PATTERN")
    where: str | None = option(None, _WHERE, metavar="PREDICATE")
    branch: str = option(MAIN, _BRANCH, metavar="NAME")
    verify: str = option("metadata", _VERIFY, choices=VERIFICATIONS)
    probe_query: str | None = option(None, _PROBE, metavar="SQL")
    dry_run: bool = _plan_only()
    tier: str | None = option(None, _TIER, choices=TIERS, is_typed=False)
    kernel: str | None = option(None, _KERNEL, choices=KERNELS, is_typed=False)
    force: bool = option(False, _FORCE, is_typed=False)


@dataclass(frozen=True)
class ResumeRequest:
    """Finish runs that were interrupted. What was written before is committed if it still holds, never done again.

    Groups whose files others have rewritten or removed meanwhile are left out.

    A run is taken over only if its process has certainly ended, or if its heartbeat has: 5 minutes after the last sign of life.
    A run that is at work elsewhere is left alone; naming it is an error. A run whose table is gone is ended with --abandon.

    Leaves with exit code 0 if there was nothing to resume or all is done, 3 if some groups could not be committed, 1 if
    none could.
    """

    run: str | None = option(None, "The id of a run, or how it begins; all unless given.", metavar="[RUN]", is_argument=True)
    abandon: bool = option(False, "End the run without committing anything of it. Its files are not removed.")
    dry_run: bool = option(False, "Only show what would be committed and what would be rewritten.")


@dataclass(frozen=True)
class RollbackRequest:
    """Move the table back to the snapshot before a run. Refused where commits of others would be lost.

    A compaction changes no row, so this is for its files: their sizes, their order, their encoding. Nothing is deleted.
    """

    run: str = required("The id of a run, or how it begins; `neve runs` lists them.", metavar="RUN", is_argument=True)
    dry_run: bool = option(False, "Only show which snapshot the branch would move to, or why it cannot.")


@dataclass(frozen=True)
class TagsRequest:
    """Keep tags of ends of days, weeks and months, as auto-tags says. Tags with other names are never touched."""

    dry_run: bool = option(False, _DRY_RUN)


@dataclass(frozen=True)
class StatsRequest:
    """Keep statistics fresh that engines plan joins by: different values of each column, rows and files of each partition."""

    columns: tuple[str, ...] = option(
        (), "Only these columns, with commas between them; repeatable.", metavar="NAMES", commas=True
    )
    force: bool = option(False, "Also where what is known has not aged yet.")
    dry_run: bool = option(False, _DRY_RUN)


@dataclass(frozen=True)
class ManifestsRequest:
    """Rewrite manifests where queries gain by it: fewer of them, sorted by partition. Files, numbers and row ids stay."""

    by: tuple[str, ...] = option(
        (),
        "Partition fields to sort by, those that queries ask for first; all in the order of the spec unless given.",
        metavar="FIELDS",
        commas=True,
    )
    limit: int = option(10_000, "The most manifests that this run rewrites.", metavar="N", minimum=2)
    dry_run: bool = option(False, _DRY_RUN)


@dataclass(frozen=True)
class PreventRequest:
    """Propose table properties by which the next writes make good files, and say what the writer should change.

    Proposed from the table's files and from what its last writes brought. The values from before are kept in the table.
    """

    apply: bool = option(False, "Set what is proposed, in one commit.")
    undo: bool = option(False, "Take back what was set, save what others have changed since.")

    @property
    def dry_run(self) -> bool:
        """Whether it only proposes."""
        return not (self.apply or self.undo)


@dataclass(frozen=True)
class ExpireRequest:
    """Expire snapshots by age and count. No file is deleted: what only they needed goes to the quarantine.

    Never a head of a branch, a tag, a snapshot that a run was planned from which has not ended, nor one that a streaming
    writer still looks for. Branches keep to their own retention; with gc.enabled=false files are left alone.
    """

    older_than: str | None = option(
        None,
        "A duration such as '7 days', or a moment such as 2025-01-31; the table's own property, else the policy's.",
        metavar="TIME",
    )
    keep: int | None = option(None, "At least so many snapshots of each branch stay.", metavar="N", minimum=1)
    snapshot_ids: tuple[int, ...] = option(
        (), "Only this snapshot, whatever its age; repeatable.", flag="--snapshot-id", metavar="ID"
    )
    metadata_only: bool = option(False, "Leave files alone: orphan removal finds them later.")
    dry_run: bool = option(False, "Only say what would go, and why the rest stays.")


@dataclass(frozen=True)
class OrphansRequest:
    """Find files that no snapshot needs, and put them into the quarantine.

    Nothing is moved or deleted by this: the quarantine looks again after its grace time. Whatever makes it doubtful whose files
    are there ends the search, with nothing recorded.
    """

    older_than: str | float | None = option(
        None, "Only files of this age; orphan-age unless given.", metavar="TIME", typed_as=str | None
    )
    location: str | None = option(None, "A place of the table to look at; its own unless given.", metavar="PATH")
    inventory: str | None = option(
        None,
        "A list of files to read in place of listing: Parquet or CSV with the columns path, size and modified.",
        metavar="FILE",
    )
    equal_schemes: tuple[str, ...] = option((), "Schemes that mean the same; repeatable.", flag="--equal-scheme", metavar="A=B")
    equal_authorities: tuple[str, ...] = option(
        (), "Hosts or buckets that are the same; repeatable.", flag="--equal-authority", metavar="A=B"
    )
    limit: int = option(LIMIT, "The most files that one run records.", metavar="N", minimum=1)
    dry_run: bool = option(False, "Only say which files there are; --json lists them all.")
    writers_may_be_running: bool = option(
        False,
        "Allows less than 3 days: files of a writer that has not committed yet would be taken for orphans.",
        flag="--i-know-that-writers-may-be-running",
    )
    no_other_table_is_here: bool = option(
        False,
        "Goes on although some table of a configured catalog cannot be read, so that its files are not known, and takes "
        "what is held for versions that are not in the table's history.",
        flag="--i-know-that-no-other-table-is-here",
    )
    ignore_tables: tuple[str, ...] = option(
        (),
        "A table, namespace or catalog that cannot be read and has no files here; repeatable. As orphans.ignore-tables.",
        flag="--ignore-table",
        metavar="NAME",
    )
    dropped_tables: tuple[str, ...] = option(
        (),
        "A table that was dropped and left files here, which nobody needs; repeatable. As orphans.dropped-tables.",
        flag="--dropped-table",
        metavar="UUID",
    )


@dataclass(frozen=True)
class TtlRequest:
    """Count the rows of a table that are past their time, and with --enforce remove them.

    Files whose rows are all past go by metadata alone, other rows one by one. Nulls stay. Other branches and tags keep
    everything, and no file is deleted. The first enforcement of a limit removes what its preview showed.
    """

    branch: str = option(MAIN, _BRANCH, metavar="NAME")
    enforce: bool = option(False, "Remove the rows; the first time only after a preview.")
    dry_run: bool = option(False, "Only count, and do not remember it: no preview.")


@dataclass(frozen=True)
class DeletesRequest:
    """Keep a table's delete files few and cheap, without rewriting data files. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.
    """

    operation: str = required("`convert`, `rewrite` or `prune`.", is_argument=True, choices=UPKEEP)
    branch: str = option(MAIN, _BRANCH, metavar="NAME")
    dry_run: bool = option(False, "Only say what would be done.")


_FILE_BY_FILE = "Only say what would be done, file by file."
_FILES = "The most files of one run; the rest waits for the next."


@dataclass(frozen=True)
class SettleRequest:
    """Look at recorded files again: what the table needs stays, the rest goes to the trash.

    Files are looked at once they have been in the quarantine for quarantine-grace (a day).
    """

    run: str | None = option(None, "Only files that this run recorded.", metavar="RUN")
    limit: int | None = option(None, _FILES, metavar="N", minimum=1, typed_as=int, typed_default=LIMIT)
    at_once: bool = option(
        False, "Without the grace time. A file that was judged wrongly is missed by readers at once.", flag="--now"
    )
    delete: bool = option(False, "Delete instead of moving to the trash; only in buckets that keep versions.")
    dry_run: bool = option(False, _FILE_BY_FILE)


@dataclass(frozen=True)
class PurgeRequest:
    """Remove files for good that have been in the trash for trash-keep (7 days), at most purge-rate in a second.

    The table is asked once more: what it needs by now is put back instead.
    """

    limit: int | None = option(None, _FILES, metavar="N", minimum=1, typed_as=int, typed_default=LIMIT)
    dry_run: bool = option(False, _FILE_BY_FILE)


@dataclass(frozen=True)
class RestoreRequest:
    """Put the files of a run back from the trash, and remove those from the quarantine that were not moved yet.

    Overwrites nothing. Restores files only: snapshots that were expired stay expired. Refused if all files are purged; if
    some are, restores the others and exits with 3.
    """

    run: str = required("The run that put files into the quarantine, or how its id begins.", metavar="RUN", is_argument=True)
    table: str | None = option(None, "Its table, if the run ended before it was recorded.", metavar="TABLE")
    dry_run: bool = option(False, _FILE_BY_FILE)


@dataclass(frozen=True)
class MaintainRequest:
    """Do all that a table needs, in the safe order: expire, compact, deletes, manifests, statistics, orphans, trash.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    A step is done only if the policy wants it and the table's condition is a reason for it. No file is deleted that has
    not been in the quarantine and in the trash. Leaves with exit code 0 if all is well, 3 if a step failed, 1 if nothing
    could be done.
    """

    only: tuple[str, ...] = option((), "Only these steps, with commas between them; repeatable.", metavar="STEPS", commas=True)
    skip: tuple[str, ...] = option((), "Every step but these, such as orphans; repeatable.", metavar="STEPS", commas=True)
    dry_run: bool = option(False, "Only say which steps are due, and why; Spark is not started.")
