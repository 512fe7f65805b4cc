"""Posts JSON to a URL, signed if there is a secret. Safe against requests to where nobody meant to send any.

Only https, or http to hosts that the settings allow; no redirects, no proxies, no credentials in URLs. The answer's body is not
read. Errors name the host and the status and never the URL, as it may hold a token.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from neve.errors import NotificationError
from neve.service.notify.addresses import HINT, is_listed
from neve.service.notify.connection import Network, deadline, reason_of

SIGNATURE = "Neve-Signature"
MAX_WAIT_SECONDS = 3600.0
_PORTS = {"https": 443, "http": 80}
_MESSAGE_REFUSED = frozenset({400, 413, 422})
"""Statuses that are about one message. All others concern the channel."""


@dataclass(frozen=True)
class Endpoint:
    """A URL that messages may be posted to. `path` may hold a token and is never shown."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str, network: Network) -> Endpoint:
        """From a URL; raises NotificationError with the reason, and without the URL."""
        # Other programs cut URLs differently at such characters, and urlsplit drops some of them.
        if re.search(r"[\x00-\x20\x7f\\]", url):
            raise _refused("it contains a space, a backslash or a control character")
        try:
            parts = urlsplit(url)
            host, port = _ascii(parts.hostname or ""), parts.port
            path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
            query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else ""
        except ValueError:
            raise _refused("it is not valid") from None
        if parts.scheme not in _PORTS:
            raise _refused("it is neither https nor http")
        if not host or port == 0:
            raise _refused("it has no valid host and port")
        if parts.username is not None or parts.password is not None:
            raise _refused("it contains a user or a password")
        if parts.scheme == "http" and not is_listed(host, network.allowed):
            raise NotificationError(f"Cannot send to {host}: http is not encrypted", hint=f"Use https. {HINT}")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], path + query)


class _PinnedConnection(http.client.HTTPConnection):
    """Uses a connection that was made before. Names the host in requests, and does not resolve it."""

    def __init__(self, endpoint: Endpoint, connection: socket.socket) -> None:
        super().__init__(endpoint.host, endpoint.port)
        self.default_port = _PORTS[endpoint.scheme]
        self.sock = connection

    def connect(self) -> None:
        """Refuses to connect another time."""
        raise http.client.NotConnected


def post(endpoint: Endpoint, body: bytes, headers: Mapping[str, str], *, network: Network, seconds: float) -> None:
    """Sends the body and accepts any status from 200 to 299; everything else raises NotificationError."""
    raw = network.connect(endpoint.host, endpoint.port, seconds=seconds)
    try:
        with raw, deadline(raw, seconds), _secured(raw, endpoint, network) as secured:
            status, wait_seconds = _exchange(_PinnedConnection(endpoint, secured), endpoint, body, headers)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotificationError(f"Cannot send to {endpoint.host}: {reason_of(error)}") from None
    if not 200 <= status < 300:
        why = " (redirects are not followed)" if 300 <= status < 400 else ""
        raise NotificationError(
            f"Cannot send to {endpoint.host}: it answered with status {status}{why}",
            wait_seconds=wait_seconds,
            only_this_message=status in _MESSAGE_REFUSED,
        )


def json_body(value: Any) -> bytes:
    """The value as it is sent and signed."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def signature(secret: str, body: bytes, now_ms: int) -> str:
    """The header's value: the time in seconds, and the HMAC-SHA256 of that time, a dot and the body."""
    seconds = str(now_ms // 1000)
    digest = hmac.new(secret.encode(), seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def _secured(raw: socket.socket, endpoint: Endpoint, network: Network) -> socket.socket:
    return network.encrypt(raw, endpoint.host) if endpoint.scheme == "https" else raw


def _exchange(
    connection: http.client.HTTPConnection, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]
) -> tuple[int, float]:
    connection.request("POST", endpoint.path, body=body, headers={**headers, "Connection": "close"})
    response = connection.getresponse()
    return response.status, _wait_seconds(response.getheader("Retry-After"))


def _wait_seconds(header: str | None) -> float:
    text = (header or "").strip()
    return min(float(text), MAX_WAIT_SECONDS) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0


def _ascii(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _refused(reason: str) -> NotificationError:
    return NotificationError(f"Cannot use the URL of this channel: {reason}")
