from __future__ import annotations

import pytest

from neve.table.properties import files_may_be_removed, is_true


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("false", False),
        ("no", False),
        ("0", False),
        ("yes", False),
        ("true ", False),
        ("", False),
    ],
)
def test_a_boolean_is_read_as_icebergs_java_reads_it(value: str, *, expected: bool) -> None:
    assert is_true({"key": value}, "key", default=not expected) is expected
    assert files_may_be_removed({"gc.enabled": value}) is expected


def test_an_absent_boolean_has_its_default() -> None:
    assert [is_true({}, "key", default=default) for default in (True, False)] == [True, False]
    assert files_may_be_removed({})
