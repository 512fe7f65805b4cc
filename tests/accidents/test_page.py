"""The page of accidents says what the suite does."""

from __future__ import annotations

from tests.accidents.page import PAGE, text
from tests.accidents.unguarded import ACCIDENTS


def test_the_page_lists_every_accident_of_the_suite() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "write it anew: python -m tests.accidents.page"
    assert len({accident.test for accident in ACCIDENTS}) == len(ACCIDENTS) > 20
