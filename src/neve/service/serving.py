"""What `neve serve` does: rounds of the scheduler, worker processes, and notices, until it is asked to stop.

Called by `cli.serve`. Rounds and notices have threads of their own, so that a slow catalog neither delays a stop nor keeps dead
workers from being replaced. A round that fails is logged and the next one goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from neve.errors import NeveError, StateReplacedError
from neve.service.supervisor import Supervisor

log = logging.getLogger(__name__)

_TEND_SECONDS = 1.0
_JOIN_SECONDS = 5.0


@dataclass
class Serving:
    """The parts of the service."""

    tick: Callable[[], object]
    """One round of the scheduler."""
    send: Callable[[], None]
    """Sends the notices that are due."""
    live_workers: Callable[[], Collection[str]]
    """The workers whose heartbeat is valid."""
    supervisor: Supervisor
    tick_seconds: float
    now: Callable[[], float] = time.monotonic
    ended_by: StateReplacedError | None = None
    """Why it could not go on."""

    def run(self, stop: threading.Event) -> None:
        """Serves until it is asked to stop; then lets workers finish what they are doing, within the grace time."""
        threads = [
            self._repeating(self.tick, "a round of the scheduler", stop),
            self._repeating(self.send, "sending notices", stop),
        ]
        next_look = self.now() + self.tick_seconds
        try:
            while not stop.is_set():
                attempt(self.supervisor.tend, "looking after workers")
                if self.now() >= next_look:
                    next_look = self.now() + self.tick_seconds
                    self.supervisor.replace_silent(self._live())
                stop.wait(_TEND_SECONDS)
        finally:
            stop.set()
            log.info("stopping: workers finish what they are doing; Ctrl-C again interrupts them")
            self.supervisor.stop()
            for thread in threads:
                thread.join(_JOIN_SECONDS)
        if self.ended_by is not None:
            raise self.ended_by

    def _repeating(self, action: Callable[[], object], what: str, stop: threading.Event) -> threading.Thread:
        def repeat() -> None:
            while not stop.is_set():
                try:
                    attempt(action, what, stop)
                except StateReplacedError as error:
                    self.ended_by = error
                    stop.set()
                stop.wait(self.tick_seconds)

        thread = threading.Thread(target=repeat, name=what, daemon=True)
        thread.start()
        return thread

    def _live(self) -> Collection[str] | None:
        try:
            return self.live_workers()
        except NeveError as error:
            log.debug("the workers' heartbeats cannot be read: %s", error)
            return None


def attempt(action: Callable[[], object], what: str, stop: threading.Event | None = None) -> None:
    """Carries out an action; a failure is logged and stops nothing, except that the state store is no longer in its place.

    What fails while everything stops is not worth a word.
    """
    try:
        action()
    except StateReplacedError:
        raise
    except Exception as error:
        if stop is not None and stop.is_set():
            log.debug("%s was cut short: %s", what, error)
        elif isinstance(error, NeveError):
            log.warning("%s failed: %s", what, error)
        else:
            log.exception("%s failed", what)
