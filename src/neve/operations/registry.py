"""The operations on a table, listed once: names, requests, kinds in the state store, and where each is implemented.

The Python API, the command line and `maintain` derive from this list. An operation is imported when it is first called, so that
listing them is cheap. CONTRIBUTING.md says what a new one needs; tests/core/test_registry.py names what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from importlib import import_module
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError
from neve.operations import requests

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.context.table import TableContext
    from neve.maintenance.steps import Judgement


@dataclass(frozen=True)
class RegisteredOperation:
    """One operation. `name` is that of its command, of its Python call and, unless `kind` says otherwise, of its runs."""

    name: str
    request: type[Any]
    module: str
    function: str = "run"
    kind: str = ""
    changes_tables: bool = True
    of_run: bool = False
    """Whether its request names a run, which has a table. Its module then has `table_of(connection, request)`."""

    def __post_init__(self) -> None:
        if self.changes_tables and not hasattr(self.request, "dry_run"):
            raise TypeError(f"Cannot register {self.name}: it changes tables and has no dry run")

    @property
    def run_kind(self) -> str:
        """What its runs are called in the state store."""
        return self.kind or self.name

    @property
    def run(self) -> Callable[[TableContext, Any], Any]:
        """Carries a request out; returns the record."""
        function: Callable[[TableContext, Any], Any] = getattr(import_module(self.module), self.function)
        return function

    def table_of(self, connection: Connection, request: Any) -> str:
        """The table of the run that a request names."""
        return str(import_module(self.module).table_of(connection, request))

    def due(self, context: TableContext, function: str = "is_due") -> Judgement:
        """Whether `maintain` would carry it out."""
        judgement: Judgement = getattr(import_module(self.module), function)(context)
        return judgement


def _listed(*operations: RegisteredOperation) -> Mapping[str, RegisteredOperation]:
    return {operation.name: operation for operation in operations}


OPERATIONS = _listed(
    RegisteredOperation("compact", requests.CompactRequest, "neve.operations.compact"),
    RegisteredOperation("cluster", requests.ClusterRequest, "neve.operations.cluster"),
    RegisteredOperation("resume", requests.ResumeRequest, "neve.operations.resume", of_run=True),
    RegisteredOperation("rollback", requests.RollbackRequest, "neve.operations.rollback", of_run=True),
    RegisteredOperation("expire", requests.ExpireRequest, "neve.operations.expire_snapshots"),
    RegisteredOperation("settle", requests.SettleRequest, "neve.operations.quarantine", "run_settle", "quarantine"),
    RegisteredOperation("purge", requests.PurgeRequest, "neve.operations.quarantine", "run_purge", "quarantine"),
    RegisteredOperation(
        "restore", requests.RestoreRequest, "neve.operations.quarantine", "run_restore", "quarantine", of_run=True
    ),
    RegisteredOperation("orphans", requests.OrphansRequest, "neve.operations.remove_orphans"),
    RegisteredOperation("manifests", requests.ManifestsRequest, "neve.operations.rewrite_manifests"),
    RegisteredOperation("stats", requests.StatsRequest, "neve.operations.statistics"),
    RegisteredOperation("tags", requests.TagsRequest, "neve.operations.tags"),
    RegisteredOperation("ttl", requests.TtlRequest, "neve.operations.ttl"),
    RegisteredOperation("deletes", requests.DeletesRequest, "neve.operations.delete_files"),
    RegisteredOperation("prevent", requests.PreventRequest, "neve.operations.prevent"),
    RegisteredOperation("maintain", requests.MaintainRequest, "neve.operations.maintain"),
)


def requested(request: type[Any], *given: Any, **options: Any) -> Any:
    """A request with these options; lists become tuples, and a name that is None is the default one.

    Raises TypeError for an option that the request does not have, and BadRequestError for a value that it does not take.
    """
    lists = {one.name for one in fields(request) if isinstance(one.default, tuple)}
    named = {one.name for one in fields(request) if isinstance(one.default, str)}
    said = {key: value for key, value in options.items() if value is not None or key not in named}
    made = request(*given, **{key: tuple(value) if key in lists else value for key, value in said.items()})
    for one in fields(request):
        _require_choice(one, getattr(made, one.name))
    return made


def _require_choice(one: Field[Any], value: Any) -> None:
    choices = one.metadata["option"].choices if "option" in one.metadata else ()
    if choices and value is not None and value not in choices:
        raise BadRequestError(f"Cannot use {one.name} {value!r}: there are {', '.join(choices)}")


def parameters(request: type[Any]) -> list[Parameter]:
    """The options of a request as parameters of a Python call; those without a default come first."""
    return [
        Parameter(one.name, Parameter.POSITIONAL_OR_KEYWORD, annotation=one.type)
        if one.default is MISSING
        else Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(request)
    ]


def registered(name: str) -> RegisteredOperation:
    """The operation of this name."""
    return OPERATIONS[name]
