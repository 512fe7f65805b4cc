"""Steers proxies that run in another process: a small HTTP interface on 127.0.0.1.

GET / lists the fronts. Under /NAME: GET and POST faults, DELETE faults or faults/NUMBER, GET and DELETE requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from neve.errors import BadRequestError
from stack.proxy.faults import Fault
from stack.proxy.front import FaultProxy

_ROUTE = re.compile(r"/(?P<front>[\w-]+)/(?P<what>faults|requests)(/(?P<number>\d+))?")


class Control(ThreadingHTTPServer):
    """The HTTP server; `serve_forever` runs it."""

    daemon_threads = True

    def __init__(self, fronts: Mapping[str, FaultProxy], *, port: int = 0) -> None:
        self.fronts = dict(fronts)
        super().__init__(("127.0.0.1", port), _Handler)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """The status and the JSON for one request."""
        if path == "/" and method == "GET":
            return 200, {name: {"url": one.url, "upstream": one.upstream} for name, one in self.fronts.items()}
        match = _ROUTE.fullmatch(path)
        front = self.fronts.get(match["front"]) if match else None
        if match is None or front is None:
            return 404, {"error": f"no {path}"}
        number = int(match["number"]) if match["number"] else None
        return _faults(front, method, number, body) if match["what"] == "faults" else _requests(front, method)


def _faults(front: FaultProxy, method: str, number: int | None, body: bytes) -> tuple[int, Any]:
    if method == "GET":
        active = front.faults.active()
        return 200, [{"number": key, "hits": front.faults.hits(key), **asdict(fault)} for key, fault in active.items()]
    if method == "POST":
        try:
            return 201, {"number": front.faults.add(Fault(**json.loads(body)))}
        except (BadRequestError, TypeError, ValueError) as error:
            return 400, {"error": str(error)}
    if number is None:
        front.faults.clear()
    else:
        front.faults.remove(number)
    return 200, {}


def _requests(front: FaultProxy, method: str) -> tuple[int, Any]:
    if method == "GET":
        counts = sorted(front.requests.counts().items())
        return 200, [{"method": verb, "kind": kind, "count": count} for (verb, kind), count in counts]
    if method == "DELETE":
        front.requests.clear()
        return 200, {}
    return 405, {"error": f"no {method} here"}


class _Handler(BaseHTTPRequestHandler):
    server: Control

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, value = self.server.answer(self.command, self.path, body)
        encoded = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent: the state can be asked for."""
