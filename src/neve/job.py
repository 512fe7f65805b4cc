"""`spark-submit job.py --table db.events`: one compaction in the session that spark-submit configured, one line of JSON.

A surface like the command line, with the flags, JSON and exit codes of `neve compact`; catalogs are those of the session. Also
`python -m neve.job`, and what Airflow's SparkSubmitOperator runs.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.compact import DryRun, exit_code
from neve.cli.iceberg_compact import MinSize, Partition, TargetSize, partitions_of, sizes
from neve.cli.options import KnobCommand
from neve.cli.output import JsonOutput
from neve.cli.requests import (
    Branch,
    ExpireSnapshots,
    Force,
    Kernel,
    SnapshotRetentionHours,
    Tier,
    Where,
    refuse_expiry_in_dry_run,
    request_of,
)

if TYPE_CHECKING:
    from neve.rewrite.planner import Request

Table = Annotated[
    str, typer.Option("--table", metavar="NAME", help=r"\[catalog.]\[namespace.]table, as Spark reads it in this session.")
]


@command
def job(
    call: Call,
    table: Table,
    tier: Tier = None,
    kernel: Kernel = None,
    partition: Partition = None,
    where: Where = None,
    branch: Branch = "main",
    force: Force = False,
    target_size_mb: TargetSize = None,
    min_size_mb: MinSize = None,
    expire_snapshots: ExpireSnapshots = False,
    snapshot_retention_hours: SnapshotRetentionHours = None,
    dry_run: DryRun = False,
) -> None:
    """Rewrite small files of a table into good ones, in the Spark session that spark-submit configured.

    Prints one line of JSON: the record of the run, the plan with --dry-run, or what went wrong.

    Leaves with exit code 0 if done or nothing was worth doing, 1 if failed, 2 if asked for what cannot be, 3 if partly done.
    """
    shared = call.shared
    table = f"{shared.catalog}.{table}" if shared.catalog else table
    call.shared = replace(shared, json=True, catalog=None, set=[*sizes(target_size_mb, min_size_mb), *shared.set])
    patterns, predicate = partitions_of(partition, where)
    request = request_of(tier, kernel, patterns, where=predicate, branch=branch, force=force)
    if dry_run:
        refuse_expiry_in_dry_run(table, expire_snapshots=expire_snapshots, hours=snapshot_retention_hours)
    expiry = {"expire_snapshots": expire_snapshots, "snapshot_retention_hours": snapshot_retention_hours}
    line = io.StringIO()
    code = _carry_out(call, table, request, JsonOutput(line), dry_run=dry_run, expiry=expiry)
    sys.stdout.write(json.dumps(json.loads(line.getvalue()), separators=(",", ":")) + "\n")
    if code:
        raise typer.Exit(code)


def _carry_out(call: Call, table: str, request: Request, output: JsonOutput, *, dry_run: bool, expiry: dict[str, Any]) -> int:
    from neve.api import Neve
    from neve.spark.caller.session import submitted_session

    with submitted_session() as spark, Neve.open(call.loaded, warehouse=call.shared.warehouse, spark=spark) as neve:
        if dry_run:
            output.plan(neve.plan(table, request=request), groups=0)
            return 0
        record = neve.compact(table, request=request, **expiry)
    output.ended(record, next_steps=())
    return exit_code(record)


app = typer.Typer(
    name="neve.job",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "spark-submit job.py --table lake.db.events",
        "spark-submit job.py --table lake.db.events --where 'day >= current_date() - INTERVAL 7 DAYS' --tier major",
        "python -m neve.job --table lake.db.events --dry-run",
    ),
)(job)


if __name__ == "__main__":
    app(prog_name="job.py")
