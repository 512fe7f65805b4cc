"""Chooses the keys of each change, sends it to the writer's process, and notes how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from tests.histories.checker import Refs
from tests.histories.rows import FIRST_ID, ZONES, Change, Expected, zone_of

CROWDED = 1_500
"""From so many rows on a writer deletes more than it inserts."""
_ZONES_OF: dict[tuple[str, str], tuple[int, ...]] = {
    ("spark", "update"): tuple(range(ZONES)),
    ("spark", "delete"): tuple(range(ZONES)),
    ("cdc", "upsert"): (0, 1, 2),
    ("cdc", "delete-equal"): (0, 1, 2),
    ("cdc", "merge"): (2, 3, 4),
    ("updater", "overwrite"): (4, 5, 6, 7),
    ("updater", "delete"): (4, 5, 6, 7),
}
"""A change is in one zone, so that others stay as they are while a Neve works. pyiceberg cannot read equality deletes, so its
zones have none."""


@dataclass
class Log:
    """What writers know together. Hold `lock` to begin or end a change."""

    expected: Expected = field(default_factory=Expected)
    refs: Refs = field(default_factory=Refs)
    changes: dict[int, Change] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Any = field(default_factory=lambda: count(1))
    _ids: dict[str, Any] = field(default_factory=lambda: {name: count(first) for name, first in FIRST_ID.items()})

    def draw(self, writer: str, kind: str, random: Random, *, branch: str | None = None) -> Change | None:
        """A change of keys that no open change touches, begun; None if there are not enough rows for it."""
        with self.lock:
            number = next(self._numbers)
            keys = self._keys(writer, kind, random, number)
            if not keys:
                return None
            branch = (branch or random.choice(("side", "other"))) if kind == "branch" else "main"
            change = Change(number, writer, kind, keys, branch)
            self.changes[number] = change
            self.expected.begin(change)
            return change

    def _keys(self, writer: str, kind: str, random: Random, number: int) -> dict[int, tuple[int | None, int | None]]:
        own = FIRST_ID[writer]
        rows = {k: v for k, v in self.expected.certain.items() if own <= k < own + 1_000_000_000}
        zone = random.choice(_ZONES_OF.get((writer, kind), (None,)))
        locked = self.expected.locked
        free = [key for key in rows if key not in locked and zone in (None, zone_of(key))]
        crowded = len(rows) > CROWDED
        some = random.sample(free, min(len(free), 200 if kind.startswith("delete") and crowded else random.randint(3, 12)))
        if kind in ("insert", "branch"):
            return dict.fromkeys(self._new(writer, 4 if crowded else random.randint(5, 40), None), (None, number))
        changed: dict[int, tuple[int | None, int | None]] = {}
        for key in some:
            goes = kind.startswith("delete") or (kind in ("upsert", "merge", "overwrite") and random.random() < 0.2)
            changed[key] = (rows[key], None if goes else number)
        if kind in ("upsert", "merge", "overwrite") and not crowded:
            changed |= dict.fromkeys(self._new(writer, random.randint(1, 8), zone), (None, number))
        return changed

    def _new(self, writer: str, wanted: int, zone: int | None) -> list[int]:
        keys = list[int]()
        while len(keys) < wanted:
            key = next(self._ids[writer])
            if zone is None or key % ZONES == zone:
                keys.append(key)
        return keys

    def ended(self, change: Change, *, certain: bool) -> None:
        with self.lock:
            if not certain:
                self.expected.doubt(change.number)
                return
            self.expected.acknowledge(change.number)
            if change.branch != "main":
                self.refs.branches.setdefault(change.branch, []).append(change)


def write(
    log: Log, ask: Callable[[dict[str, Any]], Any], writer: str, kind: str, random: Random, *, name: str | None = None
) -> str | None:
    """Lets a writer do one thing; gives a line for the log, None if there was nothing to do.

    `name` is that of a branch, or of a tag at the head.
    """
    if kind in ("tag", "untag"):
        return _tag(log, ask, kind, random, name)
    change = log.draw(writer, kind, random, branch=name)
    if change is None:
        return None
    rows = [[key, after] for key, (_, after) in change.keys.items() if after is not None]
    gone = [key for key, (_, after) in change.keys.items() if after is None]
    order: dict[str, Any] = {"do": kind, "change": change.number, "rows": rows}
    order |= {"branch": change.branch} if kind == "branch" else {"gone": gone}
    answer = None
    try:
        answer = ask(order)
    finally:
        certain = answer is None or "error" not in answer
        log.ended(change, certain=certain)
    told = "ok" if certain else f"unknown, {answer['error']}: {answer['message'].splitlines()[0][:200]}"
    return f"change {change.number} {kind} of {len(change.keys)} keys: {told}"


def _tag(log: Log, ask: Callable[[dict[str, Any]], Any], kind: str, random: Random, name: str | None) -> str | None:
    with log.lock:
        certain = [name for name, at in log.refs.tags.items() if at is not None]
        back = 0 if name else random.randint(0, 6)
        if name is None:
            name = f"tag-{next(log._numbers)}" if kind == "tag" else (random.choice(certain) if certain else None)
        if name is None:
            return None
        log.refs.tags[name] = None
    answer = ask({"do": kind, "name": name} | ({"back": back} if kind == "tag" else {}))
    failed = isinstance(answer, dict)
    if kind == "tag" and not failed:
        with log.lock:
            log.refs.tags[name] = answer
    return f"{kind} {name}: {answer['error'] if failed else 'ok'}"
