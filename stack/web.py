"""One HTTP request to a server of ours, for checks: no proxies, short waits, and every failure is "not ready yet"."""

from __future__ import annotations

import json
import socket
import urllib.request
from http.client import HTTPException
from typing import Any

from stack.errors import NotReadyError

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str, *, method: str = "GET", body: bytes | None = None, seconds: float = 5) -> bytes:
    """The body of a 2xx answer."""
    request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - our own addresses
    try:
        with _direct.open(request, timeout=seconds) as answer:
            return bytes(answer.read())
    except (OSError, HTTPException) as error:
        raise NotReadyError(f"{url}: {error}") from error


def require_listener(authority: str) -> None:
    """Says quickly that nobody listens at HOST:PORT yet, where a client library would try for long or log each try."""
    host, _, port = authority.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError as error:
        raise NotReadyError(f"{authority}: {error}") from error


def fetch_json(url: str) -> Any:
    """The JSON of a 2xx answer."""
    try:
        return json.loads(fetch(url))
    except ValueError as error:
        raise NotReadyError(f"{url}: {error}") from error
