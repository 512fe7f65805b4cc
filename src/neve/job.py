"""`spark-submit job.py --table db.events`: one compaction in the session that spark-submit configured, one line of JSON.

A surface like the command line, with the flags, JSON and exit codes of `neve compact`; catalogs are those of the session. Also
`python -m neve.job`, and what Airflow's SparkSubmitOperator runs.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from typing import Any

import typer

from neve.cli.call import Call
from neve.cli.command import examples
from neve.cli.compact import EXPIRY, exit_code
from neve.cli.iceberg_compact import PARTITIONS, SIZES, partitions_of, sizes, table_option
from neve.cli.operation_command import request_command
from neve.cli.options import KnobCommand
from neve.cli.output import JsonOutput


def _job(call: Call, options: dict[str, Any]) -> None:
    shared, table = call.shared, options.pop("table")
    table = f"{shared.catalog}.{table}" if shared.catalog else table
    set_ = [*sizes(options.pop("target_size_mb"), options.pop("min_size_mb")), *shared.set]
    call.shared = replace(shared, json=True, catalog=None, set=set_)
    patterns, predicate = partitions_of(options["partitions"], options["where"])
    line = io.StringIO()
    code = _carry_out(call, table, {**options, "partitions": patterns, "where": predicate}, JsonOutput(line))
    sys.stdout.write(json.dumps(json.loads(line.getvalue()), separators=(",", ":")) + "\n")
    if code:
        raise typer.Exit(code)


def _carry_out(call: Call, table: str, asked: dict[str, Any], output: JsonOutput) -> int:
    from neve.api import Neve
    from neve.spark.caller.session import submitted_session

    with submitted_session() as spark, Neve.open(call.loaded, warehouse=call.shared.warehouse, spark=spark) as neve:
        if asked["dry_run"]:
            planned: Any = neve.compact(table, **asked)
            output.plan(planned, groups=0)
            return 0
        record = neve.compact(table, **asked)
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
)(
    request_command(
        "compact",
        _job,
        title="job",
        help="""Compact small files of a table into files of the target size, in the Spark session that spark-submit configured.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    Prints one line of JSON: the record of the run, the plan with --dry-run, or what went wrong.

    Leaves with exit code 0 if done or nothing was worth doing, 1 if failed, 2 if asked for what cannot be, 3 if partly done.
    """,
        offered=("table", "tier", "kernel", "partitions", "where", "branch", "force", *SIZES, *EXPIRY, "dry_run"),
        extra={
            "table": table_option(r"\[catalog.]\[namespace.]table, as Spark reads it in this session."),
            "partitions": PARTITIONS,
            **SIZES,
        },
    )
)


if __name__ == "__main__":
    app(prog_name="job.py")
