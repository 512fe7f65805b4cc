"""What writers change: one change of some keys of one writer, and the rows that the table must show.

Every writer owns a range of ids and changes one set of keys at a time, so the expected version of every id is known exactly.
The content of a row follows from its id and version: a row that was altered is recognized without a copy of it. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ZONES = 8
"""Partitions of the table."""
FIRST_ID = {"spark": 1_000_000_000, "cdc": 2_000_000_000, "updater": 3_000_000_000}
MAIN = "main"

Versions = Mapping[int, int]
"""The version of each id."""


def zone_of(key: int) -> int:
    return key % ZONES


def text_of(key: int, version: int) -> str:
    return f"{key * 1_000_003 + version * 40_503:x}"


@dataclass(frozen=True)
class Row:
    """One row as it is stored."""

    id: int
    v: int
    zone: int
    text: str

    @property
    def is_intact(self) -> bool:
        """Whether the content is what some writer wrote for this id and version."""
        return self.zone == zone_of(self.id) and self.text == text_of(self.id, self.v)


def row(key: int, version: int) -> Row:
    return Row(key, version, zone_of(key), text_of(key, version))


@dataclass(frozen=True)
class Change:
    """One commit of a writer: for each key the version before and after; None means that there is no such row."""

    number: int
    writer: str
    kind: str
    keys: Mapping[int, tuple[int | None, int | None]]
    branch: str = MAIN

    def applied(self, rows: Versions) -> dict[int, int]:
        """The rows after this change."""
        return _with(rows, {key: after for key, (_, after) in self.keys.items()})

    def untouched(self, rows: Versions) -> dict[int, int]:
        """The rows that this change does not touch."""
        return {key: version for key, version in rows.items() if key not in self.keys}


def _with(rows: Versions, changed: Mapping[int, int | None]) -> dict[int, int]:
    kept = {key: version for key, version in rows.items() if key not in changed}
    return kept | {key: version for key, version in changed.items() if version is not None}


@dataclass
class Expected:
    """Rows of the main branch by writer: certain ones, and changes whose outcome is not known yet.

    No writer touches a key of a change that is still open.
    """

    certain: dict[int, int] = field(default_factory=dict)
    running: dict[int, Change] = field(default_factory=dict)
    unknown: dict[int, Change] = field(default_factory=dict)

    def begin(self, change: Change) -> None:
        self.running[change.number] = change

    def acknowledge(self, number: int) -> None:
        """The catalog confirmed the commit."""
        change = self.running.pop(number)
        if change.branch == MAIN:
            self.certain = change.applied(self.certain)

    def doubt(self, number: int) -> None:
        """The client got an error: the commit is there or not, and will not come later."""
        self.unknown[number] = self.running.pop(number)

    def settled(self, number: int, *, committed: bool) -> None:
        """A check has seen the outcome."""
        change = self.unknown.pop(number)
        if committed and change.branch == MAIN:
            self.certain = change.applied(self.certain)

    def copy(self) -> Expected:
        return Expected(dict(self.certain), dict(self.running), dict(self.unknown))

    @property
    def locked(self) -> set[int]:
        """Keys of open changes."""
        return {key for change in (*self.running.values(), *self.unknown.values()) for key in change.keys}


@dataclass(frozen=True)
class Compared:
    """What a comparison found: sentences that say what is wrong, and which open changes are there."""

    wrong: tuple[str, ...]
    committed: Mapping[int, bool]


def compare(expected: Expected, found: Iterable[Row]) -> Compared:
    """Compares the rows of the main branch with what writers did."""
    rows = list(found)
    wrong = [*_damaged(rows), *_doubled(rows)]
    shown = {found.id: found.v for found in rows}
    wrong += _differences({k: v for k, v in expected.certain.items() if k not in expected.locked}, shown, expected.locked)
    committed = dict[int, bool]()
    for number, change in sorted((expected.running | expected.unknown).items()):
        if change.branch != MAIN:
            continue
        states = {key: shown.get(key) for key in change.keys}
        before = {key: pair[0] for key, pair in change.keys.items()}
        after = {key: pair[1] for key, pair in change.keys.items()}
        if states not in (before, after):
            wrong.append(
                f"change {number} ({change.kind} by {change.writer}) is torn: {_some(_unequal(states, before, after))}"
            )
        committed[number] = states == after
    return Compared(tuple(wrong), committed)


def same_rows(expected: Versions, found: Iterable[Row]) -> tuple[str, ...]:
    """Sentences that say how rows differ from the expected ones."""
    rows = list(found)
    shown = {found.id: found.v for found in rows}
    return (*_damaged(rows), *_doubled(rows), *_differences(expected, shown, set()))


def _damaged(rows: Iterable[Row]) -> list[str]:
    found = [row.id for row in rows if not row.is_intact]
    return [f"{len(found)} rows were altered: {_some(found)}"] if found else []


def _doubled(rows: Iterable[Row]) -> list[str]:
    found = [key for key, times in Counter(row.id for row in rows).items() if times > 1]
    return [f"{len(found)} rows are doubled: {_some(found)}"] if found else []


def _differences(expected: Versions, shown: Versions, ignored: set[int]) -> list[str]:
    lost = [key for key in expected if key not in shown]
    revived = [key for key in shown if key not in expected and key not in ignored]
    other = [(key, shown[key], version) for key, version in expected.items() if key in shown and shown[key] != version]
    return [
        *([f"{len(lost)} rows are lost: {_some(lost)}"] if lost else []),
        *([f"{len(revived)} rows are there that no writer left there: {_some(revived)}"] if revived else []),
        *([f"{len(other)} rows have another version (id, found, expected): {_some(other)}"] if other else []),
    ]


def _unequal(states: Mapping[int, int | None], *known: Mapping[int, int | None]) -> list[tuple[int, int | None]]:
    return [(key, state) for key, state in states.items() if all(state != one[key] for one in known)] or list(states.items())


def _some(values: Iterable[object]) -> str:
    listed = list(values)
    return ", ".join(map(str, listed[:5])) + (", ..." if len(listed) > 5 else "")
