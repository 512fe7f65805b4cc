"""Decisions, observations and notices for the stores of the service."""

from __future__ import annotations

from typing import Any

from neve.scheduling.job import Decision
from neve.scheduling.observation import Counters, Inspected, Observation

NOW = 1_790_000_000_000
"""By the caller's clock, which counts on SQLite alone."""
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ENDED = 0
"""The length of a claim that has ended when it begins, whichever clock counts."""


def decision(table: str = "a", operation: str = "compact", **values: Any) -> Decision:
    """A decision about the table `lake.db.NAME` with the uuid `uuid-NAME`."""
    known = {"table": f"lake.db.{table}", "table_uuid": f"uuid-{table}", "operation": operation, "reason": "212 small files"}
    return Decision.model_validate(known | values)


def observation(table: str = "a", **values: Any) -> Observation:
    """What was observed of the table `lake.db.NAME` with the uuid `uuid-NAME`."""
    known = {
        "table": f"lake.db.{table}",
        "uuid": f"uuid-{table}",
        "metadata_location": f"s3://{table}/1.json",
        "observed_ms": NOW,
    }
    return Observation.model_validate(known | values)


def inspected(at_ms: int = NOW, **values: Any) -> Inspected:
    """What an inspection found."""
    known = {"snapshot_id": 7, "inspected_ms": at_ms, "health": 60, "data_files": 10, "data_bytes": 1_000}
    return Inspected.model_validate({**known, "small_files": 9, "small_bytes": 90, "delete_files": 2, **values})


def counters(commits: int) -> Counters:
    """Counters after so many commits of others."""
    return Counters(commits=commits, bytes_added=commits * 100, files_added=commits)
