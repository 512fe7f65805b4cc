"""A REST catalog on this machine with tables of plain metadata. It counts requests, and refuses and fails as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from tests.builders.loopback_servers import LOOPBACK, serving
from tests.builders.registered_fleet import document

Namespace = tuple[str, ...]


@dataclass
class RestFleet:
    """What the server has. `failing` and `refused` are parts of paths that are answered with 503 and 403."""

    tables: dict[Namespace, dict[str, dict[str, Any]]] = field(default_factory=dict)
    page_size: int | None = None
    refused: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    """Paths of all requests, in order."""
    port: int = 0
    _lock: Lock = field(default_factory=Lock)

    @property
    def settings(self) -> dict[str, Any]:
        """What describes the catalog in neve.yaml."""
        return {"type": "rest", "uri": f"http://{LOOPBACK}:{self.port}", "timeout": "10 s"}

    def add(self, *names: str, **values: Any) -> None:
        """Adds tables, by default with uuids of their own; namespaces have a level for each dot."""
        for name in names:
            *namespace, table = name.split(".")
            for length in range(1, len(namespace) + 1):
                self.tables.setdefault(tuple(namespace[:length]), {})
            self.tables[tuple(namespace)][table] = document(str(uuid4()), **values)

    def commit(self, name: str, **values: Any) -> None:
        """Other metadata for the same table."""
        *namespace, table = name.split(".")
        tables = self.tables[tuple(namespace)]
        tables[table] = document(tables[table]["table-uuid"], **values)

    def drop(self, name: str) -> None:
        """Removes a table."""
        *namespace, table = name.split(".")
        del self.tables[tuple(namespace)][table]

    def sent(self) -> int:
        """How many requests came since the last call."""
        number = len(self.requests)
        self.requests.clear()
        return number

    def answer(self, target: str) -> tuple[int, dict[str, Any]]:
        """The status and the document for a GET."""
        with self._lock:
            self.requests.append(target)
        path, query = unquote(urlsplit(target).path), parse_qs(urlsplit(target).query)
        if any(part in target for part in self.failing):
            return 503, {"error": {"message": "away", "type": "ServiceUnavailableException", "code": 503}}
        if any(part in target for part in self.refused):
            return 403, {"error": {"message": "not for you", "type": "ForbiddenException", "code": 403}}
        match path.removeprefix("/v1/").split("/"):
            case ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                parent = tuple(unquote(query["parent"][0]).split("\x1f")) if "parent" in query else ()
                found = [list(one) for one in sorted(self.tables) if one[:-1] == parent]
                return 200, self._page("namespaces", found, query)
            case ["namespaces", text, "tables"] if (one := tuple(text.split("\x1f"))) in self.tables:
                found_tables = [{"namespace": list(one), "name": name} for name in sorted(self.tables[one])]
                return 200, self._page("identifiers", found_tables, query)
            case ["namespaces", text, "tables", name] if name in self.tables.get(tuple(text.split("\x1f")), {}):
                metadata = self.tables[tuple(text.split("\x1f"))][name]
                location = f"/nowhere/{metadata['table-uuid']}/{metadata['last-sequence-number']}.metadata.json"
                return 200, {"metadata-location": location, "metadata": metadata, "config": {}}
        return 404, {"error": {"message": "nothing there", "type": "NoSuchTableException", "code": 404}}

    def _page(self, key: str, found: list[Any], query: dict[str, list[str]]) -> dict[str, Any]:
        if self.page_size is None:
            return {key: found}
        begin = int(query.get("pageToken", ["0"])[0])
        end = begin + self.page_size
        return {key: found[begin:end], **({"next-page-token": str(end)} if end < len(found) else {})}


@contextmanager
def rest_fleet() -> Iterator[RestFleet]:
    """A running server without tables."""
    fleet = RestFleet()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, value = fleet.answer(self.path)
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    fleet.port = server.server_port
    with serving(server):
        yield fleet
