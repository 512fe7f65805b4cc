"""What passed through the proxy, request by request, and what kind of thing each asked for."""

from __future__ import annotations

import re
import threading
from collections import Counter, deque
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_KEPT = 100_000

# First match wins. Objects of an Iceberg table are told apart by name, as its writers name them.
_S3_QUERIES = (
    ("multipart", re.compile(r"(^|&)(uploads|uploadId|partNumber)(=|&|$)")),
    ("delete-batch", re.compile(r"(^|&)delete(=|&|$)")),
    ("list", re.compile(r"(^|&)(list-type|prefix|delimiter)=")),
)
_CATALOG_PATHS = (
    ("config", re.compile(r"/v\d+/config$")),
    ("token", re.compile(r"/oauth/tokens$")),
    ("transaction", re.compile(r"/transactions/commit$")),
    ("table", re.compile(r"/namespaces/[^/]+/tables/[^/]+")),
    ("tables", re.compile(r"/namespaces/[^/]+/(tables|register)$|/tables/rename$")),
    ("view", re.compile(r"/namespaces/[^/]+/views")),
    ("namespace", re.compile(r"/namespaces/[^/]+(/properties)?$")),
    ("namespaces", re.compile(r"/namespaces$")),
)
_OBJECTS = (
    ("metadata", re.compile(r"(\.metadata\.json|version-hint\.text)$|\.gz\.metadata\.json$")),
    ("manifest-list", re.compile(r"/snap-[^/]*\.avro$")),
    ("manifest", re.compile(r"/metadata/[^/]*\.avro$")),
    ("statistics", re.compile(r"\.(stats|puffin)$")),
    ("data", re.compile(r"\.(parquet|orc|avro)$")),
)


@dataclass(frozen=True)
class Request:
    """One request and its end: `status` is None when the client got no answer, `fault` names what we did to it."""

    method: str
    target: str
    kind: str
    status: int | None
    fault: str | None
    sent_bytes: int
    received_bytes: int
    seconds: float


class Requests:
    """The last requests, and counts of all since the last `clear`. Any thread may ask while requests pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[Request] = deque(maxlen=_KEPT)
        self._counts: Counter[tuple[str, str]] = Counter()

    def arrived(self, method: str, kind: str) -> None:
        """Called by the proxy before it does anything: once a client has its answer, the count is right."""
        with self._lock:
            self._counts[method, kind] += 1

    def ended(self, request: Request) -> None:
        """Called by the proxy when a request has ended, well or not."""
        with self._lock:
            self._recent.append(request)

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._recent.clear()
            self._counts.clear()

    def counts(self) -> dict[tuple[str, str], int]:
        """Requests by method and kind."""
        with self._lock:
            return dict(self._counts)

    def count(self, method: str | None = None, kind: str | None = None) -> int:
        """Requests with this method and kind; None stands for any."""
        return sum(n for (m, k), n in self.counts().items() if method in (None, m) and kind in (None, k))

    def recent(self) -> list[Request]:
        """Those that have ended, oldest first; a client may have its answer a moment before the entry is here."""
        with self._lock:
            return list(self._recent)


def kind_of(target: str) -> str:
    """What a request is about: a catalog's resource, or an object or listing of S3 with path-style addresses."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    for name, pattern in _CATALOG_PATHS:
        if pattern.search(path):
            return name
    for name, pattern in _S3_QUERIES:
        if pattern.search(parts.query):
            return name
    if path.strip("/").count("/") == 0:
        return "bucket" if path.strip("/") else "root"
    return next((name for name, pattern in _OBJECTS if pattern.search(path)), "object")
