"""Sending what is due from a real store: merging, retries, giving up, channels that fail, and restarts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neve.errors import NotificationError, SettingsError
from neve.scheduling.notice import JobFailure, NoticeKind, TablePause
from neve.service.notify.channels import Channel, Delivery, open_channels
from neve.service.notify.notifier import Notifier, wait_before
from neve.settings.notifications import NotificationSettings
from neve.state import StateStore
from neve.state.notices import HOLD_MS, StoredNotice
from tests.builders.jobs import DAY, MINUTE, NOW
from tests.builders.loopback_servers import LOOPBACK, Answer, MailServerLog, hook_server, mail_server

OFF = NotificationError("Cannot send to hooks.test: it answered with status 503")
BAD = NotificationError("Cannot send to hooks.test: it answered with status 400", only_this_message=True)


@dataclass
class FakeChannel:
    """Keeps what is sent, and fails as told."""

    got: list[Delivery] = field(default_factory=list)
    fails_with: Exception | None = None
    refuses: str = ""
    """A text for which messages are refused."""
    tries: int = 0

    def send(self, delivery: Delivery, now_ms: int) -> None:  # noqa: ARG002
        self.tries += 1
        if self.fails_with is not None:
            raise self.fails_with
        if self.refuses and self.refuses in delivery.model_dump_json():
            raise BAD
        self.got.append(delivery)

    @property
    def notices(self) -> list[list[str]]:
        """The ids of the notices of each message."""
        return [[notice.id for notice in delivery.notices] for delivery in self.got]

    @property
    def subjects(self) -> list[str]:
        return [delivery.message.subject for delivery in self.got]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def settings(**values: object) -> NotificationSettings:
    channels = {name: {"kind": "webhook", "url": f"https://{name}.test"} for name in ("ops", "sales")}
    return NotificationSettings.model_validate({"channels": channels, "default": ["ops"], **values})


def notifier(
    store: StateStore,
    channels: Mapping[str, Channel],
    routes: Mapping[str, Sequence[str]] | None = None,
    **values: Any,
) -> Notifier:
    return Notifier(store.notices, channels, settings(**values), routes=lambda: routes or {})


def add(store: StateStore, *names: str, kind: str = "failure", owner: str = "", now_ms: int = NOW) -> None:
    for name in names:
        failed = JobFailure(table=f"lake.db.{name}", operation="compact", reason="status 503", at_ms=NOW)
        paused = TablePause(table=f"lake.db.{name}", operation="compact", reason="x", at_ms=NOW, failures=5, until_ms=NOW + DAY)
        content = (paused if kind == NoticeKind.PAUSE else failed).model_dump(mode="json")
        assert store.notices.add(name, kind=kind, owner=owner, content=content, now_ms=now_ms)


def stored(store: StateStore, name: str) -> StoredNotice:
    return {notice.notice_id: notice for notice in store.notices.notices(limit=1000)}[name]


def test_a_single_notice_is_a_message_of_its_own_and_is_sent_once(store: StateStore) -> None:
    add(store, "a")
    ops = FakeChannel()
    sender = notifier(store, {"ops": ops})
    assert sender.send_due(NOW) == 1
    assert sender.send_due(NOW + DAY) == 0
    assert (ops.subjects, ops.got[0].id) == (["[Neve] compact failed on lake.db.a"], "a")
    assert stored(store, "a").sent


def test_teams_get_their_own_channels_and_others_the_default(store: StateStore) -> None:
    add(store, "a", owner="sales")
    add(store, "b", owner="unknown-team")
    add(store, "c", owner="quiet-team")
    ops, sales = FakeChannel(), FakeChannel()
    routes = {"sales": ["sales"], "quiet-team": []}
    assert notifier(store, {"ops": ops, "sales": sales}, routes).send_due(NOW) == 3
    assert (ops.notices, sales.notices) == ([["b", "c"]], [["a"]])


def test_a_channel_that_the_settings_lack_is_reported_once_and_the_default_takes_over(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    ops = FakeChannel()
    sender = notifier(store, {"ops": ops}, {"sales": ["gone"]}, at_most_every_seconds=0)
    for name in ("a", "b"):
        add(store, name, owner="sales")
        sender.send_due(NOW)
    assert ops.notices == [["a"], ["b"]]
    assert [m for m in caplog.messages if "gone" in m] == ["team sales names channel gone, which the settings do not have"]


def test_a_notice_without_any_channel_counts_as_sent(store: StateStore) -> None:
    add(store, "a")
    assert notifier(store, {}, default=[]).send_due(NOW) == 1
    assert stored(store, "a").sent


def test_many_notices_of_one_kind_are_one_message_for_each_kind(store: StateStore) -> None:
    names = [f"t{number:03}" for number in range(60)]
    add(store, *names)
    add(store, "p", kind="pause")
    ops = FakeChannel()
    assert notifier(store, {"ops": ops}).send_due(NOW) == 61
    assert ops.subjects == ["[Neve] Maintenance failed on 60 tables", "[Neve] compact is paused on lake.db.p for 24 h"]
    assert ops.notices == [names, ["p"]]
    assert ops.got[0].id == "t000-and-59"


def test_what_happens_within_the_shortest_time_is_sent_as_one_message_after_it(store: StateStore) -> None:
    ops = FakeChannel()
    sender = notifier(store, {"ops": ops}, at_most_every_seconds="5 min")
    add(store, "a")
    sender.send_due(NOW)
    add(store, "b", "c")
    add(store, "p", kind="pause")
    assert sender.send_due(NOW + MINUTE) == 1
    assert ops.notices == [["a"], ["p"]]
    assert sender.send_due(NOW + MINUTE + HOLD_MS) == 0
    assert sender.send_due(NOW + MINUTE + 2 * HOLD_MS) == 2
    assert ops.notices == [["a"], ["p"], ["b", "c"]]


def test_a_clock_that_was_set_back_holds_no_message(store: StateStore) -> None:
    ops = FakeChannel()
    sender = notifier(store, {"ops": ops})
    add(store, "a")
    sender.send_due(NOW)
    add(store, "b", now_ms=NOW - DAY)
    assert sender.send_due(NOW - DAY) == 1


def test_a_failure_is_tried_again_later_and_later_until_it_is_given_up(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, "a")
    ops = FakeChannel(fails_with=OFF)
    sender = notifier(store, {"ops": ops}, attempts=3)
    sender.send_due(NOW)
    assert (stored(store, "a").attempts, stored(store, "a").next_ms) == (1, NOW + MINUTE)
    assert sender.send_due(NOW + MINUTE - 1) == 0
    sender.send_due(NOW + MINUTE)
    assert (stored(store, "a").attempts, stored(store, "a").next_ms) == (2, NOW + 3 * MINUTE)
    sender.send_due(NOW + 3 * MINUTE)
    given_up = stored(store, "a")
    assert (given_up.attempts, given_up.next_ms, given_up.sent) == (3, None, False)
    assert given_up.trouble == f"ops: {OFF}"
    assert sender.send_due(NOW + DAY) == 0
    assert ops.tries == 3
    assert caplog.messages[-1] == f"gave up notice a (failure) after 3 attempts: ops: {OFF}"


def test_waits_double_up_to_an_hour() -> None:
    assert [wait_before(attempts) // MINUTE for attempts in (1, 2, 3, 6, 7, 8, 100)] == [1, 2, 4, 32, 60, 60, 60]


def test_one_channel_that_fails_does_not_stop_another_which_gets_it_once(store: StateStore) -> None:
    add(store, "a", owner="both")
    ops, sales = FakeChannel(fails_with=OFF), FakeChannel()
    sender = notifier(store, {"ops": ops, "sales": sales}, {"both": ["ops", "sales"]})
    assert sender.send_due(NOW) == 0
    assert sales.notices == [["a"]]
    ops.fails_with = None
    assert sender.send_due(NOW + MINUTE) == 1
    assert (ops.notices, sales.notices) == ([["a"]], [["a"]])
    assert stored(store, "a").sent


def test_a_channel_with_a_fault_does_not_stop_another_and_its_text_is_not_kept(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, "a", owner="both")
    ops, sales = FakeChannel(fails_with=RuntimeError("https://hooks.test/T0K3N")), FakeChannel()
    notifier(store, {"ops": ops, "sales": sales}, {"both": ["ops", "sales"]}).send_due(NOW)
    assert sales.notices == [["a"]]
    assert stored(store, "a").trouble == "ops: RuntimeError"
    assert "T0K3N" not in caplog.text


def test_a_broken_channel_is_tried_and_logged_once_a_round(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    add(store, "a", "b")
    add(store, "p", kind="pause")
    ops = FakeChannel(fails_with=SettingsError("Cannot resolve ${env:HOOK}: the variable is not set"))
    notifier(store, {"ops": ops}).send_due(NOW)
    assert ops.tries == 1
    assert caplog.messages == [f"a message was not sent: ops: {ops.fails_with}"]
    assert {stored(store, name).attempts for name in ("a", "b", "p")} == {1}


def test_a_message_that_a_channel_refuses_does_not_hold_back_others(store: StateStore) -> None:
    for name in ("digest-bad", "digest-good"):
        store.notices.add(name, kind="digest", owner="", content={"of": name}, now_ms=NOW)
    add(store, "a")
    ops = FakeChannel(refuses="digest-bad")
    sender = notifier(store, {"ops": ops}, attempts=2)
    assert sender.send_due(NOW) == 2
    assert ops.notices == [["digest-good"], ["a"]]
    add(store, "p", kind="pause")
    assert sender.send_due(NOW + MINUTE) == 1
    assert stored(store, "digest-bad").next_ms is None


def test_retries_are_sent_also_while_new_notices_keep_coming(store: StateStore) -> None:
    ops = FakeChannel(fails_with=OFF)
    sender = notifier(store, {"ops": ops}, at_most_every_seconds="1 min")
    add(store, "old")
    sender.send_due(NOW)
    ops.fails_with = None
    add(store, "new", now_ms=NOW + MINUTE)
    assert sender.send_due(NOW + MINUTE) == 2
    assert ops.notices == [["new"], ["old"]]


def test_a_channel_that_asks_to_wait_is_left_alone_for_so_long(store: StateStore) -> None:
    ops = FakeChannel(fails_with=NotificationError("Cannot send to hooks.test: status 429", wait_seconds=600))
    sender = notifier(store, {"ops": ops})
    add(store, "a")
    sender.send_due(NOW)
    assert stored(store, "a").next_ms == NOW + 10 * MINUTE
    ops.fails_with = None
    add(store, "b", now_ms=NOW + MINUTE)
    sender.send_due(NOW + MINUTE)
    assert ops.tries == 1
    assert stored(store, "b").attempts == 0
    assert sender.send_due(NOW + 10 * MINUTE) == 2
    assert sorted(ops.notices) == [["a"], ["b"]]


def test_a_process_that_died_after_sending_sends_again_with_the_same_id(store: StateStore) -> None:
    add(store, "a", "b")
    before, after = FakeChannel(), FakeChannel()

    class Dying:
        def __getattr__(self, name: str) -> object:
            if name == "sent":
                raise SystemExit
            return getattr(store.notices, name)

    dying = Notifier(Dying(), {"ops": before}, settings(), routes=dict)  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        dying.send_due(NOW)
    assert notifier(store, {"ops": after}).send_due(NOW + HOLD_MS - 1) == 0
    assert notifier(store, {"ops": after}).send_due(NOW + HOLD_MS) == 2
    assert [delivery.id for delivery in before.got] == [delivery.id for delivery in after.got] == ["a-and-1"]


def test_two_processes_share_the_notices(store: StateStore) -> None:
    add(store, "a", "b")
    first, second = FakeChannel(), FakeChannel()
    assert notifier(store, {"ops": first}).send_due(NOW) + notifier(store, {"ops": second}).send_due(NOW) == 2
    assert (first.notices, second.notices) == ([["a", "b"]], [])


@pytest.mark.parametrize(("kind", "content"), [("failure", {"of": "later"}), ("unheard-of", {})])
def test_a_notice_of_another_release_is_sent_as_what_it_is(store: StateStore, kind: str, content: dict[str, str]) -> None:
    store.notices.add("odd", kind=kind, owner="", content=content, now_ms=NOW)
    add(store, "a", "b")
    ops = FakeChannel()
    assert notifier(store, {"ops": ops}).send_due(NOW) == 3
    assert f"[Neve] A notice of kind {kind}" in ops.subjects


def test_over_real_servers_one_that_fails_does_not_stop_the_others(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    add(store, "a", "b")
    with hook_server(Answer(503)) as broken, hook_server() as hook, mail_server(MailServerLog()) as mail:
        channels = {
            "broken": {"kind": "webhook", "url": f"http://{LOOPBACK}:{broken.port}/${{env:TOKEN}}"},
            "hook": {"kind": "webhook", "url": hook.url, "secret": "${env:SIGNING}"},
            "slack": {"kind": "slack", "url": f"http://{LOOPBACK}:{hook.port}/${{env:TOKEN}}"},
            "mail": {
                "kind": "email",
                "host": LOOPBACK,
                "port": mail.port,
                "tls": "none",
                "from": "n@lake.test",
                "to": ["o@lake.test"],
            },
        }
        wanted = settings(channels=channels, default=list(channels), **{"allow-private-addresses": [LOOPBACK]})
        environ = {"TOKEN": "T0K3N", "SIGNING": "s3cret"}
        sender = Notifier(store.notices, open_channels(wanted, environ=environ), wanted, routes=dict)
        assert sender.send_due(NOW) == 0
        broken.answer = Answer(204, body=b"")
        assert sender.send_due(NOW + MINUTE) == 2
    signed, slack = hook.posted
    assert (len(hook.posted), len(mail.mails), len(broken.posted)) == (2, 1, 2)
    assert broken.posted[0].body == broken.posted[1].body
    body = json.loads(signed.body)
    assert (body["format_version"], body["id"], body["level"]) == (1, "a-and-1", "problem")
    assert [notice["id"] for notice in body["notices"]] == ["a", "b"]
    assert body["notices"][0]["content"]["table"] == "lake.db.a"
    assert signed.headers["Neve-Delivery"] == "a-and-1"
    assert signed.headers["Neve-Signature"].startswith(f"t={NOW // 1000},v1=")
    assert signed.headers["User-Agent"].startswith("neve/")
    assert (slack.path, json.loads(slack.body)["text"]) == ("/T0K3N", "[Neve] Maintenance failed on 2 tables")
    assert "Neve-Signature" not in slack.headers
    assert "T0K3N" not in caplog.text
    assert "s3cret" not in caplog.text


def test_a_secret_that_was_replaced_is_used_for_the_next_message(store: StateStore) -> None:
    environ = {"TOKEN": "old"}
    with hook_server() as hook:
        channels = {"slack": {"kind": "slack", "url": f"http://{LOOPBACK}:{hook.port}/${{env:TOKEN}}"}}
        wanted = settings(channels=channels, default=["slack"], **{"allow-private-addresses": [LOOPBACK], "at-most-every": 0})
        sender = Notifier(store.notices, open_channels(wanted, environ=environ), wanted, routes=dict)
        for name in ("old", "new"):
            environ["TOKEN"] = name
            add(store, name)
            sender.send_due(NOW)
    assert [posted.path for posted in hook.posted] == ["/old", "/new"]
