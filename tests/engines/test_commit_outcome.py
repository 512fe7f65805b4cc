"""What an exception of Iceberg's says of a commit: that it was never sent, certainly failed, or may have landed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neve.errors import CommitConflictError, CommitNotSentError, CommitUnknownError
from neve.spark.table.outcome import _sorted_out

ILLEGAL = "java.lang.IllegalArgumentException"
DEFINITE = "org.apache.iceberg.exceptions.ValidationException", "org.apache.iceberg.exceptions.CleanableFailure"
CHECK = ("org.apache.iceberg.relocated.com.google.common.base.Preconditions", "checkArgument")
APPLY = ("org.apache.iceberg.SnapshotProducer", "apply")
COMMIT = ("org.apache.iceberg.SnapshotProducer", "commit")
PARSER = ("org.apache.iceberg.util.JsonUtil", "getLong")
REST = ("org.apache.iceberg.rest.RESTTableOperations", "commit")


def java_class(name: str, *interfaces: str) -> Any:
    found = [SimpleNamespace(getName=lambda name=each: name) for each in interfaces]
    return SimpleNamespace(getName=lambda: name, getInterfaces=lambda: found, getSuperclass=lambda: None)


def raised(kind: Any, *frames: tuple[str, str]) -> Any:
    trace = [SimpleNamespace(getClassName=lambda c=c: c, getMethodName=lambda m=m: m) for c, m in frames]
    said = f"{kind.getName()}: Invalid REPLACE operation: 7 added records > 6 replaced records"
    return SimpleNamespace(getClass=lambda: kind, toString=lambda: said, getStackTrace=lambda: trace)


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        (raised(java_class(ILLEGAL), CHECK, APPLY, COMMIT), CommitNotSentError),
        (raised(java_class(ILLEGAL), CHECK, PARSER, REST, COMMIT), CommitUnknownError),  # the answer was lost on the way
        (raised(java_class("java.io.UncheckedIOException"), APPLY, COMMIT), CommitUnknownError),
        (raised(java_class(*DEFINITE)), CommitConflictError),
    ],
)  # fmt: skip
def test_a_refusal_before_anything_was_sent_is_not_in_doubt(java: Any, expected: type[Exception]) -> None:
    assert type(_sorted_out(java)) is expected


def test_such_a_refusal_names_the_cause() -> None:
    error = _sorted_out(raised(java_class(ILLEGAL), CHECK, APPLY, COMMIT))
    assert str(error).startswith(
        "Cannot commit: Iceberg refused the change before sending it: java.lang.IllegalArgumentException"
    )
    assert "lists a data file more than once" in str(getattr(error, "hint", ""))
