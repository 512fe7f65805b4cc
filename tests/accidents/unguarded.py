"""Accidents that happened elsewhere, and guards taken out in process: a scenario passes as the product is, and fails without.

`accident` makes the cases of a test and notes it for the page docs/guide/accidents.md (`page`). `answering` changes what a
function of the product returns by exchanging its code, so that whoever has imported it by name is reached too. Tests
name the function that is the guard, and do not depend on how its source is written.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import pytest

Taking = Callable[[], AbstractContextManager[object]]
"""Opens a block in which a guard is out."""


@dataclass(frozen=True)
class Accident:
    """One line of the page."""

    words: str
    evidence: str
    guard: str
    module: str
    test: str


ACCIDENTS: list[Accident] = []
"""All accidents of the test modules that have been imported."""


def accident(
    words: str, *, evidence: str, guard: str, without: Sequence[Taking], sees: str, behind: Sequence[Taking] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a scenario as the product is, and again without the guard, when it must fail with an AssertionError that `sees`.

    Where one guard stands behind another, `behind` takes out the first: the scenario must pass on the second alone, and
    without both it must fail.
    """
    cases: dict[str, Sequence[Taking]] = {"guarded": (), "unguarded": (*behind, *without)}
    if behind:
        cases["second-guard-alone"] = behind

    def decorate(scenario: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(scenario)
        def test(case: str, **fixtures: Any) -> None:
            with ExitStack() as stack:
                for taking in cases[case]:
                    stack.enter_context(taking())
                if case == "unguarded":
                    stack.enter_context(pytest.raises(AssertionError, match=sees))
                scenario(**fixtures)

        signature = inspect.signature(scenario)
        parameter = inspect.Parameter("case", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = signature.replace(parameters=[parameter, *signature.parameters.values()])  # type: ignore[attr-defined]
        ACCIDENTS.append(Accident(words, evidence, guard, scenario.__module__, scenario.__name__))
        return pytest.mark.parametrize("case", cases)(test)

    return decorate


def answering(function: Any, answer: str) -> Taking:
    """The function with nothing left of it but this answer, an expression over its own parameters and globals.

    Raises LookupError if the expression uses a name that the function does not know, such as a parameter that was renamed. At
    run time that would be a NameError, which the product may handle like any other failure.
    """
    plain = _plain(function)
    definition = _definition(textwrap.dedent(inspect.getsource(plain)))
    definition.body = ast.parse(f"return {answer}").body
    code = _compiled(definition, plain)
    if unknown := sorted(_globals_of(code) - plain.__globals__.keys() - vars(builtins).keys()):
        raise LookupError(f"Cannot let {plain.__qualname__} answer {answer!r}: it does not know {', '.join(unknown)}")
    return lambda: _swapped(plain, code)


def _plain(function: Any) -> FunctionType:
    """What lies beneath a property, a cached one, a class method, or a wrapper that says what it wraps."""
    for name in ("fget", "func", "__func__"):
        function = getattr(function, name, function)
    plain: FunctionType = inspect.unwrap(function)
    return plain


def _definition(source: str) -> ast.FunctionDef:
    (found,) = ast.parse(source).body
    assert isinstance(found, ast.FunctionDef)
    return found


@contextmanager
def _swapped(function: FunctionType, code: CodeType) -> Iterator[None]:
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def _compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    """The code of a function that is defined inside another, so that `super()` and closures find their cells."""
    outer = ast.parse(f"def cells({', '.join(function.__code__.co_freevars)}): pass")
    # A cell that the change no longer uses is named all the same: the function goes on holding it.
    uses = [ast.parse(f"lambda: {name}").body[0] for name in function.__code__.co_freevars]
    definition.body = [*definition.body, *uses]
    outer.body[0].body = [definition]  # type: ignore[attr-defined]
    flags = annotations.compiler_flag
    compiled = compile(ast.fix_missing_locations(outer), f"<{function.__qualname__} without its guard>", "exec", flags)
    return _inner(_inner(compiled, "cells"), function.__name__)


def _globals_of(code: CodeType) -> set[str]:
    """The names that the code looks up outside of itself, in comprehensions and lambdas too."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return own.union(*(_globals_of(each) for each in code.co_consts if isinstance(each, CodeType)))


def _inner(code: CodeType, name: str) -> CodeType:
    return next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
