"""Rules that are not due: what they say, which is the closest, and that none leaves open when it is due."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from neve.health.not_due import NotDue, Unit, after_interval, nearest
from neve.table.units import MIB

NOON_MS = 1_750_000_000_123


def rule(**changes: Any) -> NotDue:
    plain: dict[str, Any] = {
        "rule": "fragments",
        "what": "files below 16 MB",
        "measured": 4,
        "threshold": 5,
        "knob": "min-input-files",
        "more": 1,
    }
    return NotDue(**plain | changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "files below 16 MB: 4, due from 5 (min-input-files), with 1 more file"),
        (
            {"where": "day=1", "measured": 1200, "threshold": 2000, "more": 800},
            "files below 16 MB in day=1: 1,200, due from 2,000 (min-input-files), with 800 more files",
        ),
        (
            {"comparison": "above", "knob": None, "due_ms": NOON_MS},
            "files below 16 MB: 4, due above 5, with 1 more file, not before 2025-06-15 15:06:41 UTC",
        ),
        (
            {"what": "bytes", "measured": 10 * MIB, "threshold": 40 * MIB, "more": 30 * MIB, "unit": "bytes", "knob": None},
            "bytes: 10 MB, due from 40 MB, with 30 MB more",
        ),
        (
            {"what": "age", "measured": 60.0, "threshold": 86400, "unit": "seconds", "more": None, "due_ms": NOON_MS},
            "age: 60 s, due after 24 h (min-input-files), at 2025-06-15 15:06:41 UTC",
        ),
        (
            {
                "what": "share",
                "measured": 0.0512,
                "threshold": 0.1,
                "unit": "ratio",
                "comparison": "up to",
                "more": None,
                "until": "more files come",
            },
            "share: 0.0512, due up to 0.1 (min-input-files), once more files come",
        ),
        (
            {"what": "format version 1", "measured": None, "threshold": None, "more": None, "until": "it is upgraded"},
            "format version 1, due once it is upgraded",
        ),
        (
            {"more_of": "delete file", "more": 2.2},
            "files below 16 MB: 4, due from 5 (min-input-files), with 3 more delete files",
        ),
    ],
)
def test_a_rule_is_one_sentence_with_threshold_measured_value_and_when(changes: dict[str, Any], text: str) -> None:
    assert str(rule(**changes)) == text


def test_a_rule_has_to_say_when_it_is_due() -> None:
    with pytest.raises(ValidationError, match="fragments does not say when it would be due"):
        rule(more=None)


def test_a_rule_survives_json() -> None:
    one = rule(due_ms=5, where="p=1", unit=Unit.RATIO, comparison="below")
    assert NotDue.model_validate_json(one.model_dump_json()) == one


def test_of_each_rule_the_closest_is_kept_and_the_closest_rule_comes_first() -> None:
    far, near = rule(where="p=1", more=3), rule(where="p=2", more=1)
    soon, late = (rule(rule="interval", knob="minor-interval", more=None, due_ms=at) for at in (10, 20))
    event = rule(rule="layout", knob=None, more=None, until="there is one")
    waiting = rule(rule="both", knob=None, more=1, due_ms=5)
    assert nearest([event, far, late, near, soon, waiting]) == (soon, waiting, near, event)
    assert nearest([]) == ()


def test_a_rule_that_has_to_wait_is_not_due_before() -> None:
    assert rule(more=None, due_ms=10).not_before(20).due_ms == 20
    assert rule(more=None, due_ms=30).not_before(20).due_ms == 30
    assert rule().not_before(20).due_ms == 20
    event = rule(more=None, until="it is written")
    assert event.not_before(20) == event


@pytest.mark.parametrize(("since", "due"), [(0, 3_600_000), (3599.9995, 1), (3599.9, 100), (4000, 0)])
def test_an_interval_ends_at_a_whole_millisecond(since: float, due: int) -> None:
    assert after_interval(since, 3600, 0) == due
