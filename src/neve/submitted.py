"""The program that `spark-submit` runs for one job of the service: `submitted.py WORK RESULT`, and options of the connection.

Reads the job from the work file, carries it out in the session that spark-submit configured, and writes how it ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.commit.failure import was_interrupted
from neve.scheduling.job import Job

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@command
def submitted(
    call: Call,
    work: Annotated[Path, typer.Argument(metavar="WORK", help="The file with the job.")],
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="The file to write how it ended.")],
    parent: Annotated[int | None, typer.Option("--parent", metavar="PID", help="Stop when this process has ended.")] = None,
) -> None:
    """Carry out one job of the service."""
    from neve.api import Neve
    from neve.service.carrying_out import carry_out
    from neve.service.job_end import JobEnd
    from neve.service.parent_watch import interrupted_without
    from neve.service.submitting import write_result
    from neve.spark.caller.session import submitted_session

    job = Job.model_validate_json(work.read_text(encoding="utf-8"))
    with interrupted_without(parent), submitted_session() as spark, Neve.open(call.loaded, spark=spark) as neve:
        try:
            end = carry_out(neve, job)
        except Exception as error:
            if was_interrupted(error):
                raise
            end = JobEnd.of_error(error, job.attempts)
    write_result(end, result)


if __name__ == "__main__":
    app(prog_name="neve.submitted")
