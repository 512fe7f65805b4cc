"""Identities of processes that hold a lease: running, gone, or on another host."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from neve.commit.owner import Owner
from neve.commit.process import this_process

ME = this_process().text


def other_process(*, alive: bool) -> str:
    """The owner text of a process of this machine: that of the one that started the tests, or one that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    pid = Owner.parse(ME).pid if alive else ended.pid
    return replace(this_process(), pid=pid, nonce="other").text


def gone_process() -> str:
    """The owner of a process of this machine that has ended."""
    return other_process(alive=False)
