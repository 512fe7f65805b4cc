"""What the supervisor knows of a server, and what a server is given to start itself with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stack import processes
from stack.places import Places
from stack.state import Record


class Endpoint(Protocol):
    """How to reach a server; the concrete ones are in `stack.endpoints`."""

    def environment(self) -> dict[str, str]:
        """Variables that tell other programs where it is."""
        ...


@dataclass(frozen=True)
class Launch:
    """Starts processes for one server and writes each down at once, before anything can fail."""

    name: str
    places: Places
    record: Record
    save: Callable[[], None]
    running: Mapping[str, Any]

    @property
    def data(self) -> Path:
        """The server's own empty directory, gone after `down`."""
        path = self.places.data(self.name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, part: str = "") -> Path:
        """The log file of one process of the server."""
        return self.places.logs / f"{self.name}{'-' + part if part else ''}.log"

    def remember(self, path: Path) -> None:
        """Has `down` remove a file or directory that lies outside the home."""
        self.record.scratch.append(str(path))
        self.save()

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        part: str = "",
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> processes.Child:
        """Starts one process; `env` is added to this process's environment."""
        child = processes.launch(
            f"{self.name}{'-' + part if part else ''}",
            [str(word) for word in command],
            home=self.places.home,
            log=self.log(part),
            env={**os.environ, **(env or {})},
            user=user,
            cwd=Path("/") if user else self.data,
        )
        self.record.children.append(child)
        self.save()
        return child

    def end(self, child: processes.Child) -> None:
        """Stops a process that was only needed to prepare the server."""
        processes.stop([child])
        self.record.children.remove(child)
        self.save()


class Server(Protocol):
    """One server. Each lives in its own module under `stack.servers`, which the registry lists.

    It is stopped by `stop_signal` to its process groups, and by SIGKILL when that does not help.
    """

    name: str
    needs: tuple[str, ...]
    endpoint_type: type[Any]
    ready_seconds: float
    stop_signal: signal.Signals

    def install(self, cache: Path) -> None:
        """Makes sure that everything it runs from is on this machine. Raises UnavailableError."""
        ...

    def start(self, launch: Launch) -> Endpoint:
        """Starts the processes and says where the server will be; does not wait for it."""
        ...

    def check(self, endpoint: Any) -> None:
        """Makes one real request. Raises NotReadyError while there is no right answer."""
        ...
