"""Servers for one test session: those of a running stack where it has them, else a stack of the session's own.

The fixtures call it. The session's own stack has a home of its own under the temporary directory, and a guard process
takes it down even if the session is killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from stack import processes, supervisor
from stack.errors import UnavailableError
from stack.places import REPOSITORY, Places
from stack.registry import find


class Session:
    """Starts what is asked for, once, and stops on `close` what it started."""

    def __init__(self, shared: Places | None = None) -> None:
        self._shared = shared or Places()
        self._own: Places | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._endpoints: dict[str, Any] = {}
        self._borrowed: set[str] = set()
        self._refusals: dict[str, UnavailableError] = {}

    def server(self, name: str) -> Any:
        """The endpoint of a running server. Raises UnavailableError, each time the same, if it cannot be had."""
        if name in self._refusals:
            raise self._refusals[name]
        if name not in self._endpoints:
            try:
                self._endpoints[name] = self._find_or_start(name)
            except UnavailableError as error:
                self._refusals[name] = error
                raise
        return self._endpoints[name]

    def close(self) -> None:
        """Stops the session's own stack; leaves a shared one alone."""
        if self._own is not None:
            supervisor.down(self._own, say=_silent)
            shutil.rmtree(self._own.home, ignore_errors=True)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
        self._own = self._guard = None
        self._endpoints.clear()

    def _find_or_start(self, name: str) -> Any:
        needs = {need: self.server(need) for need in find(name).needs}
        # A shared server is only of use beside the shared ones that it needs: all must see the same S3.
        if set(needs) <= self._borrowed:
            shared = supervisor.running(self._shared, name)
            if shared is not None:
                self._borrowed.add(name)
                return shared
        return supervisor.up(self._home(), [name], given=needs, say=_silent)[name]

    def _home(self) -> Places:
        if self._own is None:
            self._own = Places(home=Path(tempfile.mkdtemp(prefix="neve-stack-")).resolve(), cache=self._shared.cache)
            self._guard = _start_guard(self._own)
        return self._own


def _start_guard(places: Places) -> subprocess.Popen[bytes]:
    """A process that waits for the end of its input, which comes when this process ends, however it ends."""
    environment = {key: value for key, value in os.environ.items() if key != processes.MARK}
    return subprocess.Popen(
        [sys.executable, "-m", "stack.session", str(places.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
    )


def _silent(line: str) -> None:
    """The fixtures say nothing: pytest shows what matters."""


def _guard(home: Path) -> None:
    sys.stdin.read()
    if home.exists():
        supervisor.down(Places(home=home), say=_silent)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
