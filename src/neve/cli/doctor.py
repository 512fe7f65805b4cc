"""`neve doctor`: what this machine lacks, and how to get it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.doctor import DoctorCheck


@command
def doctor(
    call: Call,
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark and run a job; takes a while.")] = False,
) -> None:
    """Check Python, settings, Java, Spark, jars, catalog, warehouse, state store and clock, and say how to fix what fails.

    Leaves with exit code 1 if a check failed.
    """
    checks = _checks(call, start_spark=spark)
    call.output.checks(checks)
    if any(str(check.status) == "fail" for check in checks):
        raise typer.Exit(1)


def _checks(call: Call, *, start_spark: bool) -> tuple[DoctorCheck, ...]:
    """All checks; without settings that can be used, those of the machine."""
    from neve.doctor import check_without_settings

    with ExitStack() as opened:
        try:
            neve = opened.enter_context(call.neve())
        except NeveError as error:
            return check_without_settings(error)
        return neve.doctor(start_spark=start_spark)
