"""`neve serve`: looks after tables by policies until it is stopped."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.failures import PARTLY_DONE
from neve.cli.logs import configure
from neve.cli.options import LogFormat, LogLevel
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.api import Neve

DEMO_DIRECTORY = "neve-serve-demo"

log = logging.getLogger(__name__)


@command
def serve(
    call: Call,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", metavar="PATH", help="Apply these policies first, as `neve policy apply` does."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One round: observe, carry out what is due in this process, and end.")
    ] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help=f"Serve a new warehouse in ./{DEMO_DIRECTORY} (or --warehouse DIR) that writers fill."),
    ] = False,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop by itself after this time, such as 10m.")
    ] = None,
) -> None:
    """Look after tables by policies until stopped: observe them, decide what is due, and carry it out.

    Workers are processes of their own, one for each job that may run at a time (`service.targets`). Ctrl-C or SIGTERM lets
    running jobs end within `service.shutdown-grace`; what was cut short is resumed by the next start. Several `neve serve` on
    several machines share the work if they share a PostgreSQL state store.

    With --once, the exit code is 0 if all went well and 3 if something could not be read or a job failed.
    """
    seconds = _seconds(lasting)
    with _demo(call) if demo else nullcontext(call) as serving:
        tell_the_story(serving)
        with serving.neve() as neve:
            for path in [str(policies)] if policies is not None else _demo_policies(serving) if demo else []:
                _apply(neve, path)
            if once:
                _once(serving, neve)
            else:
                _until_stopped(serving, neve, seconds)


def _seconds(lasting: str | None) -> float | None:
    from neve.table.units import parse_seconds

    try:
        return None if lasting is None else parse_seconds(lasting)
    except ValueError as error:
        raise BadRequestError(f"Cannot read --for: {error}", hint="Write it like 10m, 2h or '1 day'.") from error


def tell_the_story(call: Call) -> None:
    """Logs are what the command shows: they are told from level info on, unless the settings say more or less."""
    settings = call.loaded.settings.log
    level = LogLevel(settings.level) if ("log", "level") in call.loaded.layer else LogLevel.INFO
    configure(level, LogFormat(settings.format), debug=call.shared.debug, story=True)


@contextmanager
def _demo(call: Call) -> Iterator[Call]:
    """The call with the demo's settings, while writers fill its warehouse."""
    from neve.service.demo import create_namespace, prepare, writers

    settings = prepare(Path(call.shared.warehouse or DEMO_DIRECTORY))
    serving = Call(replace(call.shared, config=settings, warehouse=None), call.knobs)
    with serving.neve() as neve:
        create_namespace(neve.connection)
    with writers(settings):
        yield serving


def _demo_policies(call: Call) -> list[str]:
    from neve.service.demo import policies_of

    return [str(policies_of(Path(call.shared.config or DEMO_DIRECTORY).parent))]


def _apply(neve: Neve, path: str) -> None:
    from neve.service.policies import Policies
    from neve.table.units import counted

    changed = Policies(neve.connection).apply(path).changes
    log.info("%s applied from %s", counted(len(changed), "policy change", "policy changes"), path)


def _once(call: Call, neve: Neve) -> None:
    from neve.service.assembly import serve_once

    if not serve_once(neve, call.connection):
        raise typer.Exit(PARTLY_DONE)


def _until_stopped(call: Call, neve: Neve, seconds: float | None) -> None:
    from neve.service.assembly import open_serving

    stop = threading.Event()
    command = [sys.executable, "-m", "neve", "worker", *call.connection, *_logged(call)]
    with open_serving(neve, command) as serving, _signals(stop, serving.supervisor.hurry):
        if seconds is not None:
            timer = threading.Timer(seconds, stop.set)
            timer.daemon = True
            timer.start()
        serving.run(stop)


@contextmanager
def _signals(stop: threading.Event, hurry: threading.Event) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM stop the service in good order, and the second one without waiting for running jobs."""

    def handle(*_: object) -> None:
        (hurry if stop.is_set() else stop).set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logged(call: Call) -> list[str]:
    """The options by which workers log as this command does."""
    named = {"--log-level": call.shared.log_level, "--log-format": call.shared.log_format}
    return [part for flag, value in named.items() if value is not None for part in (flag, value.value)]
