"""The list of operations: each can be shown before it changes a table, and surfaces offer what its request declares."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from inspect import signature
from typing import get_args, get_type_hints

import pytest

import neve
from neve.api import Neve
from neve.maintenance.record import Operation
from neve.operations.registry import OPERATIONS, RegisteredOperation, requested
from neve.operations.requests import ManifestsRequest
from neve.python_api import Table
from neve.render.records import KINDS
from neve.rewrite.group import RunKind
from neve.rewrite.preview import Preview
from neve.rewrite.record import RunRecord
from tests.builders.cli_commands import leaf_commands
from tests.builders.killed_operations import OPERATIONS as KILLED

DUE = {
    "settle": ["is_settle_due"],
    "purge": ["is_purge_due"],
    "deletes": ["is_convert_due", "is_rewrite_due", "is_prune_due"],
    **{name: [] for name in ("cluster", "rollback", "restore", "prevent", "maintain")},
}
"""Due-checks with names of their own, and operations that are no steps of `maintain`."""


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
    of_table = [getattr(Table, name)] if name != "ttl" and not operation.of_run else []
    for surface in (getattr(Neve, name), getattr(neve, name), *of_table):
        assert options <= set(signature(surface).parameters)
    assert callable(getattr(module, "table_of", None)) or not operation.of_run


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_dry_run_can_say_that_it_rests_on_cached_metadata(name: str) -> None:
    returned = get_type_hints(OPERATIONS[name].run)["return"]
    answers = {kind for kind in get_args(returned) or (returned,) if kind is not RunRecord}
    assert answers
    assert all(issubclass(kind, Preview) for kind in answers)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_command_with_a_dry_run(name: str) -> None:
    commands = {words: command for words, command in leaf_commands().items() if name in words}
    assert commands
    for command in commands.values():
        # `prevent` shows what it would do unless it is told to apply it.
        assert {"dry_run", "apply"} & {option.name for option in command.params}, command.name


RECORDED_OTHERWISE = {
    "resume": "the record is that of the run which is resumed",
    "rollback": "a rollback is shown when it is done and not stored",
}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in RECORDED_OTHERWISE])
def test_records_of_an_operation_are_shown_by_neve_runs(name: str) -> None:
    assert OPERATIONS[name].run_kind in KINDS


KILLED_ELSEWHERE = {
    "compact": "tests/spark/test_resume.py",
    "cluster": "as compact",
    "resume": "as compact",
    "rollback": "one commit of Iceberg, which lands or does not",
    "maintain": "it runs the others",
}


def test_every_operation_is_killed_in_the_middle_by_a_test() -> None:
    assert OPERATIONS.keys() - KILLED_ELSEWHERE.keys() == KILLED.keys()


def test_an_option_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'operation'"):
        neve.deletes("db.events")
    assert str(signature(neve.deletes)).startswith(
        "(name, operation: 'str', *, branch: 'str' = 'main', dry_run: 'bool' = False, "
    )


def test_kinds_in_the_state_store_are_those_that_records_name() -> None:
    kinds = {operation.run_kind for operation in OPERATIONS.values()}
    named = {kind.value for kinds in (Operation, RunKind) for kind in kinds}
    assert kinds - {"quarantine", "deletes", "rollback", "resume"} <= named


def test_lists_become_tuples_and_an_unknown_option_is_an_error() -> None:
    assert requested(ManifestsRequest, by=["day"]) == ManifestsRequest(by=("day",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'bye'"):
        requested(ManifestsRequest, bye=1)
