"""Ends a submitted program when the worker that waits for it has ended: nobody would watch it or stop it any more.

Called by `submitted`. The program is interrupted as by Ctrl-C, so that its run can be resumed by the next worker.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
_HANG_SECONDS = 300.0


@contextmanager
def interrupted_without(parent: int | None, *, look_seconds: float = _LOOK_SECONDS) -> Iterator[None]:
    """Interrupts the main thread if the process `parent` ends during the block; None watches nothing."""
    over = threading.Event()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent, over, look_seconds), name="neve-parent", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(parent: int, over: threading.Event, look_seconds: float) -> None:
    while is_running(parent):
        if over.wait(look_seconds):
            return
    log.warning("the worker that waits for this program has ended: the run is interrupted")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    if not over.wait(_HANG_SECONDS):
        os._exit(1)


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # one of somebody else is not the one that was meant
        return False
    return True
