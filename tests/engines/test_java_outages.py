"""Errors of Iceberg's Java where a server is down: plain words instead of Java's, and retries that nobody has to read."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from neve.errors import CatalogUnreachableError
from neve.spark.table import outcome


class JavaError:
    """As much of a Java exception as is asked for."""

    _target_id = "o1"
    _gateway_client = SimpleNamespace(gateway_property=None)

    def __init__(self, text: str, cause: JavaError | None = None) -> None:
        self._text, self._cause = text, cause

    def toString(self) -> str:  # noqa: N802
        return self._text

    def getCause(self) -> JavaError | None:  # noqa: N802
        return self._cause

    def getClass(self) -> Any:  # noqa: N802
        name = self._text.partition(":")[0]
        return SimpleNamespace(getName=lambda: name, getInterfaces=list, getSuperclass=lambda: None)


DOWN = JavaError(
    "org.apache.iceberg.exceptions.RESTException: Error occurred while processing GET request",
    JavaError("org.apache.hc.HttpHostConnectException: Connect to http://127.0.0.1:9 [/127.0.0.1] failed: Connection refused"),
)


def failing() -> None:
    raise Py4JJavaError("An error occurred while calling o1.load.\n", DOWN)


def test_a_server_that_is_down_is_told_in_plain_words() -> None:
    with pytest.raises(CatalogUnreachableError) as caught, outcome.reading("load table lake.db.t"):
        failing()
    assert str(caught.value) == (
        "Cannot load table lake.db.t: the catalog or its storage did not answer at http://127.0.0.1:9 (connection refused)"
    )
    assert caught.value.hint == "Check the addresses under catalogs, and that the servers are up; `neve doctor` tests them."


def test_other_errors_keep_javas_words() -> None:
    odd = JavaError("java.lang.IllegalStateException: no such thing")
    with pytest.raises(CatalogUnreachableError, match=r"^Cannot load it: java\.lang\.IllegalStateException: no such thing$"), \
         outcome.reading("load it"):  # fmt: skip
        raise Py4JJavaError("An error occurred while calling o1.load.\n", odd)


def test_a_repeated_read_is_no_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(outcome, "_WAITS", (0.0, 0.0))
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CatalogUnreachableError):
        outcome.patiently("load table lake.db.t", failing)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
