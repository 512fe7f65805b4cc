"""Properties are set in one commit and taken back as they were; what others changed meanwhile is theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from neve.errors import CommitConflictError, TableGoneError
from neve.maintenance.prevention import PropertyChange, PropertyProposal
from neve.operations.prevent import Prevention
from neve.rewrite.record import RunOutcome
from neve.table.state import TableName
from tests.builders.fake_tables import Still

NAME = TableName(catalog="local", namespace=("db",), name="t")


class FakeProperties:
    """The properties of a table, and how often they were committed."""

    def __init__(self, **properties: str) -> None:
        self.properties, self.commits, self.table_uuid = dict(properties), 0, "uuid"

    def uuid(self) -> str:
        return self.table_uuid

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        if any(self.properties.get(key) != value for key, value in expected.items()):
            return False
        self.commits += 1
        changed = {**self.properties, **values}
        self.properties = {key: value for key, value in changed.items() if value is not None}
        return True

    def prevention(self) -> Prevention:
        return Prevention(NAME, "uuid", dict(self.properties), Still())


def proposed(**values: tuple[str | None, str]) -> PropertyProposal:
    return PropertyProposal(changes=tuple(PropertyChange(key=k, before=b, value=v, reason="r") for k, (b, v) in values.items()))


WANTED = proposed(a=(None, "1"), b=("old", "2"))


def test_all_is_set_in_one_commit_and_taken_back_in_one() -> None:
    table = FakeProperties(b="old", c="other")
    record = table.prevention().apply(WANTED, table)  # type: ignore[arg-type]
    assert (record.outcome, record.dry_run, table.commits) == (RunOutcome.DONE, False, 1)
    note = {"a": {"set": "1", "before": None}, "b": {"set": "2", "before": "old"}}
    assert table.properties == {"a": "1", "b": "2", "c": "other", "neve.prevention": json.dumps(note)}
    undone = table.prevention().undo(table)  # type: ignore[arg-type]
    assert ([(c.key, c.before, c.value) for c in undone.undone], undone.left) == ([("a", "1", ""), ("b", "2", "old")], ())
    assert (table.properties, table.commits) == ({"b": "old", "c": "other"}, 2)
    again = table.prevention().undo(table)  # type: ignore[arg-type]
    assert (again.outcome, again.reason, table.commits) == (
        RunOutcome.NOTHING_TO_DO,
        "nothing was set that could be taken back",
        2,
    )
    assert [rule.until for rule in again.not_due] == ["`neve prevent TABLE --apply` has set something"]


def test_what_others_changed_since_stays_theirs() -> None:
    table = FakeProperties(b="old")
    table.prevention().apply(WANTED, table)  # type: ignore[arg-type]
    table.properties["b"] = "theirs"
    record = table.prevention().undo(table)  # type: ignore[arg-type]
    assert (record.left, table.properties) == (("b",), {"b": "theirs"})


def test_properties_that_change_under_the_hand_are_not_overwritten() -> None:
    table = FakeProperties(b="old")
    prevention = table.prevention()
    table.properties["b"] = "theirs"
    with pytest.raises(CommitConflictError, match=r"Cannot set the properties of local.db.t: somebody else has just changed"):
        prevention.apply(WANTED, table)  # type: ignore[arg-type]
    assert (table.properties, table.commits) == ({"b": "theirs"}, 0)


def test_a_table_that_has_the_name_by_now_gets_no_properties_that_were_meant_for_another() -> None:
    table = FakeProperties()
    prevention = table.prevention()
    table.table_uuid = "another"
    with pytest.raises(TableGoneError, match=r"^Cannot work on local.db.t: it was replaced by another table"):
        prevention.apply(proposed(a=(None, "1")), table)  # type: ignore[arg-type]
    assert table.commits == 0


def test_nothing_is_committed_where_nothing_is_proposed_or_it_is_only_told() -> None:
    table = FakeProperties()
    assert table.prevention().apply(PropertyProposal(), table).outcome is RunOutcome.NOTHING_TO_DO  # type: ignore[arg-type]
    told = table.prevention().tell(WANTED)
    assert (told.outcome, told.dry_run, told.proposal, table.commits) == (RunOutcome.DONE, True, WANTED, 0)
