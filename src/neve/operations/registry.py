"""The operations on a table, listed once: names, requests, kinds in the state store, and where each is implemented.

The Python API, the command line and `maintain` derive from this list. An operation is imported when it is first called, so that
listing them is cheap. Adding one means adding its module, its request and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from neve.operations import requests

if TYPE_CHECKING:
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

    def __post_init__(self) -> None:
        if self.changes_tables and not hasattr(self.request, "dry_run"):
            raise TypeError(f"Cannot register {self.name}: it changes tables and has no dry run")

    @property
    def run_kind(self) -> str:
        """What its runs are called in the state store."""
        return self.kind or self.name

    def run(self, context: TableContext, request: Any) -> Any:
        """Carries a request out; returns the record."""
        return getattr(import_module(self.module), self.function)(context, request)

    def due(self, context: TableContext, function: str = "is_due") -> Judgement:
        """Whether `maintain` would carry it out."""
        judgement: Judgement = getattr(import_module(self.module), function)(context)
        return judgement


def _listed(*operations: RegisteredOperation) -> Mapping[str, RegisteredOperation]:
    return {operation.name: operation for operation in operations}


OPERATIONS = _listed(
    RegisteredOperation("expire", requests.ExpireRequest, "neve.operations.expire_snapshots"),
    RegisteredOperation("settle", requests.SettleRequest, "neve.operations.quarantine", "run_settle", "quarantine"),
    RegisteredOperation("purge", requests.PurgeRequest, "neve.operations.quarantine", "run_purge", "quarantine"),
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
    """A request with these options; lists become tuples. Raises TypeError for an option that it does not have."""
    lists = {one.name for one in fields(request) if isinstance(one.default, tuple)}
    return request(*given, **{key: tuple(value) if key in lists else value for key, value in options.items()})


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
