"""The machinery of this folder: what is taken out of a function is out for everybody, for as long as the block lasts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import pytest

from tests.accidents.unguarded import accident, answering


def checked(number: int, *, limit: int = 10) -> int:
    if number > limit:
        raise ValueError(f"{number} is too much")
    return number


also_checked = checked


class Plain:
    def name(self) -> str:
        return "plain"


class Fancy(Plain):
    def name(self) -> str:
        return f"fancy {super().name()}"

    @property
    def short(self) -> str:
        return self.name()[:3]

    @cached_property
    def long(self) -> str:
        return self.name() * 2

    @contextmanager
    def open(self) -> Iterator[str]:
        yield self.name()


def test_a_function_is_changed_for_those_who_imported_it_by_name_too() -> None:
    with answering(checked, "number")():
        assert also_checked(11) == 11
    with pytest.raises(ValueError, match="11 is too much"):
        also_checked(11)


def test_methods_that_call_super_properties_and_context_managers_can_be_changed() -> None:
    with (
        answering(Fancy.name, "'bare ' + super().name()")(),
        answering(Fancy.short, "self.name()[:4]")(),
        answering(Fancy.long, "self.name()")(),
        answering(Fancy.open, "iter(['opened ' + self.name()])")(),
    ):
        assert (Fancy().name(), Fancy().short, Fancy().long) == ("bare plain", "bare", "bare plain")
        with Fancy().open() as name:
            assert name == "opened bare plain"
    assert Fancy().name() == "fancy plain"


def test_a_function_can_answer_the_same_whatever_it_is_asked() -> None:
    with answering(checked, "limit + 1")(), answering(Fancy.name, "'nobody'")():
        assert checked(99) == 11
        assert Fancy().name() == "nobody"
    assert checked(9) == 9


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [
        ("most", "most"),
        ("tools.limit + number", "tools"),
        ("[most for each in range(number)]", "most"),
        ("lambda: (most, tools)", "most, tools"),
    ],
)
def test_an_answer_by_names_that_the_function_does_not_know_is_refused(answer: str, unknown: str) -> None:
    message = f"Cannot let checked answer {answer!r}: it does not know {unknown}"
    with pytest.raises(LookupError, match=f"^{re.escape(message)}$"):
        answering(checked, answer)


@pytest.mark.parametrize("answer", ["limit", "also_checked", "max(number, 1)", "(most := [1]) and [each for each in most]"])
def test_an_answer_may_name_parameters_globals_builtins_and_what_it_binds_itself(answer: str) -> None:
    answering(checked, answer)


def cases(test: object) -> list[str]:
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    return list(mark.args[1])


def made(scenario: object, *, sees: str = "too little") -> object:
    """An accident that stands on no page."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.accidents.unguarded.ACCIDENTS", [])
        decorate = accident(
            "w", evidence="e", guard="g", without=[answering(checked, "0")], behind=[answering(Plain.name, "'x'")], sees=sees
        )
        return decorate(scenario)  # type: ignore[arg-type]


def test_an_accident_passes_with_its_guard_and_fails_without() -> None:
    ran = []

    def scenario(number: int) -> None:
        ran.append((checked(number), Plain().name()))
        assert checked(number) == number, "too little"

    test = made(scenario)
    assert cases(test) == ["guarded", "unguarded", "second-guard-alone"]
    for case in cases(test):
        test(case, number=7)  # type: ignore[operator]
    assert ran == [(7, "plain"), (0, "x"), (7, "x")]


def test_an_accident_that_nobody_sees_without_its_guard_is_a_failure() -> None:
    def scenario() -> None:
        checked(3)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        made(scenario)("unguarded")  # type: ignore[operator]


def test_an_accident_that_is_seen_as_something_else_is_a_failure() -> None:
    def scenario() -> None:
        assert checked(3) == 3, "another thing"

    with pytest.raises(AssertionError, match="Regex pattern did not match"):
        made(scenario)("unguarded")  # type: ignore[operator]
