"""Runs a command and measures it with everything it starts: wall time, CPU, and memory summed over the process tree.

Used by the benchmarks. Linux only: memory and descendants are read from /proc.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import struct_rusage

SAMPLE_SECONDS = 0.02
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One run. Memory shared by two processes counts twice, so the peak is an upper bound."""

    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    programs: frozenset[str]
    stdout: str
    stderr: str


@dataclass
class _Tree:
    """Processes seen so far under a root; those that outlive their parent stay known."""

    known: set[int]
    programs: set[str]
    cpu: dict[int, float]
    peak_bytes: int = 0

    def sample(self) -> None:
        table = _process_table()
        grown = True
        while grown:
            new = {pid for pid, line in table.items() if pid not in self.known and line.parent in self.known}
            self.known |= new
            grown = bool(new)
        alive = {pid: table[pid] for pid in self.known if pid in table}
        self.peak_bytes = max(self.peak_bytes, sum(line.rss_bytes for line in alive.values()))
        for pid, line in alive.items():
            self.programs.add(line.program)
            self.cpu[pid] = line.cpu_seconds


@dataclass(frozen=True)
class _Line:
    parent: int
    program: str
    cpu_seconds: float
    rss_bytes: int


def _process_table() -> dict[int, _Line]:
    table = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has just ended
                continue
            program, rest = text[text.index("(") + 1 :].rsplit(")", 1)
            fields = rest.split()
            cpu = (int(fields[11]) + int(fields[12])) / TICKS
            table[int(entry.name)] = _Line(int(fields[1]), program, cpu, int(fields[21]) * PAGE)
    return table


def measure(command: Sequence[str], *, environ: Mapping[str, str], timeout_seconds: float) -> Measured:
    """Runs to the end, or stops the command after the timeout (exit code -15 or -9)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        process = subprocess.Popen(command, env=dict(environ), stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        tree = _Tree(known={process.pid}, programs=set(), cpu={})
        status, usage = _watch(process, tree, deadline=start + timeout_seconds)
        wall = time.monotonic() - start
        out.seek(0)
        err.seek(0)
        return Measured(
            exit_code=os.waitstatus_to_exitcode(status),
            wall_seconds=wall,
            # A child that was not waited for is missing from the one, a short-lived one from the other.
            cpu_seconds=max(usage.ru_utime + usage.ru_stime, sum(tree.cpu.values())),
            peak_rss_bytes=max(tree.peak_bytes, usage.ru_maxrss * 1024),
            programs=frozenset(tree.programs),
            stdout=out.read(),
            stderr=err.read(),
        )


def _watch(process: subprocess.Popen[bytes], tree: _Tree, *, deadline: float) -> tuple[int, struct_rusage]:
    stop = process.terminate
    while True:
        tree.sample()
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it again
            return status, usage
        if time.monotonic() > deadline:
            stop()
            stop, deadline = process.kill, deadline + 10
        time.sleep(SAMPLE_SECONDS)
