"""How long a commit waits for the next commit of a writer that changes rows."""

from __future__ import annotations

import pytest

from neve.commit.gaps import poll_ms, wait_ms
from neve.health.row_changes import Rhythm

S = 1000
NOW = 1_000_000 * S


@pytest.mark.parametrize(
    ("since", "period", "limit", "expected"),
    [
        (0.0, 5, 60, 0),  # just now
        (0.5, 5, 60, 0),  # still in the gap
        (1.0, 5, 60, 9),  # the next comes in 4 s; one period of delay is allowed for
        (4.9, 5, 60, 5.1),
        (8.0, 5, 60, 2),  # late: a command is under way
        (1.0, 5, 3, 0),  # further away than the limit
        (3.0, 5, 3, 3),
        (600.0, 3600, 60, 0),  # an hourly job is not waited for
        (3590.0, 3600, 60, 60),  # unless it is about to commit
        (-2.0, 5, 60, 0),  # another clock
    ],
)
def test_a_commit_waits_for_the_next_of_the_writer_if_that_is_near(
    since: float, period: float, limit: float, expected: float
) -> None:
    rhythm = Rhythm(NOW - int(since * S), int(period * S))
    assert wait_ms(rhythm, NOW, int(limit * S)) == int(expected * S)


@pytest.mark.parametrize(("period", "poll"), [(1, 100), (5, 100), (20, 400), (3600, 1000)])
def test_a_short_period_is_polled_more_often(period: int, poll: int) -> None:
    assert poll_ms(Rhythm(NOW, period * S)) == poll
