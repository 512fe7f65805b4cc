"""The only place of the command line that catches: every failure becomes one line, a hint and an exit code.

Exit codes: 0 done or nothing to do, 1 failed, 2 bad request, 3 partly done, 130 interrupted, 141 nobody reads on.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from neve.errors import NeveError, RunInterrupted, SettingsError
from neve.render.commands import completed

if TYPE_CHECKING:
    from neve.cli.call import Call

PARTLY_DONE, INTERRUPTED, CLOSED_PIPE = 3, 130, 141


@contextmanager
def reported(call: Call) -> Iterator[None]:
    """Runs a command; what it raises is told to the caller and turned into an exit code."""
    try:
        yield
        sys.stdout.flush()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt as stop:
        _say("Interrupted")
        if isinstance(stop, RunInterrupted):
            _say(f"Finish the run with: {call.again('resume', stop.run_id[:8])}")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _drop_stdout()
        raise typer.Exit(CLOSED_PIPE) from None
    except NeveError as error:
        _tell(call, error)
        raise typer.Exit(error.exit_code) from None
    except Exception as error:
        _tell(call, _unexpected(error, debug=call.shared.debug))
        raise typer.Exit(1) from None


def error_json(*, code: str, message: str, hint: str | None, retryable: bool) -> str:
    """What `--json` prints for a failure."""
    return json.dumps({"error": {"code": code, "message": message, "hint": hint, "retryable": retryable}})


def _unexpected(error: Exception, *, debug: bool) -> NeveError:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = None if debug else "This is a fault of Neve's. Run it again with --debug to see where it happened."
    told = NeveError(f"Cannot go on: {reason}", hint=hint)
    told.__cause__ = error
    return told


def _tell(call: Call, error: NeveError) -> None:
    if call.shared.debug:
        _say("".join(traceback.format_exception(error.__cause__ if type(error) is NeveError else error)).rstrip())
    message = completed(" ".join(str(error).split()))
    hint = completed(error.hint) if error.hint else None
    # Problems of settings and policies are one per line; other messages may come from Java, and have line breaks of their own.
    _say(f"Error: {completed(str(error)) if isinstance(error, SettingsError) else message}")
    if hint:
        _say(f"Hint: {hint}")
    if call.wants_json:
        sys.stdout.write(error_json(code=error.code, message=message, hint=hint, retryable=error.retryable) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _drop_stdout() -> None:
    # The interpreter flushes stdout once more at exit; that must not complain again.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
