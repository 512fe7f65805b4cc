"""A table in memory that needs new tags, and the policy that asks for them."""

from __future__ import annotations

from neve.policy.auto_tags import Period
from neve.table.state import Ref, RefKind
from tests.builders.fake_maintenance_tables import FakeTable

DAY = 86_400_000
KEEP = {Period.DAILY: 1}
FIRST, SECOND = "neve-daily-2025-06-15", "neve-daily-2025-06-16"


def tagged_table() -> FakeTable:
    """Returns a table with one commit on each of two past days, and a tag of the first."""
    table = FakeTable()
    table.append()
    table.clock.now += DAY
    table.append()
    table.clock.now += DAY
    table.refs[FIRST] = Ref(name=FIRST, kind=RefKind.TAG, snapshot_id=1)
    return table
