"""Carries out a job by `spark-submit`: a work file goes to the program, a result file comes back.

Called by `worker` for targets of kind `submit`. The program is `neve.submitted`, which carries out the job in the session that
spark-submit made and writes how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neve.errors import NeveError
from neve.scheduling.job import Job, JobState, Spent
from neve.service.job_end import JobEnd

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.settings import TargetSettings

PROGRAM = Path(__file__).parents[1] / "submitted.py"
_TAIL = 2_000
_STOP_SECONDS = 60


class SubmissionError(NeveError):
    """The submitted program ended without a result."""

    code = "submission-failed"
    retryable = True


@dataclass(frozen=True)
class Submitter:
    """Submits jobs to one target. `connection_flags` lead the program to the same settings, as a command repeats them."""

    connection: Connection
    target: TargetSettings
    connection_flags: Sequence[str]

    def carry_out(self, job: Job) -> JobEnd:
        """Returns how the job ended, as the program says."""
        with tempfile.TemporaryDirectory(prefix="neve-submit-", ignore_cleanup_errors=True) as scratch:
            work, result = Path(scratch) / "job.json", Path(scratch) / "result.json"
            work.write_text(job.model_dump_json(), encoding="utf-8")
            submission = self.connection.submission(PROGRAM, self.target, Path(scratch))
            told = _run([*submission.command, *self._arguments(work, result)], dict(submission.environ))
            if not result.exists():
                raise SubmissionError(f"Cannot carry out {job.operation} on {job.table}: spark-submit ended with {told}")
            return read_result(result)

    def _arguments(self, work: Path, result: Path) -> list[str]:
        return [str(work), str(result), "--parent", str(os.getpid()), *self.connection_flags]


def write_result(end: JobEnd, file: Path) -> None:
    """Writes how a job ended; the file is there at once and whole."""
    document = asdict(end) | {"actual": None if end.actual is None else end.actual.model_dump(mode="json")}
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(file)


def read_result(file: Path) -> JobEnd:
    """Reads what `write_result` wrote."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    actual = document["actual"]
    document |= {"state": JobState(document["state"]), "actual": None if actual is None else Spent.model_validate(actual)}
    return JobEnd(**document)


def _run(command: Sequence[str], environ: dict[str, str]) -> str:
    """Runs the command to its end; returns how it ended, with the end of its output. Interrupts it if this process is."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            _interrupt(process)
            raise
        output.seek(max(0, output.tell() - _TAIL))
        tail = output.read().decode("utf-8", "replace").strip()
    return f"exit code {code}: {tail}"


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """The program and the JVM beside it: first so that the run can be resumed, then for good."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return
