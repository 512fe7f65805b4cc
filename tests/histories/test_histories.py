"""Two Neves on two hosts and three writers on one table of a REST catalog and S3, while processes, answers and clocks fail.

Processes are killed and paused past their lease, answers of the catalog are lost, clocks are off, and the shared state store is
replaced by an older backup. A failure prints the seed, the schedule and the log; `python -m tests.histories` repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

import pytest

from stack.endpoints import PostgresEndpoint, RestEndpoint, S3Endpoint
from tests.histories.history import History
from tests.histories.stage import Servers

pytestmark = pytest.mark.stack

SEED = int(os.environ.get("NEVE_HISTORY_SEED") or SystemRandom().randrange(10**6))
MINUTES = float(os.environ.get("NEVE_HISTORY_MINUTES") or 60)


@pytest.fixture
def servers(rest: RestEndpoint, s3: S3Endpoint, postgres: PostgresEndpoint) -> Servers:
    return Servers(rest, s3, postgres)


def run(seed: int, minutes: float, servers: Servers, directory: Path) -> None:
    result = History(seed, minutes, servers, directory).run()
    print(result)
    for writer in ("spark", "cdc", "updater"):
        assert result.count(f"{writer} ", " ok") >= 2 * minutes, f"{writer} hardly wrote"
    assert result.count("neve-", " compact done") >= 2
    assert result.count("scene ") >= 1
    assert result.counts["event kill"] + result.counts["event pause"] + result.count("scene take-over") >= minutes / 2
    for what in ("lose-answer", "hold-commit", "skew"):
        assert result.counts[f"event {what}"] >= 1, f"{what} never came"
    assert result.checks >= 2 * minutes
    assert result.unrelated <= result.snapshots / 4


@pytest.mark.timeout(1200)
def test_two_minutes_lose_revive_and_double_nothing(servers: Servers, tmp_path: Path) -> None:
    run(SEED, 2, servers, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(round(MINUTES * 60 * 2 + 1200))
def test_an_hour_loses_revives_and_doubles_nothing(servers: Servers, tmp_path: Path) -> None:
    run(SEED, MINUTES, servers, tmp_path)
