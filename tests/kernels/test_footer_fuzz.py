"""Damaged footers: a kernel that accepts a file writes its very rows in a file that opens, and refuses every other file.

`make test` tries some thousands of mutations, `make soak` 100,000; a failure names the seed file and its mutation's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.builders.footer_mutations import Seed, Trial, as_duckdb, seeds

SAMPLE = 130
SOAK = 100_000


@cache
def by_name() -> dict[str, Seed]:
    return {seed.name: seed for seed in seeds()}


NAMES = sorted(by_name())


@pytest.mark.parametrize("name", NAMES)
def test_damaged_footers_are_refused_or_change_nothing(name: str, tmp_path: Path) -> None:
    trial = Trial(by_name()[name], look=every(20, as_duckdb(tmp_path)))
    trial.run(range(SAMPLE))
    counts = trial.counts
    # Both sides of the rule are exercised: damage that nobody can read, and damage that nobody needs to notice.
    assert counts["unreadable"] > SAMPLE // 3
    assert counts["equal"] > 0
    assert counts["copy accepted"] > 0
    assert counts["arrow accepted"] > 0


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("flat-arrow-schema", 1_003_001),  # a row group of 10^12 rows, for which a reader could ask for all memory
        ("duckdb", 1_001_990),  # a group that is called required: its pages do not decode any more
        ("flat-small-pages", 1_004_232),  # encoding 1, which the format reserves: DuckDB reads no such footer
    ],
)
def test_what_longer_runs_found_stays_fixed(name: str, number: int, tmp_path: Path) -> None:
    Trial(by_name()[name], look=as_duckdb(tmp_path)).run(range(number, number + 1))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_footers(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    each = round(SOAK / len(NAMES) * 1.05)  # some mutations change nothing, and do not count
    for name in NAMES:
        trial = Trial(by_name()[name], look=every(50, as_duckdb(tmp_path)))
        trial.run(range(1_000_000, 1_000_000 + each))
        total += trial.counts
    assert total["mutations"] >= SOAK
    assert total["equal"] > SOAK // 20
    assert total["copy accepted"] > SOAK // 50


def every(nth: int, look: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The look, at one output in so many."""
    seen = Counter[str]()

    def sometimes(data: bytes) -> None:
        seen["outputs"] += 1
        if seen["outputs"] % nth == 1:
            look(data)

    return sometimes
