"""`neve notify test`: sends to a real server of this machine, and says what is wrong when it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.loopback_servers import LOOPBACK, Answer, hook_server, mail_server

Run = Callable[..., Any]


def describe(port: int, *, allowed: str = LOOPBACK) -> None:
    Path("neve.yaml").write_text(
        f"""
notifications:
  allow-private-addresses: [{allowed}]
  channels:
    ops: {{kind: webhook, url: "http://{LOOPBACK}:{port}/${{env:HOOK_TOKEN}}"}}
    mail: {{kind: email, host: {LOOPBACK}, port: {port}, tls: none, from: neve@lake.test, to: [ops@lake.test]}}
""",
        encoding="utf-8",
    )


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "T0K3N")


def test_a_test_message_reaches_a_webhook(neve: Run) -> None:
    with hook_server() as server:
        describe(server.port)
        result = neve("notify", "test", "ops")
    assert (result.exit_code, result.stdout) == (0, "Sent a test message to ops (webhook).\n")
    (posted,) = server.posted
    body = json.loads(posted.body)
    assert (posted.path, body["subject"], body["text"], body["notices"]) == (
        "/T0K3N",
        "[Neve] Test message",
        "Channel ops works.\n",
        [],
    )


def test_a_test_message_reaches_a_mail_server(neve: Run) -> None:
    with mail_server() as server:
        describe(server.port)
        assert neve("notify", "test", "mail").exit_code == 0
    assert b"Subject: [Neve] Test message" in server.mails[0]


def test_json_has_the_id_that_the_server_got(neve: Run) -> None:
    with hook_server() as server:
        describe(server.port)
        result = neve("notify", "test", "ops", "--json")
    told = json.loads(result.stdout)
    assert (told["channel"], told["kind"], told["sent"]) == ("ops", "webhook", True)
    assert server.posted[0].headers["Neve-Delivery"] == told["id"]


def test_a_server_that_refuses_is_an_error_without_the_token(neve: Run) -> None:
    with hook_server(Answer(403)) as server:
        describe(server.port)
        result = neve("notify", "test", "ops", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["message"]) == (
        "notification-failed",
        f"Cannot send to {LOOPBACK}: it answered with status 403",
    )
    assert "T0K3N" not in result.output


def test_a_private_address_is_refused_with_the_setting_that_allows_it(neve: Run) -> None:
    describe(25, allowed="")
    result = neve("notify", "test", "mail")
    assert result.exit_code == 1
    assert "it has a loopback address" in result.stderr
    assert "notifications.allow-private-addresses" in result.stderr


def test_a_secret_that_is_not_there_is_named(neve: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_TOKEN")
    describe(1)
    result = neve("notify", "test", "ops")
    assert result.exit_code == 2
    assert "Cannot resolve ${env:HOOK_TOKEN}: the variable is not set" in result.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [("opps", "'opps' in the settings, did you mean ops?"), ("zzz", "'zzz' in the settings, there are mail, ops")],
)
def test_an_unknown_channel_is_refused_with_those_that_there_are(neve: Run, name: str, message: str) -> None:
    describe(1)
    result = neve("notify", "test", name)
    assert result.exit_code == 2
    assert f"Cannot find channel {message}" in result.stderr


def test_without_channels_the_hint_says_where_to_describe_one(neve: Run) -> None:
    result = neve("notify", "test", "ops")
    assert result.exit_code == 2
    assert "the settings have no channels" in result.stderr
    assert "notifications.channels" in result.stderr
