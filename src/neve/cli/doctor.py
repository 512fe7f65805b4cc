"""`neve doctor`: what this machine lacks, and how to get it."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command


@command
def doctor(
    call: Call,
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark and run a job; takes a while.")] = False,
) -> None:
    """Check Python, Java, Spark, jars, catalog, warehouse, state store and clock, and say how to fix what fails.

    Leaves with exit code 1 if a check failed.
    """
    with call.neve() as neve:
        checks = neve.doctor(start_spark=spark)
    call.output.checks(checks)
    if any(str(check.status) == "fail" for check in checks):
        raise typer.Exit(1)
