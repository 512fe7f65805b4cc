"""Brings servers up and down and asks how they are: the program's verbs, called by the command line and the fixtures.

`up` is idempotent and undoes itself when it fails or is interrupted; `down` leaves no process and no data, only logs.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stack import processes
from stack.endpoints import restore
from stack.errors import NotReadyError, StartFailedError
from stack.places import Places
from stack.registry import SERVERS, find, needing, with_needs
from stack.server import Launch, Server
from stack.state import Record, State, exclusive

Say = Callable[[str], None]
_POLL_SECONDS = 0.1
_LOG_LINES = 15


@dataclass(frozen=True)
class Status:
    """One server as `status` prints it."""

    name: str
    state: str
    pids: tuple[int, ...]
    endpoint: Any


def up(
    places: Places, names: Iterable[str] = (), *, given: Mapping[str, Any] | None = None, say: Say = print
) -> dict[str, Any]:
    """Starts the named servers and what they need, unless it is `given`. Returns the endpoints of all that run."""
    with exclusive(places):
        state = State(places)
        fresh: list[str] = []
        try:
            for server in with_needs(names):
                if server.name not in (given or {}) and not _is_up(server, state):
                    fresh.append(server.name)
                    _bring_up(server, places, state, given or {}, say)
        except BaseException:
            # Ctrl-C included: half a stack is worse than none.
            _take_down(places, state, fresh)
            raise
        return _endpoints(state)


def down(places: Places, names: Iterable[str] = (), *, say: Say = print) -> list[str]:
    """Stops the named servers and what needs them, or all. Returns the names of those stopped."""
    chosen = needing(names)
    with exclusive(places):
        state = State(places)
        stopped = [name for name in state.servers if not chosen or name in chosen]
        _take_down(places, state, stopped, say)
        if not chosen:
            _sweep(places, say)
        return stopped


def status(places: Places) -> list[Status]:
    """Every server that there is a record of, and how it is now."""
    state = State(places)
    return [_look(find(name), record, state) for name, record in state.servers.items() if name in SERVERS]


def running(places: Places, name: str) -> Any:
    """The endpoint of a server that runs and answers; None otherwise."""
    state = State(places)
    return _endpoints(state)[name] if _is_up(find(name), state) else None


def _endpoints(state: State) -> dict[str, Any]:
    return {
        name: restore(find(name).endpoint_type, record.endpoint)
        for name, record in state.servers.items()
        if record.endpoint is not None and name in SERVERS
    }


def _is_up(server: Server, state: State) -> bool:
    record = state.servers.get(server.name)
    if record is None or not record.is_alive():
        return False
    try:
        server.check(_endpoints(state)[server.name])
    except NotReadyError:
        return False
    return True


def _look(server: Server, record: Record, state: State) -> Status:
    if _is_up(server, state):
        condition = "up"
    else:
        condition = "not answering" if any(child.is_alive() for child in record.children) else "dead"
    pids = tuple(child.pid for child in record.children if child.is_alive())
    return Status(server.name, condition, pids, _endpoints(state).get(server.name))


def _bring_up(server: Server, places: Places, state: State, given: Mapping[str, Any], say: Say) -> None:
    begun = time.monotonic()
    _take_down(places, state, [server.name])
    server.install(places.cache)
    installed = time.monotonic()
    record = state.servers[server.name] = Record()
    launch = Launch(server.name, places, record, state.save, {**_endpoints(state), **given})
    endpoint = server.start(launch)
    _await_ready(server, endpoint, record, places)
    record.endpoint = asdict(endpoint)  # type: ignore[call-overload]
    state.save()
    fetched = f" (installing {installed - begun:.1f} s)" if installed - begun > 1 else ""
    say(f"{server.name:<10} up after {time.monotonic() - installed:.1f} s{fetched}")


def _await_ready(server: Server, endpoint: Any, record: Record, places: Places) -> None:
    deadline = time.monotonic() + server.ready_seconds
    while True:
        try:
            return server.check(endpoint)
        except NotReadyError as error:
            dead = [child.name for child in record.children if not child.is_alive()]
            if dead:
                raise _failed(server, places, f"{dead[0]} ended by itself") from error
            if time.monotonic() > deadline:
                raise _failed(server, places, f"not ready after {server.ready_seconds:.0f} s ({error})") from error
        time.sleep(_POLL_SECONDS)


def _failed(server: Server, places: Places, reason: str) -> StartFailedError:
    tails = [_tail(log) for log in sorted(places.logs.glob(f"{server.name}*.log"))]
    return StartFailedError(
        f"Cannot start {server.name}: {reason}", hint="\n".join(["The logs end with:", *tails]) if tails else None
    )


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join([f"--- {log.name}", *lines])


def _take_down(places: Places, state: State, names: list[str], say: Say | None = None) -> None:
    # The youngest first, so that nobody loses a server that it still talks to.
    for name in reversed(names):
        record = state.servers.get(name)
        if record is None:
            continue
        killed = processes.stop(record.children, first=_stop_signal(name))
        for path in (places.data(name), *map(Path, record.scratch)):
            _remove(path)
        del state.servers[name]
        state.save()
        if say:
            say(f"{name:<10} stopped{' (had to be killed)' if killed else ''}")


def _stop_signal(name: str) -> signal.Signals:
    # A record may come from another version of this program, with other servers: it must be stoppable all the same.
    return SERVERS[name].stop_signal if name in SERVERS else signal.SIGTERM


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(places: Places, say: Say) -> None:
    strays = processes.stop_marked(places.home)
    if strays:
        say(f"{strays} stray process(es) stopped")
    shutil.rmtree(places.home / "data", ignore_errors=True)
