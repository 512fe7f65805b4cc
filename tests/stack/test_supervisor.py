"""Up, down and everything between: nothing twice, nothing left, nothing touched that is not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neve.errors import BadRequestError
from stack import processes, supervisor
from stack.__main__ import main
from stack.endpoints import S3Endpoint
from stack.errors import NotReadyError, StartFailedError, UnavailableError
from stack.places import REPOSITORY, Places
from stack.processes import Child
from stack.registry import SERVERS, needing, with_needs
from stack.server import Launch
from stack.session import Session

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited thirty seconds in vain"
        time.sleep(0.02)


class Toy:
    """A server without a port: enough for the supervisor."""

    needs: tuple[str, ...] = ()
    endpoint_type = S3Endpoint
    ready_seconds = 0.5
    stop_signal = signal.SIGTERM

    def __init__(self, name: str, command: list[str], *, ready: bool = True, refusal: str | None = None) -> None:
        self.name, self.command, self.ready, self.refusal = name, command, ready, refusal

    def install(self, cache: Path) -> None:  # noqa: ARG002
        if self.refusal:
            raise UnavailableError(self.refusal)

    def start(self, launch: Launch) -> S3Endpoint:
        (launch.data / "file").write_text("data")
        launch.spawn(self.command)
        return S3Endpoint("http://127.0.0.1:1", "key", "secret", self.name)

    def check(self, endpoint: S3Endpoint) -> None:
        assert endpoint.bucket == self.name
        if not self.ready:
            raise NotReadyError("not yet")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    del monkeypatch  # asked for so that the toys are still known when the stack is taken down
    one = Places(home=tmp_path / "home", cache=tmp_path / "cache")
    yield one
    supervisor.down(one, say=quiet)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Toy]:
    def make(name: str = "toy", command: list[str] = SLEEP, **how: Any) -> Toy:
        toy = Toy(name, command, **how)
        monkeypatch.setitem(SERVERS, name, toy)
        return toy

    return make


def quiet(line: str) -> None:
    del line


def recorded(places: Places, name: str) -> Child:
    return Child(**json.loads(places.state_file.read_text())[name]["children"][0])


def test_up_twice_starts_once(places: Places, toys: Callable[..., Toy]) -> None:
    toys()
    lines: list[str] = []
    first = supervisor.up(places, ["toy"], say=lines.append)
    child = recorded(places, "toy")
    assert supervisor.up(places, ["toy"], say=lines.append) == first
    assert recorded(places, "toy") == child
    assert child.is_alive()
    assert [line.split(" after ")[0] for line in lines] == ["toy        up"]


def test_down_leaves_logs_and_nothing_else(places: Places, toys: Callable[..., Toy]) -> None:
    toys()
    supervisor.up(places, ["toy"], say=quiet)
    child = recorded(places, "toy")
    assert supervisor.down(places, say=quiet) == ["toy"]
    assert not child.is_alive()
    assert processes.birth(child.pid) != child.birth
    assert sorted(path.name for path in places.home.rglob("*")) == ["lock", "logs", "toy.log"]
    assert supervisor.down(places, say=quiet) == []


def test_a_server_that_died_is_started_again(places: Places, toys: Callable[..., Toy]) -> None:
    toys()
    supervisor.up(places, ["toy"], say=quiet)
    child = recorded(places, "toy")
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: not child.is_alive())
    assert [(one.name, one.state, one.pids) for one in supervisor.status(places)] == [("toy", "dead", ())]
    supervisor.up(places, ["toy"], say=quiet)
    assert recorded(places, "toy") != child
    assert [one.state for one in supervisor.status(places)] == ["up"]


def test_a_server_that_never_gets_ready_is_taken_down(places: Places, toys: Callable[..., Toy]) -> None:
    toys(command=[sys.executable, "-c", "print('why', flush=True); import time; time.sleep(600)"], ready=False)
    with pytest.raises(StartFailedError, match=r"Cannot start toy: not ready after 0 s \(not yet\)") as caught:
        supervisor.up(places, ["toy"], say=quiet)
    assert caught.value.hint == "The logs end with:\n--- toy.log\nwhy"
    assert list(processes.marked(places.home)) == []
    assert not places.state_file.exists()


def test_a_server_that_ends_by_itself_is_not_waited_for(places: Places, toys: Callable[..., Toy]) -> None:
    toys(command=[sys.executable, "-c", "raise SystemExit('no disk')"], ready=False).ready_seconds = 600
    with pytest.raises(StartFailedError, match="Cannot start toy: toy ended by itself") as caught:
        supervisor.up(places, ["toy"], say=quiet)
    assert "no disk" in str(caught.value.hint)


def test_a_failure_takes_down_what_this_up_started_and_no_more(places: Places, toys: Callable[..., Toy]) -> None:
    toys("before")
    toys("toy")
    toys("broken", refusal="Cannot start broken: no such thing")
    supervisor.up(places, ["before"], say=quiet)
    with pytest.raises(UnavailableError, match="Cannot start broken: no such thing"):
        supervisor.up(places, ["before", "toy", "broken"], say=quiet)
    assert [one.name for one in supervisor.status(places)] == ["before"]


def test_a_process_that_ignores_the_signal_is_killed(places: Places) -> None:
    log = places.logs / "x.log"
    child = processes.launch("x", STUBBORN, home=places.home, log=log)
    wait_for(lambda: "SigIgn" in _status(child.pid) and int(_status(child.pid)["SigIgn"], 16) & 1 << 14 != 0)
    assert processes.stop([child], grace_seconds=0.3) == ["x"]
    assert not child.is_alive()


def test_children_end_with_their_parent(places: Places) -> None:
    spawns = f"import subprocess, time; print(subprocess.Popen({SLEEP!r}).pid, flush=True); time.sleep(600)"
    log = places.logs / "x.log"
    child = processes.launch("x", [sys.executable, "-c", spawns], home=places.home, log=log)
    wait_for(lambda: log.read_text().endswith("\n"))
    grandchild = int(log.read_text())
    born = processes.birth(grandchild)
    assert born is not None
    processes.stop([child])
    wait_for(lambda: not Child("grandchild", grandchild, born).is_alive())


def test_a_pid_that_was_recycled_is_left_alone() -> None:
    with subprocess.Popen(SLEEP, start_new_session=True) as other:
        stale = Child("x", other.pid, "another birth")
        assert not stale.is_alive()
        assert processes.stop([stale]) == []
        assert other.poll() is None
        other.kill()


def test_down_finds_a_process_of_ours_that_stands_in_no_record(places: Places) -> None:
    child = processes.launch("lost", SLEEP, home=places.home, log=places.logs / "lost.log")
    other = processes.launch("other", SLEEP, home=places.home / "elsewhere", log=places.logs / "other.log")
    lines: list[str] = []
    supervisor.down(places, say=lines.append)
    assert lines == ["1 stray process(es) stopped"]
    assert not child.is_alive()
    assert other.is_alive()
    processes.stop([other])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    places = Places(home=tmp_path / "home")
    command = [sys.executable, "-m", "stack", "--home", str(places.home), "up", "s3"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as up:
        wait_for(lambda: places.state_file.exists() and '"pid"' in places.state_file.read_text())
        child = recorded(places, "s3")
        up.send_signal(number)
        assert up.communicate(timeout=60)[1] == "interrupted: what had been started is stopped\n"
    assert up.returncode == 130
    assert not child.is_alive()
    assert not places.state_file.exists()
    assert list(processes.marked(places.home)) == []


def test_a_killed_up_is_cleaned_up_by_down(tmp_path: Path) -> None:
    places = Places(home=tmp_path / "home")
    command = [sys.executable, "-m", "stack", "--home", str(places.home), "up", "s3"]
    with subprocess.Popen(command, cwd=REPOSITORY) as up:
        wait_for(lambda: places.state_file.exists() and '"pid"' in places.state_file.read_text())
        up.kill()
    child = recorded(places, "s3")
    assert child.is_alive()
    supervisor.down(places, say=quiet)
    assert not child.is_alive()
    assert list(processes.marked(places.home)) == []


def test_a_killed_test_session_takes_its_servers_with_it(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal; from stack.session import Session; from stack.places import Places\n"
        f"session = Session(Places(home=pathlib.Path({str(tmp_path / 'none')!r}))); session.server('postgres')\n"
        "print(session._own.state_file.read_text().replace(chr(10), ''), session._own.home, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    state, _, home = killed.stdout.strip().rpartition(" ")
    record = json.loads(state)["postgres"]
    child = Child(**record["children"][0])
    wait_for(lambda: not child.is_alive())
    wait_for(lambda: not any(Path(path).exists() for path in [home, *record["scratch"]]))


def test_a_session_borrows_what_runs_and_leaves_it_running(places: Places, toys: Callable[..., Toy]) -> None:
    toys("toy")
    toys("more").needs = ("toy",)
    endpoint = supervisor.up(places, ["toy"], say=quiet)["toy"]
    child = recorded(places, "toy")
    session = Session(places)
    assert session.server("toy") == endpoint
    assert session.server("more").bucket == "more"
    assert session._own is not None
    assert [one.name for one in supervisor.status(session._own)] == ["more"]
    session.close()
    assert child.is_alive()


def test_a_session_remembers_that_a_server_cannot_be_had(places: Places, toys: Callable[..., Toy]) -> None:
    toy = toys(refusal="Cannot start toy: no such thing")
    session = Session(places)
    for refusal in ("Cannot start toy: no such thing", "Cannot start toy: another reason"):
        toy.refusal = refusal
        with pytest.raises(UnavailableError, match="Cannot start toy: no such thing"):
            session.server("toy")
    session.close()


def test_needs_come_first_and_go_last() -> None:
    assert [server.name for server in with_needs(["proxy"])] == ["s3", "rest", "proxy"]
    assert needing(["rest"]) == {"rest", "proxy"}
    assert needing([]) == set()


def test_an_unknown_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadRequestError, match="Cannot find server postgre: no such name") as caught:
        with_needs(["postgre"])
    assert caught.value.hint == "Did you mean postgres?"
    assert main(["up", "postgre"]) == 2
    assert capsys.readouterr().err == "Cannot find server postgre: no such name\nDid you mean postgres?\n"


def test_the_command_line_says_what_is_there(
    places: Places, toys: Callable[..., Toy], capsys: pytest.CaptureFixture[str]
) -> None:
    toys(command=[sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(600)"])
    home = ["--home", str(places.home)]
    assert main([*home, "status"]) == 1
    assert main([*home, "up", "toy"]) == 0
    pid = recorded(places, "toy").pid
    capsys.readouterr()
    assert main([*home, "status"]) == 0
    assert capsys.readouterr().out == f"toy        up             pids {pid}\n"
    assert main([*home, "env"]) == 0
    assert "export NEVE_STACK_S3_BUCKET=toy\n" in capsys.readouterr().out
    wait_for(lambda: "hello" in (places.logs / "toy.log").read_text())
    assert main([*home, "logs", "toy"]) == 0
    assert capsys.readouterr().out == "==> toy.log <==\nhello\n"
    assert main([*home, "down"]) == 0
    assert capsys.readouterr().out == "toy        stopped\n"
    assert main([*home, "down"]) == 0
    assert capsys.readouterr().out == "nothing was running\n"


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
