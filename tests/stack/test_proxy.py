"""The fault proxy against a server made for the purpose: what passes must pass unchanged, what breaks must break so."""

# ruff: noqa: S310 - addresses of our own
from __future__ import annotations

import hashlib
import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stack.errors import StartFailedError
from stack.proxy import FaultProxy, answer, cut, cut_upload, delay, drop, drop_answer
from stack.proxy.control import Control

BLOB = bytes(range(256)) * 4096


class Origin(ThreadingHTTPServer):
    """Remembers what reached it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[tuple[str, int]] = set()
        super().__init__(("127.0.0.1", 0), OriginHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that are cut off on purpose are not news."""


class OriginHandler(BaseHTTPRequestHandler):
    server: Origin
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._note(b"")
        if self.path == "/chunked":
            self._chunked()
        elif self.path == "/until-close":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BLOB)
            self.close_connection = True
        elif self.path == "/hang-up":
            self.close_connection = True
        else:
            self._blob()

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def do_PUT(self) -> None:
        if self.path == "/refuse-early":
            self._note(b"")
            self._reply(403, b"no", close=True)
            return
        self._note(self._body())
        self._reply(200, hashlib.sha256(self.server.seen[-1][3]).hexdigest().encode())

    def _note(self, body: bytes) -> None:
        self.server.connections.add(self.client_address)
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _blob(self) -> None:
        body, status = BLOB, 200
        if "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            body, status = BLOB[int(first) : int(last) + 1], 206
        self._reply(status, body)

    def _chunked(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(BLOB), 100_000):
            piece = BLOB[start : start + 100_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nX-Trailer: yes\r\n\r\n")

    def _reply(self, status: int, body: bytes, *, close: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = self.close_connection or close

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def origin() -> Iterator[Origin]:
    server = Origin()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(origin: Origin) -> Iterator[FaultProxy]:
    with FaultProxy(origin.url) as front:
        yield front


@pytest.fixture
def connect(proxy: FaultProxy) -> Iterator[Callable[[], http.client.HTTPConnection]]:
    opened: list[http.client.HTTPConnection] = []

    def make() -> http.client.HTTPConnection:
        opened.append(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


Connect = Callable[[], http.client.HTTPConnection]


def get(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def put(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("PUT", path, body=body)
    response = connection.getresponse()
    return response.status, response.read()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited ten seconds in vain"
        time.sleep(0.005)


@pytest.mark.parametrize("path", ["/blob", "/chunked", "/until-close"])
def test_a_body_passes_unchanged_however_it_is_framed(connect: Connect, path: str) -> None:
    assert get(connect(), path) == (200, BLOB)


def test_the_host_header_arrives_as_the_client_sent_it(proxy: FaultProxy, origin: Origin, connect: Connect) -> None:
    get(connect(), "/blob", **{"X-Amz-Date": "20260101T000000Z"})
    headers = origin.seen[0][2]
    assert headers["Host"] == f"127.0.0.1:{proxy.port}"
    assert headers["X-Amz-Date"] == "20260101T000000Z"
    assert not {name.lower() for name in headers} & {"via", "forwarded", "x-forwarded-for", "x-forwarded-host"}


def test_a_range_passes(connect: Connect) -> None:
    assert get(connect(), "/blob", Range="bytes=10-19") == (206, BLOB[10:20])


def test_head_has_a_length_and_no_body_and_the_connection_goes_on(origin: Origin, connect: Connect) -> None:
    connection = connect()
    connection.request("HEAD", "/blob")
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Length"), response.read()) == (200, str(len(BLOB)), b"")
    assert get(connection, "/blob", Range="bytes=0-0") == (206, b"\x00")
    assert len(origin.connections) == 1


def test_one_client_connection_is_one_server_connection(origin: Origin, connect: Connect) -> None:
    connection = connect()
    for _ in range(20):
        assert get(connection, "/blob", Range="bytes=0-3") == (206, BLOB[:4])
    assert len(origin.connections) == 1


def test_uploads_pass_with_a_length_and_chunked(origin: Origin, connect: Connect) -> None:
    expected = hashlib.sha256(BLOB).hexdigest().encode()
    connection = connect()
    connection.request("PUT", "/a", body=BLOB)
    assert connection.getresponse().read() == expected
    connection.request("PUT", "/b", body=iter([BLOB[:70_000], BLOB[70_000:]]), encode_chunked=True)
    assert connection.getresponse().read() == expected
    assert [seen[3] == BLOB for seen in origin.seen] == [True, True]


def test_a_client_that_waits_for_100_continue_gets_it(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        raw.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"abc")
        assert raw.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_answer_before_the_body_was_sent_reaches_the_client(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        raw.sendall(b"PUT /refuse-early HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nonly a little")
        received = b""
        while piece := raw.recv(1000):
            received += piece
    assert received.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert received.endswith(b"\r\n\r\nno")


def test_requests_sent_at_once_are_answered_in_order(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        one = b"GET /blob HTTP/1.1\r\nHost: x\r\nRange: bytes=%d-%d\r\n\r\n"
        raw.sendall(one % (65, 65) + one % (66, 66))
        received = b""
        while received.count(b"HTTP/1.1 206") < 2 or not received.endswith(b"B"):
            received += raw.recv(1000)
    assert [part[-1:] for part in received.split(b"HTTP/1.1 206")[1:]] == [b"A", b"B"]


def test_an_upgrade_is_not_passed_on(proxy: FaultProxy, origin: Origin) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        raw.sendall(
            b"GET /blob HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAAA\r\nRange: bytes=0-0\r\n\r\n"
        )
        assert raw.recv(1000).startswith(b"HTTP/1.1 206")
    assert set(origin.seen[0][2]) == {"Host", "Range"}


def test_a_server_that_hangs_up_is_passed_on_as_such(proxy: FaultProxy, connect: Connect) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        get(connect(), "/hang-up")
    wait_for(lambda: len(proxy.requests.recent()) == 1)
    assert (proxy.requests.recent()[0].status, proxy.requests.recent()[0].fault) == (None, None)


def test_a_server_that_is_gone_closes_the_connection(unused_port: int) -> None:
    with FaultProxy(f"http://127.0.0.1:{unused_port}") as front, pytest.raises(http.client.RemoteDisconnected):
        urllib.request.urlopen(front.url, timeout=10)


def test_nonsense_closes_the_connection_and_harms_nobody_else(proxy: FaultProxy, connect: Connect) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        raw.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert raw.recv(100) == b""
    assert get(connect(), "/blob", Range="bytes=0-0") == (206, b"\x00")


def test_drop_closes_without_an_answer_and_the_server_sees_nothing(proxy: FaultProxy, origin: Origin, connect: Connect) -> None:
    number = proxy.faults.add(drop(times=1))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        get(connect(), "/blob")
    assert origin.seen == []
    assert proxy.faults.hits(number) == 1
    assert get(connect(), "/blob") == (200, BLOB)


def test_drop_answer_lets_the_server_do_its_work(proxy: FaultProxy, origin: Origin, connect: Connect) -> None:
    proxy.faults.add(drop_answer(methods="PUT"))
    connection = connect()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        put(connection, "/commit", b"work")
    assert [(seen[0], seen[1], seen[3]) for seen in origin.seen] == [("PUT", "/commit", b"work")]


def test_delay_holds_back_and_then_passes(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(delay(0.2))
    begun = time.monotonic()
    assert get(connect(), "/blob") == (200, BLOB)
    assert 0.2 <= time.monotonic() - begun < 5


def test_delays_add_up_and_go_before_an_answer(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(answer(500))
    proxy.faults.add(delay(0.1))
    proxy.faults.add(delay(0.1))
    begun = time.monotonic()
    assert get(connect(), "/blob")[0] == 500
    assert 0.2 <= time.monotonic() - begun < 5


def test_a_delayed_connection_does_not_hold_up_others(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(delay(30, path="slow"))
    slow = connect()
    slow.request("GET", "/slow")
    wait_for(lambda: proxy.faults.hits(1) == 1)
    assert get(connect(), "/blob") == (200, BLOB)


def test_answer_speaks_for_the_server_the_next_times_only(proxy: FaultProxy, origin: Origin, connect: Connect) -> None:
    proxy.faults.add(answer(503, times=2, headers=(("Retry-After", "7"),)))
    connection = connect()
    for _ in range(2):
        connection.request("PUT", "/a", body=b"x" * 100_000)
        response = connection.getresponse()
        body = json.loads(response.read())
        assert (response.status, response.getheader("Retry-After")) == (503, "7")
        assert body == {"error": {"message": "Injected by the fault proxy", "type": "ServiceUnavailableException", "code": 503}}
    assert origin.seen == []
    assert put(connection, "/a", b"x")[0] == 200


def test_answer_speaks_xml_to_s3_clients(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(answer(503))
    status, body = get(connect(), "/warehouse/a&b", Authorization="AWS4-HMAC-SHA256 Credential=x")
    assert status == 503
    assert body.decode() == (
        '<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Injected by the fault proxy</Message>'
        "<Resource>/warehouse/a&amp;b</Resource></Error>"
    )


def test_answer_to_a_waiting_upload_does_not_ask_for_the_body(proxy: FaultProxy) -> None:
    proxy.faults.add(answer(500))
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as raw:
        raw.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        received = b""
        while piece := raw.recv(1000):
            received += piece
    assert received.startswith(b"HTTP/1.1 500 Injected\r\n")
    assert b"\r\nConnection: close\r\n" in received


@pytest.mark.parametrize(("after", "expected"), [(None, len(BLOB) // 2), (0, 0), (1000, 1000)])
def test_cut_ends_the_answer_in_the_middle(proxy: FaultProxy, connect: Connect, after: int | None, expected: int) -> None:
    proxy.faults.add(cut(after))
    connection = connect()
    connection.request("GET", "/blob")
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Length")) == (200, str(len(BLOB)))
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    assert caught.value.partial == BLOB[:expected]


def test_cut_works_on_chunked_answers(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(cut(150_000))
    connection = connect()
    connection.request("GET", "/chunked")
    with pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()


def test_cut_upload_ends_the_request_in_the_middle(proxy: FaultProxy, origin: Origin, connect: Connect) -> None:
    proxy.faults.add(cut_upload(times=1))
    connection = connect()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        put(connection, "/a", BLOB)
    wait_for(lambda: len(origin.seen) == 1)
    assert origin.seen[0][3] == BLOB[: len(BLOB) // 2]
    wait_for(lambda: len(proxy.requests.recent()) == 1)
    assert proxy.requests.recent()[0].fault == "cut-upload"


def test_breaking_connections_hits_requests_in_flight_and_nothing_later(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(delay(30, times=1))
    waiting = connect()
    waiting.request("GET", "/blob")
    wait_for(lambda: proxy.faults.hits(1) == 1)
    proxy.break_connections()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        waiting.getresponse()
    assert get(connect(), "/blob") == (200, BLOB)


def test_a_fault_hits_only_the_methods_and_paths_it_names(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(answer(500, methods=("PUT", "DELETE"), path=r"\.metadata\.json$"))
    connection = connect()
    assert get(connection, "/w/t/metadata/1.metadata.json")[0] == 200
    assert put(connection, "/w/t/metadata/1.metadata.json", b"x")[0] == 500
    assert put(connection, "/w/t/data/1.parquet", b"x")[0] == 200


def test_skip_lets_the_first_ones_pass(proxy: FaultProxy, connect: Connect) -> None:
    proxy.faults.add(answer(500, skip=2, times=1))
    connection = connect()
    assert [get(connection, "/blob")[0] for _ in range(5)] == [200, 200, 500, 200, 200]


def test_faults_can_be_removed(proxy: FaultProxy, connect: Connect) -> None:
    first = proxy.faults.add(answer(500))
    proxy.faults.add(answer(502))
    connection = connect()
    assert get(connection, "/blob")[0] == 500
    proxy.faults.remove(first)
    assert get(connection, "/blob")[0] == 502
    proxy.faults.clear()
    assert get(connection, "/blob")[0] == 200
    assert proxy.faults.active() == {}


def test_requests_are_counted_by_method_and_kind(proxy: FaultProxy, connect: Connect) -> None:
    connection = connect()
    get(connection, "/warehouse/db/t/data/a.parquet", Range="bytes=0-9")
    get(connection, "/warehouse/db/t/data/b.parquet", Range="bytes=0-4")
    put(connection, "/warehouse/db/t/metadata/00001.metadata.json", b"12345")
    assert proxy.requests.counts() == {("GET", "data"): 2, ("PUT", "metadata"): 1}
    assert proxy.requests.count(method="GET") == 2
    assert proxy.requests.count(kind="metadata") == 1
    wait_for(lambda: len(proxy.requests.recent()) == 3)
    assert [(one.received_bytes, one.sent_bytes, one.status) for one in proxy.requests.recent()] == [
        (10, 0, 206),
        (5, 0, 206),
        (64, 5, 200),
    ]
    proxy.requests.clear()
    assert proxy.requests.counts() == {}


def test_a_taken_port_is_an_error_that_names_it(proxy: FaultProxy, origin: Origin) -> None:
    with pytest.raises(StartFailedError, match=f"Cannot start a proxy: port {proxy.port}: "):
        FaultProxy(origin.url, port=proxy.port).start()


def test_closing_ends_connections_and_the_thread(origin: Origin) -> None:
    before = threading.active_count()
    front = FaultProxy(origin.url).start()
    with socket.create_connection(("127.0.0.1", front.port), timeout=10) as raw:
        front.close()
        assert raw.recv(10) == b""
    front.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", front.port), timeout=10)
    wait_for(lambda: threading.active_count() <= before)


def test_many_clients_at_once_all_get_what_they_asked_for(proxy: FaultProxy, connect: Connect) -> None:
    failures: list[str] = []

    def fetch(connection: http.client.HTTPConnection, number: int) -> None:
        for step in range(25):
            start = number * 1000 + step
            if get(connection, "/blob", Range=f"bytes={start}-{start + 2000}") != (206, BLOB[start : start + 2001]):
                failures.append(f"{number}/{step}")

    threads = [threading.Thread(target=fetch, args=(connect(), number)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert proxy.requests.count() == 400


def test_the_control_address_steers_a_proxy_in_another_process(proxy: FaultProxy, connect: Connect) -> None:
    with Control({"s3": proxy}) as control:
        thread = threading.Thread(target=control.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        base = f"http://127.0.0.1:{control.server_address[1]}"

        def call(method: str, path: str, value: object = None) -> tuple[int, object]:
            body = json.dumps(value).encode() if value is not None else None
            request = urllib.request.Request(base + path, data=body, method=method)
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return response.status, json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        try:
            assert call("GET", "/") == (200, {"s3": {"url": proxy.url, "upstream": proxy.upstream}})
            added = {"kind": "answer", "status": 500, "methods": ["get"], "times": 1}
            assert call("POST", "/s3/faults", added) == (201, {"number": 1})
            assert get(connect(), "/warehouse/x.parquet")[0] == 500
            status, listed = call("GET", "/s3/faults")
            assert isinstance(listed, list)
            assert (status, listed[0]["number"], listed[0]["hits"], listed[0]["methods"]) == (200, 1, 1, ["GET"])
            assert call("GET", "/s3/requests") == (200, [{"method": "GET", "kind": "data", "count": 1}])
            assert call("DELETE", "/s3/requests") == (200, {})
            assert call("GET", "/s3/requests") == (200, [])
            assert call("DELETE", "/s3/faults/1") == (200, {})
            assert call("GET", "/s3/faults") == (200, [])
            assert call("POST", "/s3/faults", {"kind": "explode"})[0] == 400
            assert call("POST", "/s3/faults", {"kind": "drop", "colour": "red"})[0] == 400
            assert call("GET", "/rest/faults") == (404, {"error": "no /rest/faults"})
        finally:
            control.shutdown()
            thread.join()
