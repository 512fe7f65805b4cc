"""A compaction in another process, which stalls at a given call and goes on when a test lets it.

Where the machine allows it, the process has namespaces of process ids, host name and network of its own, like a container.
Run as a module, this is that process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from neve.api import Neve
from neve.errors import NeveError
from neve.operations import rewrite_run
from neve.rewrite.planner import Request
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from neve.state import StateStore
from tests.accidents.unguarded import Taking, answering

HOST = "otherhost"
_UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--net"]
_UNSHARED, _GUARDS_OUT = "TESTS_UNSHARED", "TESTS_GUARDS_OUT"
_QUICK_JAVA = "-XX:TieredStopAtLevel=1"
_SPARK = {"spark.driver-memory": "1 GB", "spark.master": "local[2]", "spark.class-archive": "existing"}
_SET_FLAGS, _IS_UP = 0x8914, 1
"""SIOCSIFFLAGS and IFF_UP of Linux."""


def everywhere(guards: Mapping[str, str]) -> list[Taking]:
    """Takes guards out, given as `module:function` with their answers, here and in every `OtherHost` started meanwhile."""

    @contextmanager
    def inherited() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv(_GUARDS_OUT, json.dumps(dict(guards)))
            yield

    return [*_taken_out(guards), inherited]


class OtherHost:
    """A run in another process, which stalls at its first call of this name."""

    def __init__(self, warehouse: Path, state: Path, table: str, call: str) -> None:
        unshared = _may_unshare()
        command = [*(_UNSHARE if unshared else ()), sys.executable, "-m", __name__, str(warehouse), str(state), table, call]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "JDK_JAVA_OPTIONS": _QUICK_JAVA, _UNSHARED: "1" if unshared else ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if (line := self._process.stdout.readline()) != "stalled\n":
            raise AssertionError(f"{line}{self._process.communicate()}")
        self._pid = _only_child(self._process.pid) if unshared else self._process.pid
        self.shown = f"{HOST}:1" if unshared else f"{socket.gethostname()}:{self._pid}"
        """The owner of the run, as messages show it."""

    def stop(self) -> None:
        """Stops the whole process, its heartbeat included; what it waits for is there when it goes on."""
        assert self._process.stdin is not None
        os.kill(self._pid, signal.SIGSTOP)
        while " T " not in Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8"):
            pass
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def go_on(self) -> str:
        """What the process says at its end."""
        os.kill(self._pid, signal.SIGCONT)
        said, _ = self._process.communicate(timeout=300)
        return said.strip()

    def kill(self) -> None:
        """Ends the process and its JVM, if they have not ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@cache
def _may_unshare() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*_UNSHARE, "true"], check=False).returncode


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(child)


def _taken_out(guards: Mapping[str, str]) -> list[Taking]:
    return [answering(resolve_name(name), answer) for name, answer in guards.items()]


def main() -> None:
    warehouse, state, table, call = sys.argv[1:]
    if os.environ[_UNSHARED]:
        socket.sethostname(HOST)
        _raise_loopback()
    rewrite_run.BATCH_GROUPS = 2
    _stall_at(call)
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}", **_SPARK})
    with ExitStack() as stack:
        for taking in _taken_out(json.loads(os.environ.get(_GUARDS_OUT, "{}"))):
            stack.enter_context(taking())
        neve = stack.enter_context(Neve.open(settings, warehouse=warehouse, environ={}))
        try:
            _say(f"ended {neve.compact(table, request=Request(force=True)).outcome}")
        except NeveError as error:
            _say(f"stopped {type(error).__name__} {error}")


def _raise_loopback() -> None:
    """A new network namespace has nothing but a loopback interface that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _IS_UP))


def _stall_at(call: str) -> None:
    owner: Any = StateStore if call in ("written", "settled") else TableBridge
    real, journal = getattr(owner, call), StateStore.written

    def stalling(*args: Any, **words: Any) -> Any:
        setattr(owner, call, real)
        _say("stalled")
        sys.stdin.readline()
        return real(*args, **words)

    def noted(*args: Any, **words: Any) -> None:
        journal(*args, **words)
        setattr(owner, call, stalling)

    if call == "refresh":  # the table is loaded when the lease is taken, too: meant is the load before the commit
        setattr(StateStore, "written", noted)  # noqa: B010 - a method
    else:
        setattr(owner, call, stalling)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
