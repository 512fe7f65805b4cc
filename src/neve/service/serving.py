"""What `neve serve` does: rounds of the scheduler, worker processes, and notices, until it is asked to stop.

Called by `cli.serve`. A round that fails is logged and the next one goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from neve.errors import NeveError
from neve.service.supervisor import Supervisor

log = logging.getLogger(__name__)

_TEND_SECONDS = 1.0


@dataclass
class Serving:
    """The parts of the service. `tick` is one round of the scheduler, `send` sends the notices that are due."""

    tick: Callable[[], object]
    send: Callable[[], None]
    supervisor: Supervisor
    tick_seconds: float
    now: Callable[[], float] = time.monotonic

    def run(self, stop: threading.Event) -> None:
        """Serves until it is asked to stop; then lets workers finish what they are doing, within the grace time."""
        sender = threading.Thread(target=self._keep_sending, args=(stop,), name="neve-notices", daemon=True)
        sender.start()
        next_tick = self.now()
        try:
            while not stop.is_set():
                self.supervisor.tend()
                if self.now() >= next_tick:
                    next_tick = self.now() + self.tick_seconds
                    attempt(self.tick, "a round of the scheduler")
                stop.wait(_TEND_SECONDS)
        finally:
            stop.set()
            log.info("stopping: workers finish what they are doing")
            self.supervisor.stop()
            sender.join(_TEND_SECONDS)

    def _keep_sending(self, stop: threading.Event) -> None:
        while not stop.wait(self.tick_seconds):
            attempt(self.send, "sending notices")


def attempt(action: Callable[[], object], what: str) -> None:
    """Carries out an action; a failure is logged and stops nothing."""
    try:
        action()
    except NeveError as error:
        log.warning("%s failed: %s", what, error)
    except Exception:
        log.exception("%s failed", what)
