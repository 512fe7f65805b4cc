"""What a run used: sums of requests, and what is unknown is never 0."""

from __future__ import annotations

import pytest

from neve.rewrite.cost import Rates
from neve.rewrite.usage import CpuSeconds, Requests, Used

RATES = Rates(core_hour=3600.0, thousand_reads=1000.0, thousand_writes=5000.0)


def test_requests_of_all_processes_are_added_up() -> None:
    found = Requests.of([{"read": 3, "catalog": 1}, {"read": 4, "write": 2}])
    assert found == Requests(read=7, write=2, list=0, delete=0, catalog=1)


@pytest.mark.parametrize(
    ("uncounted", "unknown"),
    [
        ((), set()),
        (("catalog",), {"catalog"}),
        (("workers",), {"write", "list", "delete"}),
        (("jvm",), {"write", "list", "delete", "catalog"}),
        (("workers", "jvm"), {"write", "list", "delete", "catalog"}),
    ],
)
def test_a_kind_of_which_none_was_counted_is_unknown_if_others_may_have_sent_some(
    uncounted: tuple[str, ...], unknown: set[str]
) -> None:
    found = Requests.of([{"read": 3}], uncounted)
    counted = {"read": 3, "write": 0, "list": 0, "delete": 0, "catalog": 0}
    assert found.known == {kind: number for kind, number in counted.items() if kind not in unknown}
    assert {kind for kind, number in found.model_dump().items() if number is None} == unknown
    assert found.uncounted == tuple(sorted(uncounted))


def test_money_is_that_of_cpu_time_and_of_requests_to_storage() -> None:
    requests = Requests(read=2, write=1, list=1, delete=9, catalog=100)
    used = Used.at(RATES, requests, CpuSeconds(python=1.0, jvm=2.0, workers=0.5), prices="2026-01")
    assert (used.money, used.prices) == (3.5 + 2 * 1.0 + 2 * 5.0, "2026-01")


@pytest.mark.parametrize("missing", ["python", "jvm", "workers"])
def test_money_is_unknown_if_the_cpu_time_of_a_process_is(missing: str) -> None:
    cpu = CpuSeconds(python=1.0, jvm=2.0, workers=0.5).model_copy(update={missing: None})
    assert (cpu.total, Used.at(RATES, Requests(read=1), cpu).money) == (None, None)
