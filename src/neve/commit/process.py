"""owner: who this process is, and whether the process that owns a run has certainly ended.

Called by `commit.lease`, `operations.rewrite_run` and `operations.resume`. Wherever the machine cannot tell, the answer is that
the process may be alive: then only the end of its heartbeat counts.
"""

from __future__ import annotations

import os
import socket
import subprocess
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from neve.commit.owner import ABSENT, Owner

_PROC = Path("/proc")
_SECONDS = 10
_START_FIELD = 19
"""The place of the start time in /proc/PID/stat, counted from after the command's name."""


def this_process() -> Owner:
    """The process that asks."""
    return _owner_of(os.getpid())


@lru_cache(maxsize=1)
def _owner_of(pid: int) -> Owner:
    """Keyed by the process id, so that a forked child has a random number of its own."""
    return Owner(socket.gethostname(), pid, _boot(), _namespaces(), _own_start(pid), uuid4().hex)


def is_certainly_gone(owner: str) -> bool:
    """Whether the process with this stored owner has certainly ended."""
    return Owner.parse(owner).is_certainly_gone(this_process(), started)


def started(pid: int) -> str | None:
    """When a process of this machine started; see `commit.owner.Started`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ABSENT
    except (PermissionError, OverflowError):
        pass
    if not _PROC.is_dir():
        return _told("ps", "-o", "lstart=", "-p", str(pid))
    # Process ids in /proc may be those of another namespace, where a container has its host's /proc.
    return _start_in(_PROC / str(pid) / "stat") if _link("self") == str(os.getpid()) else None


def _own_start(pid: int) -> str | None:
    return _start_in(_PROC / "self" / "stat") if _PROC.is_dir() else _told("ps", "-o", "lstart=", "-p", str(pid))


def _start_in(stat: Path) -> str | None:
    try:
        # The command's name comes before it, in parentheses, and may have spaces.
        return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[_START_FIELD]
    except (OSError, IndexError):
        return None


def _boot() -> str | None:
    """What no other machine and no other start of this machine has."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip() or None
    except OSError:
        return _told("sysctl", "-n", "kern.bootsessionuuid")  # macOS


def _namespaces() -> str | None:
    """Of process ids, and of the clock that start times are counted by; systems without /proc have no such namespaces."""
    if not _PROC.is_dir():
        return "none"
    found = _link("self/ns/pid")
    return found and f"{found},{_link('self/ns/time')}"


def _link(name: str) -> str | None:
    try:
        return str((_PROC / name).readlink())
    except OSError:
        return None


def _told(*command: str) -> str | None:
    """What a command prints; None if it cannot be run, fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return " ".join(done.stdout.split()) or None if done.returncode == 0 else None
