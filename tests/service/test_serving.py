"""The service's own loop: a slow or failing round of the scheduler delays neither a stop nor the care for workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from neve.errors import StateError, StateReplacedError
from neve.service import serving
from neve.service.serving import Serving


@dataclass
class Supervised:
    """Notes what the loop asks of the supervisor."""

    tended: int = 0
    looks: list[Collection[str] | None] = field(default_factory=list)
    is_stopped: bool = False
    on_tend: Callable[[], None] = lambda: None

    def tend(self) -> None:
        self.tended += 1
        self.on_tend()

    def replace_silent(self, live: Collection[str] | None) -> None:
        self.looks.append(live)

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_TEND_SECONDS", 0.01)
    monkeypatch.setattr(serving, "_JOIN_SECONDS", 0.05)


def served(supervised: Supervised, until: Callable[[], bool], **parts: Any) -> None:
    """Serves until something is so."""
    stop = threading.Event()
    known: dict[str, Any] = {"tick": lambda: None, "send": lambda: None, "live_workers": set, "tick_seconds": 0.02}

    def end() -> None:
        if until():
            stop.set()

    supervised.on_tend = end
    Serving(supervisor=supervised, **{**known, **parts}).run(stop)  # type: ignore[arg-type]


def test_workers_are_looked_after_and_the_service_stops_while_a_round_takes_long() -> None:
    over = threading.Event()
    supervised = Supervised()
    begun = time.monotonic()
    served(supervised, lambda: supervised.tended >= 5, tick=lambda: over.wait(60))
    assert time.monotonic() - begun < 30
    assert supervised.is_stopped
    over.set()


@pytest.mark.parametrize("part", ["tick", "send"])
def test_a_part_that_fails_is_tried_again(part: str, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise StateError("Cannot read the state store: it is away")

    served(Supervised(), lambda: len(tries) >= 3, **{part: fail})
    assert caplog.text.count("failed: Cannot read the state store: it is away") >= 2


def test_the_service_ends_when_the_file_of_its_state_store_was_replaced() -> None:
    supervised = Supervised()

    def tick() -> None:
        raise StateReplacedError("Cannot go on with state store state.db: the file was removed or replaced")

    with pytest.raises(StateReplacedError):
        served(supervised, lambda: False, tick=tick)
    assert supervised.is_stopped


def test_care_for_workers_that_fails_does_not_end_the_service() -> None:
    supervised = Supervised()

    def until() -> bool:
        if supervised.tended < 3:
            raise OSError("Cannot allocate memory")
        return True

    served(supervised, until)
    assert supervised.is_stopped


def test_the_heartbeats_of_workers_are_unknown_while_the_state_store_is_away() -> None:
    supervised = Supervised()
    answers: Iterator[Collection[str] | StateError] = iter([{"w1"}, StateError("away"), {"w2"}])

    def live() -> Collection[str]:
        found = next(answers, set())
        if isinstance(found, StateError):
            raise found
        return found

    served(supervised, lambda: len(supervised.looks) >= 3, live_workers=live)
    assert supervised.looks[:3] == [{"w1"}, None, {"w2"}]
