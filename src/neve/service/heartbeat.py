"""Keeps a claim alive while its job runs, and interrupts the job if the claim is lost or the job is cancelled.

Called by `worker`, whose job runs in the main thread: only there does Python deliver an interrupt. A job that goes on for long
after its interrupt hangs.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Self

from neve.errors import StateError

log = logging.getLogger(__name__)

_HANG_SECONDS = 300.0
"""A job has so long to end after its interrupt: it may have to write how the run can be resumed."""


class Interruption(StrEnum):
    """Why a job was interrupted."""

    LOST = "the claim was lost to another worker"
    CANCELLED = "the job was cancelled"
    TOO_LONG = "the job took longer than max-job-time"


class Heartbeat:
    """A thread that calls `beat` in intervals. `beat` returns why the job must stop, or None. `max_seconds` bounds the job.

    `on_hang` is called, in that thread, if the job goes on for `hang_seconds` after its interrupt.
    """

    def __init__(
        self,
        beat: Callable[[], Interruption | None],
        *,
        seconds: float,
        max_seconds: float,
        on_hang: Callable[[Interruption], None],
        hang_seconds: float = _HANG_SECONDS,
    ) -> None:
        self._beat, self._seconds, self._ends = beat, seconds, time.monotonic() + max_seconds
        self._on_hang, self._hang_seconds = on_hang, hang_seconds
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_beating, name="neve-heartbeat", daemon=True)
        self.interruption: Interruption | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:  # no interrupt arrives after the block
            self._over.set()
        self._thread.join()

    def _keep_beating(self) -> None:
        hangs = 0.0
        while not self._over.wait(self._seconds):
            why = self._beaten()
            if self.interruption is not None:
                if time.monotonic() > hangs:
                    log.error("the job does not end although it was interrupted: %s", self.interruption)
                    self._on_hang(self.interruption)
                    return
            elif why is not None:
                self.interruption, hangs = why, time.monotonic() + self._hang_seconds
                self._interrupt()

    def _beaten(self) -> Interruption | None:
        """Why the job must stop. While the store is away, the claim may end by itself."""
        found = None
        try:
            found = self._beat()
        except StateError as error:
            log.warning("a heartbeat failed: %s", error)
        except Exception:  # the next one may succeed
            log.exception("a heartbeat failed")
        return found or (Interruption.TOO_LONG if time.monotonic() > self._ends else None)

    def _interrupt(self) -> None:
        with self._lock:
            if not self._over.is_set():
                log.warning("the job is interrupted: %s", self.interruption)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
