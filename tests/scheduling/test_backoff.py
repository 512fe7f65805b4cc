"""Pauses after failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.scheduling.backoff import DEFAULT_BACKOFF, Backoff, after_run, paused_until
from tests.builders.scheduling import DAY, MINUTE, NOW, last_run

PLAIN = Backoff(jitter=0.0)


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 0), (1, 5), (2, 10), (3, 20), (9, 1280), (10, 1440), (11, 1440), (10**9, 1440)]
)
def test_a_pause_doubles_with_each_failure_up_to_a_day(failures: int, minutes: int) -> None:
    assert PLAIN.pause_ms(failures, "t") == minutes * MINUTE


@settings(deadline=None)
@given(st.integers(1, 200), st.text())
def test_a_pause_never_shrinks_and_spares_at_most_a_fifth(failures: int, table: str) -> None:
    pause = DEFAULT_BACKOFF.pause_ms(failures, table)
    assert 0.8 * PLAIN.pause_ms(failures, table) - 1 <= pause <= PLAIN.pause_ms(failures, table)
    assert pause <= DEFAULT_BACKOFF.pause_ms(failures + 1, table)


def test_tables_that_failed_together_do_not_come_back_together() -> None:
    pauses = {DEFAULT_BACKOFF.pause_ms(1, f"table {number}") for number in range(100)}
    assert len(pauses) > 90


def test_people_are_notified_at_thresholds_and_then_at_multiples_of_the_last() -> None:
    assert [failures for failures in range(1, 100) if DEFAULT_BACKOFF.alerts(failures)] == [3, 10, 30, 60, 90]
    assert not any(Backoff(alert_after=()).alerts(failures) for failures in range(100))


def test_a_failure_counts_on_and_pauses_from_the_end_of_the_run() -> None:
    failed = after_run(last_run(finished_ms=NOW), failures_before=2, failed=True, table_id="t", backoff=PLAIN)
    assert (failed.failures, failed.paused_until_ms) == (3, NOW + 20 * MINUTE)


def test_a_success_resets_failures_and_pause() -> None:
    found = after_run(last_run(failures=7, paused_until_ms=NOW + DAY), failures_before=7, failed=False, table_id="t")
    assert (found.failures, found.paused_until_ms) == (0, None)


def test_a_run_without_an_end_pauses_from_its_beginning() -> None:
    failed = after_run(last_run(started_ms=NOW, finished_ms=None), failures_before=0, failed=True, table_id="t", backoff=PLAIN)
    assert failed.paused_until_ms == NOW + 5 * MINUTE


@pytest.mark.parametrize(
    ("until", "ended", "expected"),
    [
        (NOW + 1, NOW - 5, NOW + 1),
        (NOW, NOW - 5, None),
        (None, NOW - 5, None),
        (NOW + 1, NOW + 2 * DAY, None),
        (NOW + 1, None, NOW + 1),
    ],
    ids=["paused", "over", "never", "set by a clock that was wrong", "no end"],
)
def test_a_pause_holds_until_its_end_unless_a_wrong_clock_set_it(
    until: int | None, ended: int | None, expected: int | None
) -> None:
    assert paused_until(last_run(finished_ms=ended, paused_until_ms=until), NOW) == expected
