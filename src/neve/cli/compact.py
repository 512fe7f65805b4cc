"""`neve compact`, `neve plan` and `neve cluster`: what each shows at its end, what to type next, and its exit code.

Options and help come from the operations' requests (`cli.operation_command`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.failures import PARTLY_DONE
from neve.cli.next_steps import again, on_branch
from neve.cli.operation_command import operation_command

if TYPE_CHECKING:
    from neve.rewrite.record import RunRecord

EXIT_CODES = {"partly-done": PARTLY_DONE, "failed": 1}
"""By outcome; whatever is not here is a success."""

_GROUPS = Annotated[int, typer.Option("--groups", min=0, metavar="N", help="Groups shown in the text of a plan.")], 10
_COMPACT = ("tier", "kernel", "partitions", "where", "branch", "verify", "probe_query", "force")
EXPIRY = ("expire_snapshots", "snapshot_retention_hours")
_CLUSTER = ("by", "kind", "full", "partitions", "where", "branch", "verify", "probe_query")


def _show(call: Call, ended: Any, options: Mapping[str, Any]) -> None:
    """The plan of a dry run, else the record."""
    if options["dry_run"]:
        call.output.plan(ended, groups=options["groups"])
        return
    call.output.ended(ended, next_steps=_next_steps(call, ended, options))
    if code := exit_code(ended):
        raise typer.Exit(code)


def exit_code(record: RunRecord) -> int:
    """By outcome. An answer that changed is a failure however well the rest went; a failed expiry makes it partly done."""
    if record.probe is not None and record.probe.equal is False:
        return 1
    partly = PARTLY_DONE if record.expiry is not None and record.expiry.outcome.value in EXIT_CODES else 0
    return EXIT_CODES.get(record.outcome.value, partly)


def _next_steps(call: Call, run: RunRecord, options: Mapping[str, Any]) -> list[str]:
    """A run without work is not recorded, so that it cannot be shown."""
    branch, is_cluster = on_branch(run.branch), "by" in options
    inspect = again(call.shared, "inspect", run.table, *branch)
    if run.run_id is not None:
        shown = [inspect, again(call.shared, "runs", "show", run.run_id[:8])]
        return shown if is_cluster or run.outcome.value == "done" else [call.retyped(), *shown]
    if is_cluster:
        return [inspect, again(call.shared, "cluster", run.table, "--full", "--dry-run", *branch)]
    # Who has forced it was told what a forced plan says.
    return [inspect] if options["force"] else [inspect, again(call.shared, "plan", run.table, "--force", *branch)]


def _runs(options: Mapping[str, Any]) -> bool:
    return not options["dry_run"]


compact = operation_command(
    "compact", _show, offered=("table", *_COMPACT, *EXPIRY, "dry_run", "groups"), extra={"groups": _GROUPS}, is_slow=_runs
)
cluster = operation_command(
    "cluster", _show, offered=("table", *_CLUSTER, "dry_run", "groups"), extra={"groups": _GROUPS}, is_slow=_runs
)
plan = operation_command(
    "compact",
    _show,
    title="plan",
    help="""Show what `neve compact` would do: which files, why, how, and what it would take. Changes nothing.

    Reads metadata only, and starts no Java unless --where needs Spark to read it. Says why wherever nothing is worth doing.
    """,
    offered=("table", "tier", "kernel", "partitions", "where", "branch", "force", "groups"),
    fixed={"dry_run": True},
    extra={"groups": _GROUPS},
    is_slow=_runs,
)
