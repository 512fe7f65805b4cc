"""`neve worker`: one worker process of `neve serve`, which starts it. Hidden from help: nobody types it."""

from __future__ import annotations

import logging
import signal
from typing import Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.serve import tell_the_story

log = logging.getLogger(__name__)


@command
def worker(
    call: Call,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the worker.")],
    target: Annotated[str, typer.Option("--target", metavar="NAME", help="The target whose jobs it carries out.")],
    parent: Annotated[int | None, typer.Option("--parent", metavar="PID", help="End when this process has ended.")] = None,
) -> None:
    """Carry out jobs of one target until told to stop. Started by `neve serve`."""
    from neve.service.assembly import open_worker
    from neve.service.supervisor import RENEW

    tell_the_story(call)
    flags = call.connection
    with call.neve() as neve, open_worker(neve, name=name, target=target, connection_flags=flags, parent=parent) as made:
        # SIGTERM lets the job end; SIGINT interrupts it.
        signal.signal(signal.SIGTERM, lambda *_: made.stop.set())
        signal.signal(signal.SIGINT, made.interrupt)
        why = made.work()
    if why is not None:
        log.info("worker %s ends: %s", name, why)
        raise typer.Exit(RENEW)
