"""The machinery of this folder: what is taken out of a function is out for everybody, for as long as the block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import pytest

from tests.accidents.unguarded import accident, answering, without


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


def test_a_snippet_is_replaced_for_those_who_imported_the_function_by_name_too() -> None:
    with without(checked, "number > limit", "False")():
        assert also_checked(11) == 11
    with pytest.raises(ValueError, match="11 is too much"):
        also_checked(11)


def test_methods_that_call_super_properties_and_context_managers_can_be_changed() -> None:
    with (
        without(Fancy.name, "fancy", "bare")(),
        without(Fancy.short, ":3", ":4")(),
        without(Fancy.long, "* 2", "* 1")(),
        without(Fancy.open, "yield self.name()", "yield 'opened ' + self.name()")(),
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


@pytest.mark.parametrize(("snippet", "times"), [("nothing of the kind", 0), ("number", 4)])
def test_a_snippet_that_is_not_there_exactly_once_is_refused(snippet: str, times: int) -> None:
    with pytest.raises(LookupError, match=f"Cannot take a guard out of checked: '{snippet}' stands there {times} times"):
        without(checked, snippet, "")


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
