"""Worker processes: replaced at once if they ask for it, after a growing pause if they fail, and ended with the service."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from neve.service.supervisor import RENEW, Supervisor

ASLEEP = "import time; time.sleep(60)"
DEAF = (
    "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT)]; "
    "print(1, flush=True); time.sleep(60)"
)


@dataclass
class Processes:
    """Processes that are only noted, with the exit codes that the test gives them."""

    time: float = 0.0
    started: list[float] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)

    def spawn(self, _command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.started.append(self.time)
        self.codes.append(None)
        return Ended(self, len(self.codes) - 1)  # type: ignore[return-value]

    def end(self, code: int) -> None:
        self.codes[-1] = code


@dataclass
class Ended:
    processes: Processes
    number: int
    pid: int = 1

    def poll(self) -> int | None:
        return self.processes.codes[self.number]


def supervised(processes: Processes) -> Supervisor:
    return Supervisor({"local-1": ["worker"]}, grace_seconds=1, spawn=processes.spawn, now=lambda: processes.time)


def test_a_worker_that_asks_for_it_is_replaced_at_once() -> None:
    processes = Processes()
    supervisor = supervised(processes)
    supervisor.tend()
    processes.end(RENEW)
    supervisor.tend()
    assert processes.started == [0.0, 0.0]


def test_a_worker_that_keeps_failing_starts_after_growing_pauses_of_a_minute_at_most() -> None:
    processes = Processes()
    supervisor = supervised(processes)
    for second in range(400):
        processes.time = float(second)
        supervisor.tend()
        if processes.codes[-1] is None:
            processes.end(1)
    pauses = [later - earlier for earlier, later in zip(processes.started, processes.started[1:], strict=False)]
    assert pauses[:7] == [2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 61.0]
    assert max(pauses) == 61.0


def test_a_worker_that_ran_for_long_starts_again_after_a_second() -> None:
    processes = Processes()
    supervisor = supervised(processes)
    for _ in range(3):
        supervisor.tend()
        processes.time += 3_600
        processes.end(-signal.SIGKILL)
        supervisor.tend()
        processes.time += 1
    assert processes.started == [0.0, 3_601.0, 7_202.0]


@pytest.mark.parametrize(("script", "code"), [(ASLEEP, -signal.SIGTERM), (DEAF, -signal.SIGKILL)], ids=["asleep", "deaf"])
def test_every_worker_has_ended_when_the_service_has_stopped(script: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.service.supervisor._KILL_SECONDS", 0.2)
    supervisor = Supervisor(
        {"local-1": [sys.executable, "-c", script]},
        grace_seconds=0.2,
        spawn=lambda command: subprocess.Popen(command, stdout=subprocess.PIPE),
    )
    supervisor.tend()
    process = supervisor.workers[0].process
    assert process is not None
    if script == DEAF:
        assert process.stdout is not None
        process.stdout.readline()
    supervisor.stop()
    assert process.returncode == code
    if process.stdout is not None:
        process.stdout.close()


def test_workers_are_interrupted_before_their_grace_time_is_over_if_somebody_is_in_a_hurry() -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    supervisor = Supervisor(
        {"local-1": [sys.executable, "-c", script]},
        grace_seconds=600,
        spawn=lambda command: subprocess.Popen(command, stdout=subprocess.PIPE),
    )
    supervisor.tend()
    process = supervisor.workers[0].process
    assert process is not None
    assert process.stdout is not None
    process.stdout.readline()
    threading.Timer(0.3, supervisor.hurry.set).start()
    supervisor.stop()
    assert process.returncode == -signal.SIGINT
    process.stdout.close()


def test_a_worker_that_cannot_be_started_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[float] = []
    processes = Processes()

    def refuse(_command: Sequence[str]) -> subprocess.Popen[bytes]:
        tries.append(processes.time)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    supervisor = Supervisor({"local-1": ["worker"]}, grace_seconds=1, spawn=refuse, now=lambda: processes.time)
    for second in range(5):
        processes.time = float(second)
        supervisor.tend()
    assert tries == [0.0, 1.0, 3.0]
    assert "worker local-1 cannot be started: [Errno 11] Resource temporarily unavailable" in caplog.text


def run_asleep() -> tuple[Supervisor, subprocess.Popen[bytes], Processes]:
    """A real worker that sleeps, and a clock that the test moves."""
    clock = Processes()
    supervisor = Supervisor(
        {"local-1": [sys.executable, "-c", ASLEEP]},
        grace_seconds=0.1,
        patience_seconds=60,
        spawn=lambda command: subprocess.Popen(command, start_new_session=True),
        now=lambda: clock.time,
    )
    supervisor.tend()
    process = supervisor.workers[0].process
    assert process is not None
    return supervisor, process, clock


@pytest.mark.parametrize("is_stopped", [False, True], ids=["hanging", "stopped"])
def test_a_worker_without_a_sign_of_life_is_replaced(is_stopped: bool) -> None:
    supervisor, process, clock = run_asleep()
    try:
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
        for moment in (0.0, 30.0, 60.0):
            clock.time = moment
            supervisor.replace_silent([])
        assert process.poll() is None
        clock.time = 61.0
        supervisor.replace_silent([])
        assert process.wait(30) == -signal.SIGKILL
        supervisor.tend()
        clock.time = 63.0
        supervisor.tend()
        assert supervisor.workers[0].process not in (None, process)
    finally:
        supervisor.stop()


@pytest.mark.parametrize("signs", [["local-1"], None], ids=["alive", "state store away"])
def test_a_worker_is_not_replaced_for_a_silence_that_ended_or_is_not_known(signs: list[str] | None) -> None:
    supervisor, process, clock = run_asleep()
    try:
        for moment, live in ((0.0, []), (50.0, signs), (100.0, []), (150.0, [])):
            clock.time = moment
            supervisor.replace_silent(live)
        assert process.poll() is None
    finally:
        supervisor.stop()
