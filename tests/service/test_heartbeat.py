"""The heartbeat of a job: it keeps beating, interrupts a job that lost its claim, and never interrupts what comes after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from neve.errors import StateError
from neve.service.heartbeat import Heartbeat, Interruption

LONG = 30.0


def wait_for_interrupt() -> None:
    """A job that only an interrupt ends."""
    time.sleep(LONG)


def heartbeat_of(beat: Callable[[], Interruption | None], **values: Any) -> Heartbeat:
    def hang(why: Interruption) -> None:
        raise AssertionError(f"hangs: {why}")

    return Heartbeat(beat, **{"seconds": 0.01, "max_seconds": LONG, "on_hang": hang, **values})


@pytest.mark.parametrize("why", [Interruption.LOST, Interruption.CANCELLED])
def test_a_job_is_interrupted_when_a_beat_says_so(why: Interruption) -> None:
    beats = iter([None, None, why])
    heartbeat = heartbeat_of(lambda: next(beats))
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert heartbeat.interruption is why


def test_a_job_that_takes_too_long_is_interrupted() -> None:
    heartbeat = heartbeat_of(lambda: None, max_seconds=0.05)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert heartbeat.interruption is Interruption.TOO_LONG


@pytest.mark.parametrize("error", [StateError("away"), ZeroDivisionError("away")], ids=["state store", "unforeseen"])
def test_a_beat_that_fails_ends_neither_the_job_nor_the_heartbeat(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    beats: Iterator[Exception | Interruption] = iter([error, Interruption.LOST])

    def beat() -> Interruption | None:
        found = next(beats)
        if isinstance(found, Exception):
            raise found
        return found

    heartbeat = heartbeat_of(beat)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert "a heartbeat failed" in caplog.text
    assert "away" in caplog.text


def test_a_job_takes_too_long_also_while_the_state_store_is_away() -> None:
    def beat() -> Interruption | None:
        raise StateError("away")

    heartbeat = heartbeat_of(beat, max_seconds=0.05)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert heartbeat.interruption is Interruption.TOO_LONG


def test_a_job_that_goes_on_after_its_interrupt_hangs_and_keeps_its_claim_until_then() -> None:
    beats: list[float] = []
    hung: list[Interruption] = []
    begun, over = threading.Event(), threading.Event()

    def beat() -> Interruption | None:
        beats.append(time.monotonic())
        return Interruption.CANCELLED if begun.is_set() else None

    def hang(why: Interruption) -> None:
        hung.append(why)
        over.set()

    with heartbeat_of(beat, on_hang=hang, hang_seconds=0.1):
        with suppress(KeyboardInterrupt):
            begun.set()
            time.sleep(LONG)
        assert over.wait(LONG), "the job swallowed its interrupt and went on"
    assert hung == [Interruption.CANCELLED]
    assert len(beats) > 2


def test_nothing_is_interrupted_after_the_job() -> None:
    with heartbeat_of(lambda: None, seconds=0.001) as heartbeat:
        pass
    heartbeat._beat = lambda: Interruption.LOST
    time.sleep(0.02)  # time for an interrupt to arrive here, where it would end the test
    assert heartbeat.interruption is None
