"""Posting to a webhook over real connections: where it goes, what it accepts, and what it never does or says."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Sequence

import pytest

from neve.errors import NotificationError
from neve.service.notify.connection import Network
from neve.service.notify.webhook import MAX_WAIT_SECONDS, Endpoint, json_body, post, signature
from tests.builders.loopback_servers import LOOPBACK, Answer, Certificate, hook_server, speaking_server

HERE = Network(allowed=[LOOPBACK])
TOKEN = "T0K3N"


def names(*addresses: str) -> Network:
    """A network in which hooks.test is allowed to be private and has these addresses."""
    return Network(allowed=["hooks.test"], resolve=lambda *_: addresses)


def send(url: str, network: Network = HERE, *, seconds: float = 20, body: bytes = b"{}") -> None:
    post(Endpoint.parse(url, network), body, {"Content-Type": "application/json"}, network=network, seconds=seconds)


def test_the_body_arrives_with_its_headers_path_and_query() -> None:
    with hook_server() as server:
        send(f"http://{LOOPBACK}:{server.port}/a%2Fb/c?x=1&y=%20", body=b'{"a":1}')
    (posted,) = server.posted
    assert (posted.path, posted.body) == ("/a%2Fb/c?x=1&y=%20", b'{"a":1}')
    assert posted.headers["Host"] == f"{LOOPBACK}:{server.port}"
    assert posted.headers["Content-Type"] == "application/json"
    assert posted.headers["Connection"] == "close"


def test_http_is_refused_to_hosts_that_are_not_listed() -> None:
    with pytest.raises(NotificationError, match=r"^Cannot send to hooks\.test: http is not encrypted$") as caught:
        Endpoint.parse(f"http://hooks.test/{TOKEN}", Network())
    assert str(caught.value.hint).startswith("Use https.")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"ftp://hooks.test/{TOKEN}", "it is neither https nor http"),
        (f"file:///{TOKEN}", "it is neither https nor http"),
        (f"https:///{TOKEN}", "it has no valid host and port"),
        (f"https://hooks.test:0/{TOKEN}", "it has no valid host and port"),
        (f"https://hooks.test:99999/{TOKEN}", "it is not valid"),
        (f"https://user@hooks.test/{TOKEN}", "it contains a user or a password"),
        (f"https://hooks.test\\@evil.test/{TOKEN}", "it contains a space, a backslash or a control character"),
        (f"https://hooks.test/{TOKEN}\r\nX-Evil: 1", "it contains a space, a backslash or a control character"),
        (f"https://[::1/{TOKEN}", "it is not valid"),
        ("", "it is neither https nor http"),
    ],
)
def test_a_url_that_other_programs_could_read_differently_is_refused_and_not_shown(url: str, reason: str) -> None:
    with pytest.raises(NotificationError) as caught:
        Endpoint.parse(url, Network(allowed=["hooks.test"]))
    assert str(caught.value) == f"Cannot use the URL of this channel: {reason}"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]"])
def test_this_machine_is_refused_unless_it_is_listed_and_nothing_connects(host: str) -> None:
    with hook_server() as server, pytest.raises(NotificationError, match="it has a loopback address"):
        send(f"https://{host}:{server.port}/", Network())
    assert server.posted == []


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1"])
def test_an_address_in_another_notation_is_refused_before_it_is_resolved(host: str) -> None:
    def resolve(*_: object) -> Sequence[str]:
        raise AssertionError("resolved")

    with pytest.raises(NotificationError, match="write the address as four decimal numbers"):
        send(f"https://{host}/", Network(resolve=resolve))


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "10.0.0.1", "fe80::1%lo"])
def test_a_name_that_leads_inside_is_refused(address: str) -> None:
    with pytest.raises(NotificationError, match=r"^Cannot send to hooks\.test: it has a [a-z-]+ address$"):
        send("https://hooks.test/", Network(resolve=lambda *_: [address]))


def test_a_name_is_resolved_once_and_the_checked_address_is_the_one_connected_to() -> None:
    answers = iter([[LOOPBACK], ["169.254.169.254"], ["10.0.0.1"]])
    network = Network(allowed=["hooks.test"], resolve=lambda *_: next(answers))
    with hook_server() as server:
        send(f"http://hooks.test:{server.port}/", network)
    assert len(server.posted) == 1
    assert server.posted[0].headers["Host"] == f"hooks.test:{server.port}"
    assert next(answers) == ["169.254.169.254"]


def test_a_name_that_first_looked_public_is_refused_when_it_has_moved_inside() -> None:
    answers = iter([["8.8.8.8"], [LOOPBACK]])
    network = Network(resolve=lambda *_: next(answers))
    endpoint = Endpoint.parse("https://hooks.test/", network)
    assert network.resolve("hooks.test", 443) == ["8.8.8.8"]
    with pytest.raises(NotificationError, match="it has a loopback address"):
        post(endpoint, b"", {}, network=network, seconds=20)


def test_the_next_address_is_tried_if_the_first_does_not_answer() -> None:
    with hook_server() as server:
        send(f"http://hooks.test:{server.port}/", names("127.0.0.9", LOOPBACK))
    assert len(server.posted) == 1


def test_one_address_inside_among_several_refuses_the_name() -> None:
    with hook_server() as server, pytest.raises(NotificationError, match="it has a metadata address"):
        send(f"http://hooks.test:{server.port}/", names(LOOPBACK, "169.254.169.254"))
    assert server.posted == []


def test_a_host_that_nobody_listens_on_is_named_with_its_port() -> None:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
        with pytest.raises(NotificationError) as caught:
            send(f"http://{LOOPBACK}:{port}/{TOKEN}")
    assert str(caught.value) == f"Cannot connect to {LOOPBACK}:{port}: connection refused"


@pytest.mark.parametrize("error", [socket.gaierror(-2, "secret text"), UnicodeError("secret text")])
def test_a_name_that_cannot_be_resolved_is_named_without_the_resolvers_text(error: Exception) -> None:
    def resolve(*_: object) -> Sequence[str]:
        raise error

    with pytest.raises(NotificationError, match=r"^Cannot send to hooks\.test: the name cannot be resolved$"):
        send("https://hooks.test/", Network(resolve=resolve))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with hook_server() as inside, hook_server(Answer(status, {"Location": inside.url})) as server:
        with pytest.raises(NotificationError) as caught:
            send(server.url)
        assert inside.posted == []
    assert str(caught.value) == f"Cannot send to {LOOPBACK}: it answered with status {status} (redirects are not followed)"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_each_status_of_success_is_accepted(status: int) -> None:
    with hook_server(Answer(status, body=b"")) as server:
        send(server.url)
    assert len(server.posted) == 1


@pytest.mark.parametrize(
    ("status", "only_this_message"),
    [(400, True), (413, True), (422, True), (401, False), (404, False), (429, False), (503, False)],
)
def test_a_refusal_says_the_status_alone_and_whether_other_messages_may_pass(status: int, only_this_message: bool) -> None:
    with hook_server(Answer(status, body=b"secret text of the server")) as server, pytest.raises(NotificationError) as caught:
        send(f"http://{LOOPBACK}:{server.port}/{TOKEN}")
    assert str(caught.value) == f"Cannot send to {LOOPBACK}: it answered with status {status}"
    assert caught.value.only_this_message is only_this_message
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120), (" 7 ", 7), ("999999", MAX_WAIT_SECONDS), ("-5", 0), ("soon", 0), ("1e9", 0), ("²", 0), ("9" * 30, 0)],
)
def test_the_wait_that_a_server_asks_for_is_bounded(header: str, seconds: float) -> None:
    with hook_server(Answer(429, {"Retry-After": header})) as server, pytest.raises(NotificationError) as caught:
        send(server.url)
    assert caught.value.wait_seconds == seconds


def test_an_endless_answer_is_not_read() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with speaking_server(speak) as (port, gone):
        send(f"http://{LOOPBACK}:{port}/")
        assert gone.wait(60)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 500, b"y" * 200_000, b"\r\n"]
)
def test_an_answer_that_is_too_large_or_no_http_is_an_error(answer: bytes) -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with (
        speaking_server(speak) as (port, _),
        pytest.raises(NotificationError, match=rf"^Cannot send to {LOOPBACK}: [A-Za-z ]+$"),
    ):
        send(f"http://{LOOPBACK}:{port}/")


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 ", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 "])
def test_a_server_that_sends_one_byte_at_a_time_is_left_at_the_deadline(beginning: bytes) -> None:
    def speak(connection: socket.socket, gone: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(beginning)
        while not gone.wait(0.02):
            connection.sendall(b"x")

    with speaking_server(speak) as (port, gone):
        with pytest.raises(NotificationError, match=rf"^Cannot send to {LOOPBACK}: no answer in time$"):
            send(f"http://{LOOPBACK}:{port}/", seconds=0.3)
        assert gone.wait(60)


def test_a_status_of_success_counts_also_if_the_rest_of_the_answer_never_comes() -> None:
    def speak(connection: socket.socket, gone: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not gone.wait(0.02):
            connection.sendall(b"x")

    with speaking_server(speak) as (port, gone):
        send(f"http://{LOOPBACK}:{port}/", seconds=2)
        assert gone.wait(60)


def test_a_server_that_says_nothing_is_left_at_the_deadline() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        while connection.recv(65536):
            pass

    with speaking_server(speak) as (port, gone):
        with pytest.raises(NotificationError, match="no answer in time"):
            send(f"http://{LOOPBACK}:{port}/", seconds=0.2)
        assert gone.wait(60)


def test_a_server_that_hangs_up_is_not_called_slow() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)

    with speaking_server(speak) as (port, _), pytest.raises(NotificationError, match="Cannot send to") as caught:
        send(f"http://{LOOPBACK}:{port}/")
    assert "in time" not in str(caught.value)


def test_https_checks_the_certificate_against_the_name_and_not_the_address(certificate: Certificate) -> None:
    network = Network(allowed=["hooks.test"], resolve=lambda *_: [LOOPBACK], tls=certificate.trusted)
    with hook_server(tls=certificate.server()) as server:
        send(f"https://hooks.test:{server.port}/x", network)
    assert [posted.path for posted in server.posted] == ["/x"]


def test_a_certificate_for_another_name_is_refused(certificate: Certificate) -> None:
    network = Network(allowed=["other.test"], resolve=lambda *_: [LOOPBACK], tls=certificate.trusted)
    with (
        hook_server(tls=certificate.server()) as server,
        pytest.raises(NotificationError, match="the certificate is not valid"),
    ):
        send(f"https://other.test:{server.port}/{TOKEN}", network)
    assert server.posted == []


def test_a_certificate_that_nobody_trusts_is_refused(certificate: Certificate) -> None:
    with (
        hook_server(tls=certificate.server()) as server,
        pytest.raises(NotificationError, match="the certificate is not valid"),
    ):
        send(f"https://hooks.test:{server.port}/", names(LOOPBACK))
    assert server.posted == []


def test_a_server_without_tls_fails_the_handshake() -> None:
    with hook_server() as server, pytest.raises(NotificationError, match="the TLS handshake failed"):
        send(f"https://hooks.test:{server.port}/", names(LOOPBACK))


def test_the_deadline_holds_during_the_tls_handshake() -> None:
    def speak(connection: socket.socket, _: threading.Event) -> None:
        while connection.recv(65536):
            pass

    with speaking_server(speak) as (port, _), pytest.raises(NotificationError, match="no answer in time"):
        send(f"https://hooks.test:{port}/", names(LOOPBACK), seconds=0.2)


def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with hook_server() as proxy, hook_server() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        send(server.url)
        assert (len(proxy.posted), len(server.posted)) == (0, 1)


def test_a_receiver_can_check_the_signature_with_the_secret() -> None:
    body = json_body({"text": "ü"})
    header = signature("s3cret", body, 1_700_000_000_999)
    expected = hmac.new(b"s3cret", b"1700000000." + body, hashlib.sha256).hexdigest()
    assert header == f"t=1700000000,v1={expected}"


def test_the_body_is_json_in_utf8_also_with_halves_of_characters() -> None:
    assert json.loads(json_body({"a": "ü\ud800"})) == {"a": "ü?"}


def test_a_name_with_other_letters_is_sent_in_ascii() -> None:
    assert Endpoint.parse("https://büro.test/ä?q=ö", Network()) == Endpoint(
        "https", "xn--bro-hoa.test", 443, "/%C3%A4?q=%C3%B6"
    )
