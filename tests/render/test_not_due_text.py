"""Rules that are not due as a table: measured value, threshold with its knob, and when."""

from __future__ import annotations

from rich.console import Group

from neve.health.not_due import NotDue
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from tests.builders.plan_text import shown

FILES = NotDue(
    rule="fragments", what="files below 16 MB", where="day=1\x1b", measured=4, threshold=5, knob="min-input-files", more=1
)
AGE = NotDue(
    rule="minor-interval",
    what="time since the last compaction",
    measured=60,
    threshold=3600,
    unit="seconds",
    knob="minor-interval",
    due_ms=1_750_000_000_000,
)


def text(*rules: NotDue, width: int = 110) -> list[str]:
    return shown(Tidy(Group(*not_due_section(rules))), width=width)


def test_rules_stand_in_rows_with_threshold_measured_value_and_when() -> None:
    assert text(FILES, AGE) == [
        "",
        "When it is due, by the closest partition",
        "  checked                          now  due                            when",
        "  files below 16 MB in day=1\\x1b     4  from 5 (min-input-files)       with 1 more file",
        "  time since the last compaction  60 s  after 60 min (minor-interval)  at 2025-06-15 15:06:40 UTC",
    ]


def test_a_narrow_terminal_folds_them() -> None:
    assert text(AGE, width=70)[2:] == [
        "  checked               now  due                 when",
        "  time since the last  60 s  after 60 min        at 2025-06-15",
        "  compaction                 (minor-interval)    15:06:40 UTC",
    ]


def test_without_partitions_the_title_names_none() -> None:
    assert text(AGE)[1] == "When it is due"


def test_without_rules_there_is_nothing() -> None:
    assert text() == []


def test_of_many_rules_some_are_shown() -> None:
    lines = text(*(FILES.model_copy(update={"rule": f"r{i}"}) for i in range(9)))
    assert lines[-1] == "  3 more (--json has them all)"
    assert len([line for line in lines if "min-input-files" in line]) == 6
