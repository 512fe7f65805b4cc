"""The list of operations: each can be shown before it changes a table, and surfaces offer what its request declares."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from inspect import signature

import pytest

import neve
from neve.api import Neve
from neve.maintenance.record import Operation
from neve.operations.registry import OPERATIONS, RegisteredOperation, requested
from neve.operations.requests import ManifestsRequest
from neve.python_api import Table

DUE = {
    "settle": ["is_settle_due"],
    "purge": ["is_purge_due"],
    "deletes": ["is_convert_due", "is_rewrite_due", "is_prune_due"],
    "prevent": [],
    "maintain": [],
}
"""Due-checks with names of their own; the last two are no steps of `maintain`."""


@dataclass(frozen=True)
class Reckless:
    force: bool = False


def test_an_operation_that_changes_tables_without_a_dry_run_is_refused() -> None:
    with pytest.raises(TypeError, match="Cannot register reckless: it changes tables and has no dry run"):
        RegisteredOperation("reckless", Reckless, "neve.operations.tags")
    RegisteredOperation("looking", Reckless, "neve.operations.tags", changes_tables=False)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_implemented_and_offered_with_its_options(name: str) -> None:
    operation = OPERATIONS[name]
    module = import_module(operation.module)
    assert callable(getattr(module, operation.function))
    assert all(callable(getattr(module, due)) for due in DUE.get(name, ["is_due"]))
    options = {one.name for one in fields(operation.request)}
    for surface in (getattr(Neve, name), getattr(neve, name), *([getattr(Table, name)] if name != "ttl" else [])):
        assert options <= set(signature(surface).parameters)


def test_an_option_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'operation'"):
        neve.deletes("db.events")
    assert str(signature(neve.deletes)).startswith(
        "(name, operation: 'str', *, branch: 'str' = 'main', dry_run: 'bool' = False, "
    )


def test_kinds_in_the_state_store_are_those_that_records_name() -> None:
    kinds = {operation.run_kind for operation in OPERATIONS.values()}
    assert kinds - {"quarantine", "deletes"} <= {operation.value for operation in Operation}


def test_lists_become_tuples_and_an_unknown_option_is_an_error() -> None:
    assert requested(ManifestsRequest, by=["day"]) == ManifestsRequest(by=("day",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'bye'"):
        requested(ManifestsRequest, bye=1)
