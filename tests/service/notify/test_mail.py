"""Mail over a real SMTP server: encryption, logins, refusals, headers and encodings."""

from __future__ import annotations

import email.policy
import logging
import socket
import threading
from email.message import EmailMessage
from email.parser import BytesParser

import pytest

from neve.errors import NotificationError
from neve.scheduling.notice import JobFailure
from neve.service.notify.connection import Network
from neve.service.notify.mail import MailServer, build_mail, mail_html, mail_text, send_mail
from neve.service.notify.messages import Message, MessagePart, failure_message
from tests.builders.loopback_servers import LOOPBACK, Certificate, MailServerLog, mail_server, speaking_server

NOW_MS = 1_790_000_000_000
HERE = Network(allowed=[LOOPBACK])
PLAIN = Message(subject="[Neve] Test", level="info", parts=(MessagePart(lines=("It works.",)),))
SECRET = "p4ssw0rd"


def trusting(certificate: Certificate) -> Network:
    return Network(allowed=["hooks.test"], resolve=lambda *_: [LOOPBACK], tls=certificate.trusted)


def mail(message: Message = PLAIN, *to: str, sender: str = "neve@lake.test") -> EmailMessage:
    return build_mail(message, sender=sender, to=to or ("ops@lake.test",), message_id="n1", now_ms=NOW_MS)


def received(log: MailServerLog) -> EmailMessage:
    (raw,) = log.mails
    found = BytesParser(policy=email.policy.default).parsebytes(raw)
    assert isinstance(found, EmailMessage)
    return found


def text_of(found: EmailMessage, kind: str = "plain") -> str:
    part = found.get_body((kind,))
    assert part is not None
    return str(part.get_content())


def send(log: MailServerLog, content: EmailMessage | None = None, *, seconds: float = 20) -> None:
    send_mail(content or mail(), MailServer(LOOPBACK, log.port, "none"), network=HERE, seconds=seconds)


def test_a_mail_arrives_with_its_headers_its_text_and_its_page() -> None:
    with mail_server() as log:
        send(log, mail(PLAIN, "ops@lake.test", "Data Team <data@lake.test>", sender="Neve <neve@lake.test>"))
    found = received(log)
    assert (found["Subject"], found["From"]) == ("[Neve] Test", "Neve <neve@lake.test>")
    assert found["To"] == "ops@lake.test, Data Team <data@lake.test>"
    assert found["Date"] == "Mon, 21 Sep 2026 14:13:20 +0000"
    assert found["Auto-Submitted"] == "auto-generated"
    assert text_of(found).strip() == "It works."
    assert "<p>It works.</p>" in text_of(found, "html")
    envelope = [line.upper() for line in log.commands if line.upper().startswith(("MAIL", "RCPT"))]
    assert [line.split(":")[1].split(">")[0] for line in envelope] == ["<NEVE@LAKE.TEST", "<OPS@LAKE.TEST", "<DATA@LAKE.TEST"]


def test_each_attempt_has_the_same_message_id() -> None:
    other = build_mail(PLAIN, sender="neve@lake.test", to=["a@b.test"], message_id="n2", now_ms=NOW_MS)
    assert mail()["Message-ID"] == mail()["Message-ID"] != other["Message-ID"]
    assert str(mail()["Message-ID"]).endswith("@lake.test>")


def test_other_letters_survive_and_only_ascii_is_sent() -> None:
    message = Message(
        subject="[Neve] Größe 表 😀", level="good", parts=(MessagePart(title="Getan", lines=("ä " * 300, ".dot")),)
    )
    with mail_server() as log:
        send(log, mail(message))
    assert log.mails[0].isascii()
    assert max(map(len, log.mails[0].splitlines())) <= 998
    found = received(log)
    assert found["Subject"] == message.subject
    assert text_of(found).replace("\r\n", "\n") == mail_text(message)
    assert "ä ä" in text_of(found, "html")


def test_a_name_of_a_table_adds_no_header_and_no_markup() -> None:
    failure = JobFailure(
        table="lake.db.x\r\nBcc: evil@evil.test\r\n\r\nhello",
        operation="compact",
        reason="<script>\x00\u202e</script>",
        at_ms=1,
    )
    with mail_server() as log:
        send(log, mail(failure_message(failure)))
    found = received(log)
    assert found["Bcc"] is None
    assert "Bcc: evil@evil.test hello" in found["Subject"]
    assert sum(line.upper().startswith("RCPT") for line in log.commands) == 1
    page = text_of(found, "html")
    assert "&lt;script&gt;\\x00\\u202e&lt;/script&gt;" in page
    assert "<script>" not in page


def test_commands_are_shown_as_code_on_the_page() -> None:
    message = Message(subject="s", level="problem", parts=(MessagePart(lines=("Next: `neve runs show '<x>'`",)),))
    assert "Next: <code>neve runs show &#x27;&lt;x&gt;&#x27;</code>" in mail_html(message)


def test_starttls_encrypts_before_the_login(certificate: Certificate) -> None:
    with mail_server(MailServerLog(login=f"neve:{SECRET}"), starttls=certificate.server()) as log:
        server = MailServer("hooks.test", log.port, "starttls", "neve", SECRET)
        send_mail(mail(), server, network=trusting(certificate), seconds=20)
    assert log.encrypted == [True]
    words = [line.split()[0].upper() for line in log.commands]
    assert words.index("STARTTLS") < words.index("AUTH") < words.index("MAIL")


def test_tls_from_the_beginning(certificate: Certificate) -> None:
    with mail_server(MailServerLog(login=f"neve:{SECRET}"), tls=certificate.server()) as log:
        server = MailServer("hooks.test", log.port, "tls", "neve", SECRET)
        send_mail(mail(), server, network=trusting(certificate), seconds=20)
    assert log.encrypted == [True]


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_a_certificate_for_another_name_ends_it_before_anything_is_said(certificate: Certificate, tls: str) -> None:
    network = Network(allowed=["other.test"], resolve=lambda *_: [LOOPBACK], tls=certificate.trusted)
    contexts = {"starttls": {"starttls": certificate.server()}, "tls": {"tls": certificate.server()}}[tls]
    with (
        mail_server(MailServerLog(login="a:b"), **contexts) as log,
        pytest.raises(NotificationError, match=r"^Cannot send mail by other\.test: the certificate is not valid \("),
    ):
        send_mail(mail(), MailServer("other.test", log.port, tls, "a", "b"), network=network, seconds=20)
    assert log.mails == []
    assert not any(line.startswith("AUTH") for line in log.commands)


def test_a_server_without_starttls_gets_neither_login_nor_mail() -> None:
    with (
        mail_server(MailServerLog(login="a:b")) as log,
        pytest.raises(NotificationError, match="it does not support what the settings ask for: STARTTLS, or a login"),
    ):
        send_mail(mail(), MailServer(LOOPBACK, log.port, "starttls", "a", "b"), network=HERE, seconds=20)
    assert not any(line.startswith(("AUTH", "MAIL")) for line in log.commands)


def test_a_refused_login_shows_neither_the_password_nor_the_servers_text(certificate: Certificate) -> None:
    with mail_server(MailServerLog(login="neve:other"), tls=certificate.server()) as log:
        server = MailServer("hooks.test", log.port, "tls", "neve", SECRET)
        with pytest.raises(NotificationError) as caught:
            send_mail(mail(), server, network=trusting(certificate), seconds=20)
    assert str(caught.value) == "Cannot send mail by hooks.test: it refused the login (code 535)"
    assert caught.value.__cause__ is None


def test_some_refused_recipients_are_logged_as_a_number_and_the_others_get_it(caplog: pytest.LogCaptureFixture) -> None:
    with mail_server(MailServerLog(refused=frozenset({"gone@lake.test"}))) as log, caplog.at_level(logging.WARNING):
        send(log, mail(PLAIN, "ops@lake.test", "gone@lake.test"))
    assert len(log.mails) == 1
    assert caplog.messages == [f"{LOOPBACK} refused 1 of the recipients of a notification"]


def test_a_mail_that_nobody_gets_is_an_error() -> None:
    with (
        mail_server(MailServerLog(refused=frozenset({"ops@lake.test"}))) as log,
        pytest.raises(NotificationError, match=r"it refused all recipients$") as caught,
    ):
        send(log)
    assert not caught.value.only_this_message


@pytest.mark.parametrize(("answer", "only_this_message"), [("554 spam: secret text", True), ("451 later: secret text", False)])
def test_a_refused_content_says_the_code_alone(answer: str, only_this_message: bool) -> None:
    with mail_server(MailServerLog(data_answer=answer)) as log, pytest.raises(NotificationError) as caught:
        send(log)
    assert str(caught.value) == f"Cannot send mail by {LOOPBACK}: it answered with code {answer[:3]}"
    assert caught.value.only_this_message is only_this_message


def test_a_server_that_is_busy_says_so_by_its_code() -> None:
    with mail_server(MailServerLog(greeting="421 busy: secret text")) as log, pytest.raises(NotificationError) as caught:
        send(log)
    assert str(caught.value) == f"Cannot send mail by {LOOPBACK}: it answered with code 421"


def test_a_slow_mail_server_is_left_at_the_deadline() -> None:
    def speak(connection: socket.socket, gone: threading.Event) -> None:
        while not gone.wait(0.02):
            connection.sendall(b"2")

    with speaking_server(speak) as (port, gone):
        with pytest.raises(NotificationError, match=rf"^Cannot send mail by {LOOPBACK}: no answer in time$"):
            send(MailServerLog(port=port), seconds=0.3)
        assert gone.wait(60)


def test_a_server_that_hangs_up_is_named() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(b"220 hello\r\n")

    with speaking_server(speak) as (port, _), pytest.raises(NotificationError) as caught:
        send(MailServerLog(port=port))
    assert str(caught.value).startswith(f"Cannot send mail by {LOOPBACK}: ")
    assert "in time" not in str(caught.value)


def test_an_endless_line_of_a_mail_server_is_an_error() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        while True:
            connection.sendall(b"2" * 65536)

    with speaking_server(speak) as (port, _), pytest.raises(NotificationError, match=f"Cannot send mail by {LOOPBACK}"):
        send(MailServerLog(port=port))


def test_a_mail_server_inside_is_refused_unless_it_is_listed() -> None:
    with mail_server() as log, pytest.raises(NotificationError, match="it has a loopback address"):
        send_mail(mail(), MailServer(LOOPBACK, log.port, "none"), network=Network(), seconds=20)
    assert log.commands == []


def test_a_password_that_cannot_be_sent_is_not_repeated(certificate: Certificate) -> None:
    with mail_server(MailServerLog(login="a:b"), tls=certificate.server()) as log:
        server = MailServer("hooks.test", log.port, "tls", "neve", f"{SECRET}ü")
        with pytest.raises(NotificationError) as caught:
            send_mail(mail(), server, network=trusting(certificate), seconds=20)
    assert str(caught.value).startswith("Cannot send mail by hooks.test: ")
    assert SECRET not in str(caught.value)
