"""The near side of an actor: a real process with a host name and, where the machine allows it, process ids of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from tests.histories.serving import HOST, UNSHARED

START_SECONDS = 240.0
_END_TOGETHER = ("setpriv", "--pdeathsig", "KILL")
"""Kills the process when this one ends, even by a kill: a paused process would stay for ever."""
_UNSHARE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
_QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Many small JVMs on few cores: quick to start counts for more than quick in the end."""


class ActorDiedError(Exception):
    """The process has ended."""


@cache
def works(*command: str) -> bool:
    """Whether this machine has the command, and allows what it does."""
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


class Actor:
    """A process that takes orders. All that it starts is in one process group, which is killed and paused as a whole."""

    def __init__(self, module: str, arguments: list[str], *, host: str, log: Path, environ: Mapping[str, str]) -> None:
        unshared = works(*_UNSHARE)
        command = [
            *(_END_TOGETHER if works(*_END_TOGETHER) else ()),
            *(_UNSHARE if unshared else ()),
            sys.executable,
            "-m",
            f"tests.histories.{module}",
            *arguments,
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEVE_") or "JARS" in name}
        own = {
            HOST: host,
            UNSHARED: "1" if unshared else "0",
            "JDK_JAVA_OPTIONS": _QUICK_JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
        }
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command,
            env={**kept, **own, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._numbers, self._lock = count(1), threading.Lock()
        self._open: dict[int, Future[Any]] = {0: Future()}
        self._ready = self._open[0]
        self.reached: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """Where the process stopped, as it was ordered to."""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def wait_until_ready(self) -> Any:
        return self._ready.result(START_SECONDS)

    def ask(self, lane: str, order: Mapping[str, Any]) -> Any:
        """The answer to one order. Raises ActorDiedError if the process ends before it answers."""
        future, number = Future[Any](), next(self._numbers)
        with self._lock:
            self._open[number] = future
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps({"id": number, "lane": lane, **order}) + "\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise ActorDiedError(str(error)) from error
        if not self._reading.is_alive():
            self._fail_open()
        return future.result()

    def kill(self) -> None:
        """Kills the process and everything that it started; returns when the process is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reading.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was written last never arrived

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "reached" in answer:
                self.reached.put(answer)
                continue
            with self._lock:
                future = self._open.pop(answer["id"], None)
            if future is not None:
                future.set_result(answer["answer"])
        self._fail_open()

    def _fail_open(self) -> None:
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for future in left:
            future.set_exception(ActorDiedError(f"exit code {self._process.poll()}"))
