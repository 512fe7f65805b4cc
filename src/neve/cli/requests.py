"""What can be asked of a rewrite, declared once for `neve plan` and `neve compact`, and how it becomes a request."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from neve.cli.options import Shared
    from neve.flow.plan import Request

# The words of `core.plan_words` and `core.layout`; spelled out, since loading them would slow every help. A test compares them.
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
Force = Annotated[bool, typer.Option("--force", help="Also what is below the thresholds, or was written just now.")]
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
    from neve.core.plan_words import Kernel, Tier
    from neve.flow.plan import Request

    return Request(
        tier=Tier(tier) if tier else None,
        kernel=Kernel(kernel) if kernel else None,
        force=force,
        partitions=tuple(partitions or ()),
        where=where,
        branch=branch,
    )


def names(said: list[str] | None) -> list[str]:
    """What a repeatable option says, with commas between names."""
    return [name.strip() for part in said or () for name in part.split(",") if name.strip()]


def again(shared: Shared, *words: str) -> str:
    """Another command for the same place, ready to be typed."""
    named = {
        "--config": shared.config,
        "--profile": shared.profile,
        "--warehouse": shared.warehouse,
        "--catalog": shared.catalog,
    }
    options = [part for flag, value in named.items() if value is not None for part in (flag, str(value))]
    return shlex.join(["neve", *words, *options])
