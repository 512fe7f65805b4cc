"""What policies may ask of operations: names, options and values, derived from the requests that the registry lists.

Called where policies are read (`settings.policy_files` takes `operation_problems`) and resolved (`policy.effective` takes
`option_names`). Nothing is carried out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from neve.operations.registry import OPERATIONS
from neve.policy.document import OperationChoice, kebab
from neve.settings.policy_files import OperationProblem
from neve.settings.problems import reason_of
from neve.settings.section import nearest

_NOT_FOR_POLICIES = frozenset({"dry_run"})
"""Options of a request that no policy gives: what a policy asks for is done."""
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@cache
def option_names() -> Mapping[str, frozenset[str]]:
    """The operations that a policy can name, with the names of their options as their requests have them."""
    return {name: frozenset(_options(operation.request)) for name, operation in OPERATIONS.items() if not operation.of_run}


def operation_problems(choice: OperationChoice) -> list[OperationProblem]:
    """What is wrong with an operation that a policy names, each with the key below the operation."""
    if choice.name not in option_names():
        return [OperationProblem(("name",), _unknown_operation(choice.name))]
    known = {kebab(name): one for name, one in _options(OPERATIONS[choice.name].request).items()}
    hints = get_type_hints(OPERATIONS[choice.name].request)
    found = [
        OperationProblem(("options", key), reason)
        for key, value in choice.options.items()
        if (reason := _unknown_option(key, known) if key not in known else _refusal(known[key], hints[known[key].name], value))
    ]
    required = (key for key, one in known.items() if one.default is MISSING and one.default_factory is MISSING)
    return found + [OperationProblem(("options",), f"{key} is needed") for key in required if key not in choice.options]


def _options(request: type[Any]) -> dict[str, Field[Any]]:
    return {one.name: one for one in fields(request) if one.name not in _NOT_FOR_POLICIES}


def _unknown_operation(name: str) -> str:
    if name in OPERATIONS:
        return f"{name} works on a run and not on a table, so that no policy can ask for it"
    known = option_names()
    return f"there is no operation {name!r}{nearest(name, known) or '; write one of ' + ', '.join(known)}"


def _unknown_option(key: str, known: Mapping[str, Field[Any]]) -> str:
    if key.replace("-", "_") in _NOT_FOR_POLICIES:
        return "no policy can ask for a dry run; `neve policy test` shows what would be done"
    valid = f"; valid here: {', '.join(known)}" if known else "; it takes none"
    return f"unknown option{nearest(key, known) or valid}"


def _refusal(one: Field[Any], hint: Any, value: object) -> str | None:
    """Why an option does not take this value."""
    try:
        TypeAdapter(hint, config=_STRICT).validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError as error:
        return reason_of(error, value)
    option = one.metadata["option"]
    if option.choices and value is not None and value not in option.choices:
        return f"there is no {value!r}; write one of {', '.join(option.choices)}"
    if option.minimum is not None and isinstance(value, int | float) and value < option.minimum:
        return f"should be at least {option.minimum}, not {value}"
    return None
