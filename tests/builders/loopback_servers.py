"""Servers on this machine that keep what they get: HTTP, SMTP, and one that speaks as a test says. With TLS where asked."""

from __future__ import annotations

import base64
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Posted:
    """A request that a server got."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    """What a server answers."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"


@dataclass
class HookServer:
    """An HTTP server that keeps what is posted and answers as told."""

    answer: Answer = field(default_factory=Answer)
    posted: list[Posted] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self.port}/hook"


@contextmanager
def hook_server(answer: Answer | None = None, tls: ssl.SSLContext | None = None) -> Iterator[HookServer]:
    """A running HTTP server."""
    found = HookServer(answer or Answer())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.posted.append(Posted(self.path, dict(self.headers.items()), body))
            self.send_response(found.answer.status)
            for name, value in found.answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(found.answer.body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    found.port = server.server_port
    with serving(server):
        yield found


@contextmanager
def speaking_server(speak: Callable[[socket.socket, threading.Event], None]) -> Iterator[tuple[int, threading.Event]]:
    """A server that does what the test wrote with each connection; its port, and whether the other side has gone."""
    gone = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                speak(self.request, gone)
            gone.set()

    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler) as server, serving(server):
        yield int(server.server_address[1]), gone


@dataclass
class MailServerLog:
    """An SMTP server: what it got, and how it answers."""

    port: int = 0
    commands: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    """For each mail."""
    login: str | None = None
    """The user and the password that it takes, with a colon between them."""
    refused: frozenset[str] = frozenset()
    """Recipients that it refuses."""
    greeting: str = "220 mail.test ready"
    data_answer: str = "250 taken"


@contextmanager
def mail_server(
    log: MailServerLog | None = None, *, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[MailServerLog]:
    """A running SMTP server, with STARTTLS or with TLS from the beginning if a context is given."""
    found = log or MailServerLog()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, ValueError):
                connection = self.request if tls is None else tls.wrap_socket(self.request, server_side=True)
                _Session(found, connection, starttls).run()

    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler) as server, serving(server):
        found.port = int(server.server_address[1])
        yield found


class _Session:
    def __init__(self, log: MailServerLog, connection: socket.socket, starttls: ssl.SSLContext | None) -> None:
        self.log, self.connection, self.starttls = log, connection, starttls
        self.reader = connection.makefile("rb")

    def run(self) -> None:
        """Answers until the other side has said all."""
        try:
            self._say(self.log.greeting)
            while line := self.reader.readline().decode().strip():
                self.log.commands.append(line)
                if not self._answer(line):
                    return
        finally:
            self.reader.close()
            self.connection.close()

    def _answer(self, line: str) -> bool:
        word = line.split()[0].upper()
        if word == "STARTTLS" and self.starttls is not None:
            self._say("220 go ahead")
            self.reader.close()
            self.connection = self.starttls.wrap_socket(self.connection, server_side=True)
            self.reader = self.connection.makefile("rb")
        elif word == "DATA":
            self._take()
        else:
            self._say(self._reply(word, line))
        return word != "QUIT"

    def _reply(self, word: str, line: str) -> str:
        if word == "EHLO":
            offers = ["250-mail.test"]
            offers += ["250-STARTTLS"] if self.starttls is not None and not self._is_encrypted else []
            offers += ["250-AUTH PLAIN"] if self.log.login is not None else []
            return "\r\n".join([*offers, "250 SIZE 1000000"])
        if word == "AUTH":
            given = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
            return "235 in" if ":".join(given) == self.log.login else "535 wrong: secret text of the server"
        if word == "RCPT" and any(address in line for address in self.log.refused):
            return "550 no such person"
        return "250 fine"

    def _take(self) -> None:
        self._say("354 go on")
        lines = []
        while (line := self.reader.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        self.log.mails.append(b"".join(lines))
        self.log.encrypted.append(self._is_encrypted)
        self._say(self.log.data_answer)

    @property
    def _is_encrypted(self) -> bool:
        return isinstance(self.connection, ssl.SSLSocket)

    def _say(self, line: str) -> None:
        self.connection.sendall(line.encode() + b"\r\n")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Serves in a thread, and ends all that came of it."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Certificate:
    """A certificate for one name that is its own authority."""

    file: Path

    def server(self) -> ssl.SSLContext:
        """For a server that has it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)
        return context

    def trusted(self) -> ssl.SSLContext:
        """For a client that trusts it, and nobody else."""
        return ssl.create_default_context(cafile=str(self.file))


def make_certificate(file: Path, name: str) -> Certificate:
    """Writes a new key and a certificate for a name."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return Certificate(file)
