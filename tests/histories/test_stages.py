"""Stages: an order stops at the first stage that it names, and how far apart its signs of life were is measured."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.histories.stages import BEGUN, SENDING, WRITTEN, Stages


@pytest.fixture
def reports() -> SimpleQueue[dict[str, Any]]:
    return SimpleQueue()


@pytest.fixture
def stages(tmp_path: Path, reports: SimpleQueue[dict[str, Any]]) -> Stages:
    return Stages(reports.put, tmp_path / "go")


def test_an_order_stops_at_the_first_stage_that_it_names_until_it_may_continue(
    stages: Stages, reports: SimpleQueue[dict[str, Any]], tmp_path: Path
) -> None:
    passed, answers = list[str](), list[dict[str, Any]]()

    def work() -> dict[str, Any]:
        for stage in (BEGUN, WRITTEN, SENDING):
            stages.reach(stage)
            passed.append(stage)
        return {"outcome": "done"}

    thread = threading.Thread(target=lambda: answers.append(stages.carry_out([WRITTEN, SENDING], work)))
    thread.start()
    assert reports.get(timeout=30) == {"reached": WRITTEN, "run": ""}
    assert passed == [BEGUN]
    (tmp_path / "go").touch()
    thread.join(30)
    assert passed == [BEGUN, WRITTEN, SENDING]
    assert answers == [{"outcome": "done", "silence": 0.0}]
    assert reports.empty()


def test_an_order_that_fails_is_an_answer_and_its_stops_do_not_last(stages: Stages) -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("no")

    answer = stages.carry_out([WRITTEN], fail)
    assert (answer["error"], answer["message"], answer["silence"]) == ("ValueError", "no", 0.0)
    stages.reach(WRITTEN)


@pytest.mark.parametrize(
    ("signs", "silence"),
    [
        ([(1, True), (3, True), (4, True)], 2),
        ([(1, True), (2, True), (9, False), (20, False)], 7),
        ([(1, True), (2, True), (3, False)], 1),
    ],
    ids=["renewed", "lost-after-silence", "lost-while-alive"],
)
def test_the_longest_silence_ends_with_the_sign_that_finds_the_lease_lost(
    signs: list[tuple[float, bool]], silence: float, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> dict[str, Any]:
        for at, still_ours in signs:
            monkeypatch.setattr(time, "monotonic", lambda at=at: at)
            stages.sign(at, still_ours=still_ours)
        return {}

    assert stages.carry_out([], work) == {"silence": silence}
