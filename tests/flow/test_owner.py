"""The owner as this machine tells it, with real processes, one of them in namespaces of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from neve.commit import process as module
from neve.commit.owner import ABSENT, Owner
from neve.commit.process import is_certainly_gone, started, this_process

WAITING = "import sys; from neve.commit.process import this_process; print(this_process().text, flush=True); sys.stdin.read()"


def waiting(*prefix: str) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", WAITING]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_this_process_is_always_the_same_owner_and_is_alive() -> None:
    owner = this_process()
    assert owner == this_process()
    assert (owner.pid, owner.started) == (os.getpid(), started(os.getpid()))
    assert None not in (owner.boot, owner.namespaces, owner.nonce)
    assert not is_certainly_gone(owner.text)


def test_a_forked_child_is_another_owner() -> None:
    parent, (out, into) = this_process(), os.pipe()
    if not (child := os.fork()):
        os.write(into, this_process().text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = Owner.parse(os.read(out, 1000).decode())
    for end in (out, into):
        os.close(end)
    assert theirs.pid == child
    assert not theirs.is_same_process(parent)


def test_a_process_is_gone_when_it_has_ended_and_not_while_it_is_stopped() -> None:
    with waiting() as child:
        assert child.stdout is not None
        text = child.stdout.readline().strip()
        assert not is_certainly_gone(text)
        child.send_signal(signal.SIGSTOP)
        assert not is_certainly_gone(text)
        child.send_signal(signal.SIGCONT)
        # Its id belongs to a process, but not to one that started then.
        assert is_certainly_gone(replace(Owner.parse(text), started="1").text)
        child.kill()
        child.wait()
        assert is_certainly_gone(text)


def test_of_a_process_in_namespaces_of_its_own_nothing_is_concluded_even_when_it_has_ended() -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --pid needs more rights than this process has")
    with waiting(*unshare) as child:
        assert child.stdout is not None
        text = child.stdout.readline().strip()
        theirs, ours = Owner.parse(text), this_process()
        assert (theirs.host, theirs.boot, theirs.pid) == (ours.host, ours.boot, 1)
        assert theirs.namespaces != ours.namespaces
        assert not is_certainly_gone(text)
        child.communicate("")
    assert not is_certainly_gone(text)


def test_start_times_are_not_compared_where_proc_shows_the_ids_of_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getppid()
    assert started(parent) not in (None, ABSENT)
    monkeypatch.setattr(module, "_link", lambda _: "1")
    assert started(parent) is None


def test_without_proc_the_start_is_asked_of_ps_and_an_unknown_boot_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_PROC", tmp_path / "missing")
    monkeypatch.setattr(module, "_told", lambda *command: "Mon Nov 16" if command[0] == "ps" else None)
    monkeypatch.setattr(module, "_owner_of", module._owner_of.__wrapped__)  # what is remembered is of the real machine
    owner = this_process()
    assert (owner.boot, owner.namespaces, owner.started) == (None, "none", "Mon Nov 16")
    assert started(os.getppid()) == "Mon Nov 16"
    assert not is_certainly_gone(replace(owner, pid=2**22 + 1).text)


@pytest.mark.parametrize("command", [("no-such-command-here",), ("false",), ("true",)])
def test_a_command_that_cannot_tell_tells_nothing(command: tuple[str, ...]) -> None:
    assert module._told(*command) is None
