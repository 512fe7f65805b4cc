"""The time that the text of a record shows: that of the whole command, with the parts that a user waits for."""

from __future__ import annotations

import pytest

from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.record import Operation
from neve.render.expiry import expiry_line
from neve.render.phrases import took
from neve.render.run import run_line
from neve.rewrite.record import RunOutcome
from tests.builders.run_records import make_record

TIMES = {"elapsed_seconds": 27.1, "session_start_seconds": 14.2, "planning_seconds": 3.1}


@pytest.mark.parametrize(
    ("elapsed", "start", "planning", "text"),
    [
        (None, None, None, "2.4 s"),
        (27.1, 14.2, 3.1, "27.1 s (Spark start 14.2 s, planning 3.1 s)"),
        (27.1, None, None, "27.1 s"),
        (27.1, 14.2, 0.4, "27.1 s (Spark start 14.2 s)"),
        (12.0, None, 3.1, "12 s (planning 3.1 s)"),
        (600.0, 14.2, 3.1, "10 min"),
        (1.5, 0.8, 0.3, "1.5 s"),
    ],
)
def test_large_parts_are_named(elapsed: float | None, start: float | None, planning: float | None, text: str) -> None:
    times = {"elapsed_seconds": elapsed, "session_start_seconds": start, "planning_seconds": planning}
    assert took(make_record().model_copy(update=times)) == text


def test_the_line_of_a_compaction_shows_the_whole_time() -> None:
    line = run_line(make_record().model_copy(update=TIMES))
    assert line.startswith("Compacted 250 files into 5 in 27.1 s (Spark start 14.2 s, planning 3.1 s); every row")


def test_the_line_of_an_expiry_shows_the_whole_time() -> None:
    known = {"run_id": "a", "table": "l.db.t", "table_uuid": "u", "operation": Operation.EXPIRE, "outcome": RunOutcome.DONE}
    record = ExpiryRecord(**known, started_ms=0, finished_ms=900, expired=(1, 2), **TIMES)
    assert expiry_line(record) == "Expired 2 snapshots in 27.1 s (Spark start 14.2 s, planning 3.1 s)"
