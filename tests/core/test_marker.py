"""The marker of a run at work, as the table's property has it."""

from __future__ import annotations

import json

from neve.commit.marker import PROPERTY, Marker


def test_a_marker_of_a_newer_release_counts() -> None:
    marker = Marker(run_id="r", owner="host:1", until_ms=5)
    newer = json.dumps(json.loads(marker.text) | {"reason": "compact"})
    assert Marker.of({PROPERTY: newer}) == marker
