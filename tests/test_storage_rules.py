"""Which rules of a bucket are told to those whose table they would take files from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from neve.errors import AccessDeniedError
from neve.storage.rules import deleting_rules
from neve.storage.s3 import S3Files

AFTER = {"Expiration": {"Days": 30}}


def told(monkeypatch: pytest.MonkeyPatch, location: str = "s3a://lake/db/t/", **rule: Any) -> tuple[str, ...]:
    monkeypatch.setattr(S3Files, "__init__", lambda *_: None)
    found = [{"ID": "old", "Status": "Enabled"} | rule]
    monkeypatch.setattr(S3Files, "lifecycle", lambda *_: ("lake", "db/t/", found))
    return deleting_rules({}, location)


SENTENCE = "rule old of bucket lake deletes files {}, those included that are in use"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"Filter": {"Prefix": "db/"}} | AFTER, "under db/ after 30 days"),
        ({"Filter": {"Prefix": "db/t/data/"}} | AFTER, "under db/t/data/ after 30 days"),
        ({"Filter": {"And": {"Prefix": "d", "Tags": []}}} | AFTER, "under d after 30 days"),
        ({"Filter": {"Tag": {"Key": "k", "Value": "v"}}} | AFTER, "of the whole bucket after 30 days"),
        ({"Prefix": ""} | AFTER, "of the whole bucket after 30 days"),
        ({"Prefix": "db/t", "Expiration": {"Days": 1}}, "under db/t after 1 day"),
        ({"Prefix": "db/t", "Expiration": {"Date": datetime(2031, 2, 3, tzinfo=UTC)}}, "under db/t on 2031-02-03"),
    ],
)
def test_a_rule_that_deletes_at_the_place_is_told(monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], words: str) -> None:
    assert told(monkeypatch, **rule) == (SENTENCE.format(words),)


@pytest.mark.parametrize(
    "rule",
    [
        {"Prefix": "db/", "Status": "Disabled"} | AFTER,
        {"Prefix": "db/t_2/"} | AFTER,
        {"Prefix": "db/t/.neve-trash/"} | AFTER,
        {"Prefix": "db/", "Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Prefix": "db/", "NoncurrentVersionExpiration": {"NoncurrentDays": 3}},
        {"Prefix": "db/", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}},
    ],
)
def test_a_rule_that_takes_nothing_from_the_table_is_not(monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any]) -> None:
    assert told(monkeypatch, **rule) == ()


def test_a_disk_has_no_rules_and_those_that_may_not_be_read_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "/wh/db/t", **AFTER) == ()

    def denied(*_: Any) -> Any:
        raise AccessDeniedError("Cannot look at the rules of bucket lake: access denied (x)")

    monkeypatch.setattr(S3Files, "lifecycle", denied)
    assert deleting_rules({}, "s3://lake/db/t") == ()
