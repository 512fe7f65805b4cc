"""Starting processes so that they can be found again, and stopping exactly those: by pid and birth, whole groups.

The supervisor calls it. A pid that was recycled by the system has another birth and is left alone; processes whose
leader is gone are known by a mark in their environment.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

MARK = "NEVE_STACK_HOME"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Kept so that our own children are reaped, and no handle is collected while its process runs.
_handles: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Child:
    """One process that we started, leader of its own process group."""

    name: str
    pid: int
    birth: str

    def is_alive(self) -> bool:
        """True while this very process runs; a zombie does not."""
        _reap(self.pid)
        return birth(self.pid) == self.birth and not _is_zombie(self.pid)


def birth(pid: int) -> str | None:
    """A text that differs between two processes that had the same pid; None if there is no such process."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        if _BOOT_ID.exists():
            # Ticks since boot: unlike a wall-clock time, it does not move when the clock is set.
            ticks = stat.read_text().rpartition(")")[2].split()[19]
            return f"{_BOOT_ID.read_text().strip()}/{ticks}"
        return str(psutil.Process(pid).create_time())
    except (OSError, psutil.Error):
        return None


def as_user(user: str | None) -> dict[str, Any]:
    """Arguments for `subprocess` that drop root for another user, groups included; none for None."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}


def launch(
    name: str,
    command: Sequence[str],
    *,
    home: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    cwd: Path | None = None,
) -> Child:
    """Starts a process in a group of its own, with stdout and stderr in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        handle = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env={**(os.environ if env is None else env), MARK: str(home)},
            **as_user(user),
        )
    _handles[handle.pid] = handle
    return Child(name, handle.pid, birth(handle.pid) or "gone")


def stop(children: Iterable[Child], *, first: signal.Signals = signal.SIGTERM, grace_seconds: float = 8) -> list[str]:
    """Asks each group to end, then kills what is left. Returns the names of those that had to be killed."""
    children = list(children)
    groups = {child: _family(child) for child in children}
    for child in children:
        _signal_group(child, first)
    members = [process for family in groups.values() for process in family]
    late = _wait(members, grace_seconds)
    for process in late:
        _kill(process)
    _wait(late, grace_seconds)
    for child in children:
        _bury(child, grace_seconds)
    late_pids = {process.pid for process in late}
    return [child.name for child, family in groups.items() if late_pids & {process.pid for process in family}]


def marked(home: Path) -> Iterator[psutil.Process]:
    """Every process that carries the mark of the stack at `home`, except this one and those above it."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in mine and process.environ().get(MARK) == str(home):
                yield process
        except (psutil.Error, OSError):
            continue


def stop_marked(home: Path) -> int:
    """Ends what carries our mark and stands in no record (its record was lost, or its leader died). Returns how many."""
    strays = list(marked(home))
    for process in strays:
        try:
            process.terminate()
        except psutil.Error:
            continue
    for process in _wait(strays, 5):
        _kill(process)
    return len(strays)


def _family(child: Child) -> list[psutil.Process]:
    if not child.is_alive():
        return []
    try:
        leader = psutil.Process(child.pid)
        # Descendants by parenthood, because some (PostgreSQL's) leave the group for sessions of their own.
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def _signal_group(child: Child, number: signal.Signals) -> None:
    if not child.is_alive():
        return
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()  # psutil compares births first
    except psutil.Error:
        return


def _wait(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Waits until all have ended or the time is up; returns those still alive."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if _runs(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [process for process in left if _runs(process)]
    return left


def _runs(process: psutil.Process) -> bool:
    _reap(process.pid)
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _bury(child: Child, seconds: float) -> None:
    """Collects the exit of a child of this very process: its last threads may outlive its leader by a moment."""
    handle = _handles.get(child.pid)
    if handle is not None and birth(child.pid) in (None, child.birth):
        with contextlib.suppress(subprocess.TimeoutExpired):
            handle.wait(seconds)
    _reap(child.pid)


def _reap(pid: int) -> None:
    handle = _handles.get(pid)
    if handle is not None and handle.poll() is not None:
        del _handles[pid]
