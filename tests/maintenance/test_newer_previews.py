"""A preview that a newer release recorded with more than this one knows: what it showed may not be what this one removes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.operations.ttl_terms import previews

STORED = json.loads((Path(__file__).parents[1] / "state" / "records" / "ttl.json").read_text(encoding="utf-8"))


def context(*records: dict[str, Any]) -> Any:
    runs = [SimpleNamespace(record=record, table_name=STORED["table"]) for record in records]
    store = SimpleNamespace(runs=lambda *_, **__: runs)
    return SimpleNamespace(records=store, name=STORED["table"], uuid=STORED["table_uuid"], branch=STORED["branch"])


@pytest.mark.parametrize("news", [{"from_2030": 1}, {"rule": {**STORED["rule"], "where": "x > 1"}}, {"outcome": "postponed"}])
def test_it_does_not_count_and_those_that_are_understood_do(news: dict[str, Any]) -> None:
    found = previews(context({**STORED, **news}, STORED))
    assert [record.run_id for record in found] == [STORED["run_id"]]
