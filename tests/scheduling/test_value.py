"""What a run gains for its cost, and what it is predicted to use."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.rewrite.cost import Rates
from neve.scheduling.job import Spent
from neve.scheduling.prediction import Costs, bytes_read, predicted
from neve.scheduling.value import MAX_WEIGHT, MIN_WEIGHT, value
from neve.table.units import GIB, MIB
from tests.builders.scheduling import OPERATIONS, counters, inspected, last_run, observation

SHABBY = observation(
    total_bytes=GIB, data_files=100, delete_files=7, inspected=inspected(small_files=64, small_bytes=80 * MIB, delete_files=9)
)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("compact", 80 * MIB), ("maintain", 80 * MIB), ("deletes", 80 * MIB), ("cluster", GIB), ("expire", 0), ("stats", None)],
)
def test_an_operation_reads_what_it_rewrites(operation: str, expected: int | None) -> None:
    assert bytes_read(operation, SHABBY) == expected


def test_what_was_never_inspected_is_unknown() -> None:
    seen = observation(total_bytes=GIB)
    assert predicted("compact", seen) == Spent()
    assert predicted("cluster", seen).bytes == 2 * GIB
    assert bytes_read("cluster", observation()) is None
    assert bytes_read("cluster", observation(inspected=inspected(data_bytes=5))) == 5


def test_a_prediction_counts_reading_writing_and_the_price_of_core_seconds() -> None:
    costs = Costs(Rates(core_hour=3600.0), "2026-09")
    found = predicted("compact", SHABBY, costs)
    assert (found.bytes, found.core_seconds, found.money, found.prices) == (160 * MIB, 7.0, 7.0, "2026-09")
    assert predicted("expire", SHABBY, costs) == Spent(bytes=0, core_seconds=5.0, money=5.0, prices="2026-09")


@pytest.mark.parametrize(
    ("operation", "gain"), [("compact", 71), ("maintain", 71), ("deletes", 7), ("expire", 40), ("stats", 40)]
)
def test_the_gain_is_counted_in_files_that_readers_no_longer_open(operation: str, gain: float) -> None:
    seen = SHABBY.model_copy(update={"counters": counters(50)})
    assert value(operation, seen, last=last_run(operation, counters=counters(10))).gain == gain


def test_more_gain_weighs_more_and_more_cost_less() -> None:
    cheap, dear = Spent(core_seconds=10.0), Spent(core_seconds=1000.0)
    worse = SHABBY.model_copy(update={"inspected": inspected(small_files=640, small_bytes=80 * MIB)})
    weight = value("compact", SHABBY, predicted=cheap).weight
    assert value("compact", worse, predicted=cheap).weight > weight > value("compact", SHABBY, predicted=dear).weight


def test_twenty_five_of_priority_are_worth_twice_the_gain() -> None:
    cost = Spent(core_seconds=71.0)
    assert value("compact", SHABBY, predicted=cost).weight == pytest.approx(3.0)
    assert value("compact", SHABBY, predicted=cost, priority=25).weight == pytest.approx(4.0)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.none() | st.sampled_from([0.0, 1e-300, 1e300, inf, nan]),
    st.integers(-100, 100),
)
def test_no_table_weighs_more_than_eight_times_as_much_as_another(
    operation: str, small: int, deletes: int, seconds: float | None, priority: int
) -> None:
    seen = observation(inspected=inspected(small_files=small, delete_files=deletes), counters=counters(small))
    found = value(operation, seen, predicted=Spent(core_seconds=seconds), priority=priority)
    assert MIN_WEIGHT <= found.weight <= MAX_WEIGHT
