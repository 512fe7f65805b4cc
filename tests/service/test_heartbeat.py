"""The heartbeat of a job: it keeps beating, interrupts a job that lost its claim, and never interrupts what comes after."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from neve.errors import StateError
from neve.service.heartbeat import Heartbeat, Interruption

LONG = 30.0


def wait_for_interrupt() -> None:
    """A job that only an interrupt ends."""
    time.sleep(LONG)


@pytest.mark.parametrize("why", [Interruption.LOST, Interruption.CANCELLED])
def test_a_job_is_interrupted_when_a_beat_says_so(why: Interruption) -> None:
    beats = iter([None, None, why])
    heartbeat = Heartbeat(lambda: next(beats), seconds=0.01, max_seconds=LONG)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert heartbeat.interruption is why


def test_a_job_that_takes_too_long_is_interrupted() -> None:
    heartbeat = Heartbeat(lambda: None, seconds=0.01, max_seconds=0.05)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert heartbeat.interruption is Interruption.TOO_LONG


def test_a_state_store_that_is_away_for_a_while_does_not_end_the_job(caplog: pytest.LogCaptureFixture) -> None:
    beats: Iterator[StateError | Interruption] = iter([StateError("away"), Interruption.LOST])

    def beat() -> Interruption | None:
        found = next(beats)
        if isinstance(found, StateError):
            raise found
        return found

    heartbeat = Heartbeat(beat, seconds=0.01, max_seconds=LONG)
    with pytest.raises(KeyboardInterrupt), heartbeat:
        wait_for_interrupt()
    assert "a heartbeat failed: away" in caplog.text


def test_nothing_is_interrupted_after_the_job() -> None:
    with Heartbeat(lambda: None, seconds=0.001, max_seconds=LONG) as heartbeat:
        pass
    heartbeat._beat = lambda: Interruption.LOST
    time.sleep(0.02)  # time for an interrupt to arrive here, where it would end the test
    assert heartbeat.interruption is None
