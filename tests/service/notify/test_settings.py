"""The settings of notifications: what is refused, and why."""

from __future__ import annotations

from typing import Any

import pytest

from neve.errors import SettingsError
from neve.settings import load_settings
from neve.settings.notifications import NotificationSettings

WEBHOOK = {"kind": "webhook", "url": "https://ops.test/x"}
MAIL = {"kind": "email", "host": "mail.test", "from": "neve@lake.test", "to": ["ops@lake.test"]}


def refusal(**values: Any) -> str:
    """Why the settings refuse notifications, as a person reads it."""
    with pytest.raises(SettingsError) as caught:
        load_settings(flags={"notifications": values}, environ={})
    return str(caught.value)


def channel(**values: Any) -> str:
    return refusal(channels={"ops": values})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"kind": "webhook"}, "url: is needed by a channel of kind webhook"),
        ({**MAIL, "to": []}, "to: is needed by a channel of kind email"),
        ({**WEBHOOK, "host": "x"}, "host: means nothing to a channel of kind webhook, only to email"),
        ({**MAIL, "secret": "${env:A}"}, "secret: means nothing to a channel of kind email, only to webhook"),
        ({"kind": "slack", "url": "https://hooks.slack.com/T0K3N"}, "url: of a channel of kind slack is a secret"),
        ({**WEBHOOK, "secret": "s3cret"}, "secret: is a secret and must not be written down"),
        ({**MAIL, "user": "neve"}, "user: needs password beside it"),
        ({**MAIL, "password": "${env:A}"}, "password: needs user beside it"),
        ({**MAIL, "user": "a", "password": "${env:A}", "tls": "none"}, "password: cannot be sent over a connection without"),
        ({**MAIL, "from": "neve@lake.test\nBcc: x@y.test"}, "is not an e-mail address"),
        ({**MAIL, "to": ["a@b.test, c@d.test"]}, "is not an e-mail address"),
        ({**MAIL, "host": "mail.test/x"}, "is not a host"),
        ({**MAIL, "timeout": "2 min"}, "timeout: should be less than or equal to 60"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(values: dict[str, Any], reason: str) -> None:
    found = channel(**values)
    assert reason in found
    assert "T0K3N" not in found
    assert "s3cret" not in found


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"channels": {"ops": WEBHOOK}, "default": ["opps"]}, "names no channel of these settings, did you mean ops?"),
        ({"digest-time": "25:00"}, "is not a time of day; write HH:MM"),
        ({"time-zone": "Mars/Olympus"}, "is not a time zone"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_other_settings_that_cannot_work_are_refused(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**values)


@pytest.mark.parametrize(("written", "time"), [("8:05", "08:05"), ("18:30", "18:30"), (18 * 60 + 30, "18:30"), (0, "00:00")])
def test_a_time_of_day_is_read_also_as_yaml_reads_it(written: object, time: str) -> None:
    assert NotificationSettings.model_validate({"digest-time": written}).digest_time == time


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_the_port_follows_the_encryption(tls: str, port: int) -> None:
    found = NotificationSettings.model_validate({"channels": {"mail": {**MAIL, "tls": tls}}})
    assert found.channels["mail"].smtp_port == port
