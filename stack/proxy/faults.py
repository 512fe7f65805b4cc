"""Which requests go wrong, and how: values that tests make, and the list that the proxy draws from for each request."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from neve.errors import BadRequestError

KINDS = ("drop", "drop-answer", "delay", "answer", "cut", "cut-upload")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, for the requests that `methods` and `path` choose.

    `methods` is empty for all; `path` is a regular expression, searched for in path and query. The first `skip` matching
    requests pass, then `times` of them (None: all) are hit, each with probability `share`.
    """

    kind: str
    methods: tuple[str, ...] = ()
    path: str = ""
    skip: int = 0
    times: int | None = None
    share: float = 1.0
    seconds: float = 0.0
    status: int = 503
    headers: tuple[tuple[str, str], ...] = ()
    after_bytes: int | None = None

    def __post_init__(self) -> None:
        methods = (self.methods,) if isinstance(self.methods, str) else self.methods
        object.__setattr__(self, "methods", tuple(method.upper() for method in methods))
        object.__setattr__(self, "headers", tuple((str(name), str(value)) for name, value in self.headers))
        problem = _problem(self)
        if problem:
            raise BadRequestError(f"Cannot make a fault: {problem}")

    def matches(self, method: str, target: str) -> bool:
        """Whether it is about such a request; chance and counts are the list's business."""
        return (not self.methods or method in self.methods) and re.search(self.path, target) is not None


def drop(**where: Any) -> Fault:
    """Closes the connection without an answer; the server never sees the request."""
    return Fault("drop", **where)


def drop_answer(**where: Any) -> Fault:
    """Lets the server do its work, then closes the connection instead of passing the answer on."""
    return Fault("drop-answer", **where)


def delay(seconds: float, **where: Any) -> Fault:
    """Holds the request back, then passes it on; adds up with other delays and goes before any other fault."""
    return Fault("delay", seconds=seconds, **where)


def answer(status: int, **where: Any) -> Fault:
    """Answers with an error in the server's stead, in S3's or the catalog's own form."""
    return Fault("answer", status=status, **where)


def cut(after_bytes: int | None = None, **where: Any) -> Fault:
    """Closes the connection in the middle of the answer's body (half way unless said)."""
    return Fault("cut", after_bytes=after_bytes, **where)


def cut_upload(after_bytes: int | None = None, **where: Any) -> Fault:
    """Closes both connections in the middle of the request's body (half way unless said)."""
    return Fault("cut-upload", after_bytes=after_bytes, **where)


@dataclass
class _Armed:
    fault: Fault
    skipped: int = 0
    hits: int = 0


@dataclass
class Faults:
    """The faults in force, in order. Any thread may change it while requests pass. Chance is seeded."""

    seed: int = 0
    _armed: dict[int, _Armed] = field(default_factory=dict, init=False)
    _next: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - chooses requests to break
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> int:
        """Puts it in force; returns the number to remove it by."""
        with self._lock:
            number = self._next
            self._next += 1
            self._armed[number] = _Armed(fault)
            return number

    def remove(self, number: int) -> None:
        """Takes one out of force; nothing happens if it is not there."""
        with self._lock:
            self._armed.pop(number, None)

    def clear(self) -> None:
        """Takes all out of force."""
        with self._lock:
            self._armed.clear()

    def hits(self, number: int) -> int:
        """How many requests it has hit; 0 once it is removed."""
        with self._lock:
            armed = self._armed.get(number)
            return armed.hits if armed else 0

    def active(self) -> dict[int, Fault]:
        """Those in force by number, those that are used up included."""
        with self._lock:
            return {number: armed.fault for number, armed in self._armed.items()}

    def draw(self, method: str, target: str) -> list[Fault]:
        """What happens to this request: every delay that applies, then at most one fault that ends it."""
        chosen: list[Fault] = []
        with self._lock:
            for armed in self._armed.values():
                ends = armed.fault.kind != "delay"
                if ends and any(fault.kind != "delay" for fault in chosen):
                    continue
                if armed.fault.matches(method, target) and self._strikes(armed):
                    chosen.append(armed.fault)
        return sorted(chosen, key=lambda fault: fault.kind != "delay")

    def _strikes(self, armed: _Armed) -> bool:
        fault = armed.fault
        if armed.skipped < fault.skip:
            armed.skipped += 1
            return False
        if fault.times is not None and armed.hits >= fault.times:
            return False
        if fault.share < 1 and self._random.random() >= fault.share:
            return False
        armed.hits += 1
        return True


def _problem(fault: Fault) -> str | None:
    try:
        re.compile(fault.path)
    except re.error as error:
        return f"path {fault.path!r} is no regular expression ({error})"
    checks: Sequence[tuple[bool, str]] = (
        (fault.kind in KINDS, f"kind {fault.kind!r} is none of {', '.join(KINDS)}"),
        (0 <= fault.share <= 1, f"share {fault.share} is not between 0 and 1"),
        (fault.seconds >= 0 and fault.skip >= 0, "seconds and skip cannot be negative"),
        (fault.times is None or fault.times > 0, f"times {fault.times} would never strike"),
        (400 <= fault.status <= 599, f"status {fault.status} is no error"),
    )
    return next((message for right, message in checks if not right), None)
