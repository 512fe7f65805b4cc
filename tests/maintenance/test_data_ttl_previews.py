"""Which preview an enforcement goes by: one of the same column by field id, and never a later cutoff than its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.context.runs import keep_record
from neve.errors import BadRequestError
from neve.maintenance.record import Operation
from neve.maintenance.ttl import TtlCounts, TtlRecord
from neve.operations.ttl_terms import TtlTerms, as_previewed, previews
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.table.state import MAIN, TableName
from tests.builders.tables import make_table
from tests.builders.ttl_scenes import NAME, RULE

REQUEST = TtlTerms(NAME, "uuid", RULE, 5_000, max_files=10)


def record(**changes: Any) -> TtlRecord:
    values: dict[str, Any] = {
        "run_id": "seen",
        "table": "t",
        "table_uuid": "uuid",
        "operation": Operation.TTL,
        "dry_run": True,
        "outcome": RunOutcome.DONE,
        "started_ms": 1,
        "finished_ms": 2,
        "snapshot_before": 7,
        "rule": RULE,
        "cutoff_ms": 4_000,
    }
    return TtlRecord(**values | changes)


def test_an_enforcement_takes_the_cutoff_that_was_previewed() -> None:
    assert as_previewed(REQUEST, [record()]) == replace(
        REQUEST, cutoff_ms=4_000, previewed_by="seen", previewed=(7, TtlCounts())
    )


def test_a_preview_by_a_clock_that_was_ahead_does_not_move_the_cutoff() -> None:
    assert as_previewed(REQUEST, [record(cutoff_ms=9_000)]) == replace(REQUEST, previewed_by="seen")


def test_an_unknown_cutoff_stays_unknown_whatever_was_previewed() -> None:
    unknown = replace(REQUEST, cutoff_ms=None, unknown="nobody knows")
    assert as_previewed(unknown, [record()]) == unknown


@pytest.mark.parametrize(
    ("branch", "command"), [(MAIN, f"`neve ttl {NAME}`"), ("my branch", f"`neve ttl {NAME} --branch 'my branch'`")]
)
def test_an_enforcement_without_a_preview_names_the_preview_of_the_same_branch(branch: str, command: str) -> None:
    request = replace(REQUEST, branch=branch)
    with pytest.raises(BadRequestError, match="never previewed") as refused:
        as_previewed(request, [])
    assert refused.value.hint == f"Preview it first with the same limit and column: {command}."
    other = record(rule=RULE.model_copy(update={"field_id": 99}))
    with pytest.raises(BadRequestError, match="for this column") as refused:
        as_previewed(request, [other])
    assert str(refused.value.hint).endswith(f"or preview this one: {command}.")


def test_after_an_enforcement_the_clock_counts() -> None:
    assert as_previewed(REQUEST, [record(dry_run=False)]) == REQUEST


def test_a_preview_of_another_column_of_the_same_name_is_none() -> None:
    other = record(rule=RULE.model_copy(update={"field_id": 8}))
    with pytest.raises(BadRequestError, match="never previewed for this column: day is now field 1 and was field 8"):
        as_previewed(REQUEST, [other])
    with pytest.raises(BadRequestError, match=r"it was never previewed$"):
        as_previewed(REQUEST, [])


def test_a_preview_of_a_copy_with_the_same_uuid_is_none(tmp_path: Path) -> None:
    original, copy = (
        make_table(uuid="uuid", name=TableName(catalog=catalog, namespace=("db",), name="t")) for catalog in ("prod", "dev")
    )
    with StateStore.open(f"sqlite:///{tmp_path / 'state.db'}") as store:
        keep_record(store, record(table="dev.db.t"), Operation.TTL.value)
        of_copy, of_original = (
            SimpleNamespace(records=store, name=table.name, uuid=table.uuid, branch=MAIN) for table in (copy, original)
        )
        assert [found.table for found in previews(of_copy)] == ["dev.db.t"]  # type: ignore[arg-type]
        assert previews(of_original) == []  # type: ignore[arg-type]
