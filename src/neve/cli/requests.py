"""What can be asked of a rewrite, declared once for `neve plan` and `neve compact`, and how it becomes a request."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from neve.cli.call import Call
    from neve.cli.options import Shared
    from neve.maintenance.delete_files import UpkeepRecord
    from neve.maintenance.record import MaintenanceRecord
    from neve.rewrite.planner import Request

# The words of `rewrite.group` and `table.layout`; spelled out, since loading them would slow every help. A test compares them.
TierWord = Literal["minor", "major", "full"]
KernelWord = Literal["copy", "arrow", "spark"]
KindWord = Literal["sort", "z-order", "hilbert"]
VerifyWord = Literal["metadata", "content"]

TableName = Annotated[str, typer.Argument(metavar="TABLE", help=r"\[catalog.]namespace.table, such as db.events.")]
Tier = Annotated[
    TierWord | None,
    typer.Option("--tier", show_default=False, help="How much to rewrite; decided for each partition unless given."),
]
Kernel = Annotated[
    KernelWord | None,
    typer.Option(
        "--kernel", show_default=False, help="How to rewrite, where more than one way is right; the cheapest unless given."
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="PATTERN",
        show_default=False,
        help="Only partitions like this, such as 'day=2025-01-*'; repeatable.",
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="PREDICATE",
        show_default=False,
        help='Only files that may hold rows like this, in Spark SQL: "day >= current_date() - INTERVAL 7 DAYS".',
    ),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch to read and to commit to.")]
Verify = Annotated[
    VerifyWord,
    typer.Option("--verify", help="Counts and bounds are always compared; content reads every rewritten row once more."),
]
ProbeQuery = Annotated[
    str | None,
    typer.Option(
        "--probe-query",
        metavar="SQL",
        show_default=False,
        help="A query to run before and after: answers are compared, times are kept, slower than 1.2 times is told.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Ignore size thresholds and quiet periods.")]
ExpireSnapshots = Annotated[
    bool,
    typer.Option(
        "--expire-snapshots", help="Then expire old snapshots, also if nothing needed compaction (see `neve expire`)."
    ),
]
SnapshotRetentionHours = Annotated[
    int | None,
    typer.Option(
        "--snapshot-retention-hours",
        min=1,
        metavar="N",
        show_default=False,
        help="With --expire-snapshots: keep snapshots of the last N hours; the table's own retention unless given.",
    ),
]
GroupsShown = Annotated[int, typer.Option("--groups", min=0, metavar="N", help="Groups shown in the text of a plan.")]


def request_of(
    tier: TierWord | None,
    kernel: KernelWord | None,
    partitions: list[str] | None,
    *,
    where: str | None,
    branch: str,
    force: bool,
) -> Request:
    """The request as the flow takes it."""
    from neve.rewrite.group import Kernel, Tier
    from neve.rewrite.planner import Request

    return Request(
        tier=Tier(tier) if tier else None,
        kernel=Kernel(kernel) if kernel else None,
        force=force,
        partitions=tuple(partitions or ()),
        where=where,
        branch=branch,
    )


def refuse_expiry_in_dry_run(table: str, *, expire_snapshots: bool, hours: int | None) -> None:
    """A dry run of a compaction shows its plan, and nothing of an expiry."""
    if not expire_snapshots and hours is None:
        return
    from neve.errors import BadRequestError

    age = f" --older-than '{hours} h'" if hours is not None else ""
    raise BadRequestError(
        "Cannot show what --expire-snapshots would do in a dry run of a compaction",
        hint=f"Leave the option out, and run `neve expire {shlex.quote(table)}{age} --dry-run`.",
    )


def names(said: list[str] | None) -> list[str]:
    """What a repeatable option says, with commas between names."""
    return [name.strip() for part in said or () for name in part.split(",") if name.strip()]


def steps_after(call: Call, record: MaintenanceRecord | UpkeepRecord, otherwise: str) -> list[str]:
    """What to type next: nothing if there was nothing to do, the same without --dry-run or once more, else another command."""
    if record.outcome.value == "nothing-to-do":
        return []
    return [call.retyped() if record.dry_run or record.outcome.value == "failed" else otherwise]


def on_branch(branch: str) -> tuple[str, ...]:
    """The option that names a branch; nothing for main."""
    return () if branch == "main" else ("--branch", branch)


def again(shared: Shared, *words: str) -> str:
    """Another command for the same place, ready to be typed. The command's name is written as literals: a test runs each."""
    return shlex.join(["neve", *words, *shared.connection])
