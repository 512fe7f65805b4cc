"""`neve plan`: what a compaction would do, with reasons and prices."""

from __future__ import annotations

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.requests import Branch, Force, GroupsShown, Kernel, Partitions, TableName, Tier, Where, request_of


@command
def plan(
    call: Call,
    table: TableName,
    tier: Tier = None,
    kernel: Kernel = None,
    partition: Partitions = None,
    where: Where = None,
    branch: Branch = "main",
    force: Force = False,
    groups: GroupsShown = 10,
) -> None:
    """Show what `neve compact` would do: which files, why, how, and what it would take. Changes nothing.

    Reads metadata only, and starts no Java unless --where needs Spark to read it. Says why wherever nothing is worth doing.
    """
    request = request_of(tier, kernel, partition, where=where, branch=branch, force=force)
    with call.neve() as neve, call.progress() as progress:
        planned = neve.plan(table, request=request, progress=progress)
    call.output.plan(planned, groups=groups)
