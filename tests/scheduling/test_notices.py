"""What people are notified of is bounded, and can be stored."""

from __future__ import annotations

import pytest

from neve.scheduling.notice import CONTENT, MAX_TEXT, DayDigest, JobFailure, NoticeContent, TablePause, TableRecovery
from tests.builders.scheduling import NOW

EXAMPLES: list[NoticeContent] = [
    JobFailure(table="t", operation="compact", reason="x" * 5000, at_ms=NOW),
    TablePause(table="t", operation="compact", reason="r", failures=3, at_ms=NOW, until_ms=NOW + 1),
    TableRecovery(table="t", operation="compact", failures=3, at_ms=NOW),
    DayDigest(owner="sales", day="2026-09-21", from_ms=NOW - 1, until_ms=NOW),
]


@pytest.mark.parametrize("content", EXAMPLES, ids=lambda content: type(content).__name__)
def test_a_notice_survives_being_stored(content: NoticeContent) -> None:
    kind = next(kind for kind, known in CONTENT.items() if known is type(content))
    assert CONTENT[kind].model_validate(content.model_dump(mode="json")) == content


def test_every_kind_has_a_content_of_its_own() -> None:
    assert {type(one) for one in EXAMPLES} == set(CONTENT.values())


def test_long_texts_are_cut() -> None:
    (failure, *_) = EXAMPLES
    assert isinstance(failure, JobFailure)
    assert (len(failure.reason), failure.reason[-1]) == (MAX_TEXT, "…")


def test_a_day_on_which_nothing_happened_is_empty() -> None:
    empty = DayDigest(owner="sales", day="2026-09-21", from_ms=NOW - 1, until_ms=NOW)
    assert empty.is_empty
    for field in ("failed_count", "paused_count", "waiting_count"):
        assert not empty.model_copy(update={field: 1}).is_empty
