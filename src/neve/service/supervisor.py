"""Keeps the worker processes of `neve serve` running: starts them, replaces those that end, and stops them.

A worker has a process of its own, so that a Spark that dies, hangs or grows takes nothing else down. Whatever a worker leaves
unfinished, the next one resumes.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

RENEW = 75
"""The exit code of a worker that asks to be replaced."""
_LONGEST_PAUSE = 60.0
_STABLE_SECONDS = 60.0
"""A worker that ran for this long starts without a pause if it ends."""
_KILL_SECONDS = 15.0
_POLL_SECONDS = 0.1


@dataclass
class WorkerProcess:
    """One worker's place: the command, the process that runs it now, and when the next one may start."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    not_before: float = 0.0
    failures: int = 0
    silent_since: float | None = None
    """When it was first found to give no sign of life."""


@dataclass
class Supervisor:
    """Worker processes by name. `tend` is called about every second."""

    commands: Mapping[str, Sequence[str]]
    grace_seconds: float
    patience_seconds: float = 60.0
    """A worker that has given no sign of life for this long is replaced."""
    spawn: Callable[[Sequence[str]], subprocess.Popen[bytes]] = subprocess.Popen
    now: Callable[[], float] = time.monotonic
    hurry: threading.Event = field(default_factory=threading.Event)
    """Set when workers should be interrupted although their grace time is not over."""
    workers: list[WorkerProcess] = field(init=False)

    def __post_init__(self) -> None:
        self.workers = [WorkerProcess(name, command) for name, command in self.commands.items()]

    def tend(self) -> None:
        """Starts every worker that is not running, after a pause if it keeps ending."""
        for worker in self.workers:
            if worker.process is not None and (code := worker.process.poll()) is not None:
                self._ended(worker, code)
            if worker.process is None and self.now() >= worker.not_before:
                self._start(worker)

    def _start(self, worker: WorkerProcess) -> None:
        worker.started, worker.silent_since = self.now(), None
        try:
            worker.process = self.spawn(worker.command)
        except OSError as error:
            pause = self._failed(worker)
            log.warning("worker %s cannot be started: %s; the next try is in %.0f s", worker.name, error, pause)
        else:
            log.debug("worker %s started as process %s", worker.name, worker.process.pid)

    def replace_silent(self, live: Collection[str] | None) -> None:
        """Ends workers that have given no sign of life for a while, so that `tend` replaces them.

        `live` names the workers whose heartbeat is valid; None if that is unknown, as while the state store is away.
        """
        for worker in self.workers:
            if worker.process is None or live is None or worker.name in live:
                worker.silent_since = None
            elif worker.silent_since is None:
                worker.silent_since = self.now()
            elif self.now() - worker.silent_since > self.patience_seconds:
                log.warning("worker %s gives no sign of life and is ended", worker.name)
                _kill(worker.process)

    def _ended(self, worker: WorkerProcess, code: int) -> None:
        worker.process = None
        if code == RENEW:
            log.info("worker %s is replaced by a new process", worker.name)
            worker.failures = 0
            return
        pause = self._failed(worker)
        log.warning("worker %s ended with %s; the next one starts in %.0f s", worker.name, _ending(code), pause)

    def _failed(self, worker: WorkerProcess) -> float:
        worker.failures = 1 if self.now() - worker.started > _STABLE_SECONDS else worker.failures + 1
        pause = min(_LONGEST_PAUSE, 2.0 ** min(worker.failures - 1, 16))
        worker.not_before = self.now() + pause
        return pause

    def stop(self) -> None:
        """Asks every worker to finish its job; interrupts it after the grace time, and ends it if it does not answer."""
        running = [worker.process for worker in self.workers if worker.process is not None]
        _send(running, signal.SIGTERM)
        self._wait(running, self.grace_seconds, until=self.hurry)
        _send(running, signal.SIGINT)
        self._wait(running, _KILL_SECONDS)
        for process in running:
            _kill(process)
            process.wait()

    def _wait(
        self, running: Sequence[subprocess.Popen[bytes]], seconds: float, *, until: threading.Event | None = None
    ) -> None:
        ends = self.now() + seconds
        while self.now() < ends and not (until is not None and until.is_set()):
            if all(process.poll() is not None for process in running):
                return
            time.sleep(_POLL_SECONDS)


def _send(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and, if it leads a group, whatever it started in that."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
