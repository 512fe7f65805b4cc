"""Free TCP ports, from below the range out of which systems take ports for outgoing connections."""

from __future__ import annotations

import random
import socket

from stack.errors import StartFailedError

# Linux hands out 32768 and above, macOS 49152 and above, to clients: a port from there can be gone a moment later.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 500


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on, on any interface."""
    found: set[int] = set()
    for _ in range(_TRIES):
        if len(found) == count:
            break
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - picks a port, guards nothing
        if _is_free(port):
            found.add(port)
    if len(found) < count:
        raise StartFailedError(f"Cannot find {count} free ports: {_TRIES} tries between {_LOWEST} and {_HIGHEST}")
    return sorted(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Without it a port in TIME_WAIT looks taken; with it a port with a listener still does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
