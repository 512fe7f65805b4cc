"""The writers in the state machine of maintenance: what they do to the table, and what it must contain afterwards.

`rows` has the expected rows by snapshot, `refs` the expected branches and tags. Iceberg's own API makes every change here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from tests.builders.java_tables import DAY, Written, WrittenTable

STRAYS = count(1)
Act = TypeVar("Act", bound=Callable[..., None])
SEED = 1022
"""Puts first a writer whose file is found as an orphan before it is committed, and looked at again after that."""

which = st.integers(0, 2**16)
"""A choice among whatever there is."""
branches = st.sampled_from(["main", "main", "a", "b"])
ages = st.sampled_from([None, 5, 40])


def step(weight: int = 1, **words: st.SearchStrategy[Any]) -> Callable[[Act], Act]:
    """What a rule is, but that all of them are chosen from at every step: hypothesis would leave most rules out of an example,
    and an expiry without writers shows nothing."""

    def mark(act: Act) -> Act:
        act.step = (weight, words)  # type: ignore[attr-defined]
        return act

    return mark


def steps_of(machine: type) -> list[tuple[str, st.SearchStrategy[dict[str, Any]]]]:
    """All steps with their words, the weighty ones several times, well mixed."""
    marked: Iterator[tuple[str, tuple[int, dict[str, Any]]]] = (
        (name, getattr(getattr(machine, name), "step", (0, {}))) for name in dir(machine)
    )
    found = [(name, st.fixed_dictionaries(words)) for name, (weight, words) in marked for _ in range(weight)]
    Random(SEED).shuffle(found)
    return found


class Writers(RuleBasedStateMachine):
    """A table that others write to."""

    table: WrittenTable

    def start(self) -> None:
        """Files that only old snapshots need, rows past their time, and a file that nobody knows."""
        self.rows: dict[int, frozenset[int]] = {}
        self.snapshots: dict[int, int] = {}
        self.refs: dict[str, dict[str, Any]] = {}
        self.open: list[Written] = []
        for days in (0, 20, 40):
            self.append_to("main", 3, days)
        self.overwrite("main")
        self.append_to("main", 3, 40)
        self.stray("data", 10)

    def written(self, shown: dict[str, frozenset[int]], change: Callable[[], object]) -> None:
        """A change by somebody else, after which branches show these rows."""
        change()
        metadata = self.table.metadata()
        refs = metadata["refs"]
        for branch, expected in shown.items():
            self.rows.setdefault(refs[branch]["snapshot-id"], expected)
        self.adopt(metadata)
        for branch, expected in shown.items():
            assert self.table.rows(refs[branch]["snapshot-id"]) == expected, branch

    def adopt(self, metadata: dict[str, Any]) -> None:
        """Takes over refs and snapshots, once it is known what each of them shows."""
        self.refs = metadata["refs"]
        self.snapshots = {found["snapshot-id"]: found["timestamp-ms"] for found in metadata["snapshots"]}
        assert self.snapshots.keys() <= self.rows.keys()

    def head(self, branch: str) -> int:
        return int(self.refs[branch]["snapshot-id"])

    def shown(self, branch: str) -> frozenset[int]:
        return self.rows[self.head(branch)]

    def branch(self, wanted: str) -> str:
        return wanted if wanted in self.refs else "main"

    def ancestors(self, branch: str) -> list[int]:
        """Newest first, the head included."""
        parents = {found["snapshot-id"]: found.get("parent-snapshot-id") for found in self.table.metadata()["snapshots"]}
        found, at = list[int](), self.head(branch)
        while at in parents:
            found.append(at)
            at = parents[at]
        return found

    def append_to(self, branch: str, n: int, days: float) -> None:
        file = self.table.write(n, days_ago=days)
        before = self.shown(branch) if branch in self.refs else frozenset()
        self.written({branch: before | file.ids}, lambda: self.table.append([file], branch))

    @step(2, branch=branches, n=st.integers(1, 4), days=st.integers(0, 40))
    def append(self, branch: str, n: int, days: int) -> None:
        self.append_to(self.branch(branch), n, days)

    @step(branch=branches)
    def overwrite(self, branch: str) -> None:
        branch, file = self.branch(branch), self.table.write(3, days_ago=10)
        self.written({branch: file.ids}, lambda: self.table.overwrite(file, branch))

    @step(branch=branches, modulus=st.integers(2, 4))
    def delete_rows(self, branch: str, modulus: int) -> None:
        branch = self.branch(branch)
        gone = frozenset(i for i in self.shown(branch) if i % modulus == 0)
        if gone:
            self.written({branch: self.shown(branch) - gone}, lambda: self.table.delete(gone, branch))

    @step(kind=st.sampled_from(["Branch", "Tag"]), second=st.booleans(), at=which, days=ages)
    def make_or_drop_ref(self, kind: str, second: bool, at: int, days: int | None) -> None:
        """At any snapshot that there is; one of that name goes instead."""
        name = {"Branch": "ab", "Tag": "xy"}[kind][second]
        change = self.table.refs()
        if name in self.refs:
            change = getattr(change, f"remove{kind}")(name)
        else:
            change = getattr(change, f"create{kind}")(name, chosen(self.snapshots, at))
            change = change if days is None else change.setMaxRefAgeMs(name, days * DAY)
        self.written({}, change.commit)

    @step(branch=branches, at=which)
    def move_branch(self, branch: str, at: int) -> None:
        """To any snapshot that there is."""
        branch, to, change = self.branch(branch), chosen(self.snapshots, at), self.table.refs()
        moved = change.setCurrentSnapshot(to) if branch == "main" else change.replaceBranch(branch, to)
        self.written({branch: self.rows[to]}, moved.commit)

    @step(branch=st.sampled_from(["a", "b"]))
    def fast_forward(self, branch: str) -> None:
        branch = self.branch(branch)
        if branch != "main" and self.head("main") in self.ancestors(branch):
            self.written({"main": self.shown(branch)}, self.table.refs().fastForwardBranch("main", branch).commit)

    @step(days=st.integers(0, 20))
    def stage(self, days: int) -> None:
        """A snapshot on no branch, which is picked later, or expired before that."""
        file, base = self.table.write(2, days_ago=days), self.shown("main")
        self.staged = self.table.stage(file)
        self.rows[self.staged], self.added = base | file.ids, file.ids
        self.adopt(self.table.metadata())

    staged = 0

    @step()
    def cherry_pick(self) -> None:
        if self.staged in self.snapshots and self.staged not in self.ancestors("main"):
            picked, self.staged = self.staged, 0
            self.written({"main": self.shown("main") | self.added}, self.table.refs().cherrypick(picked).commit)

    @step(2)
    def open_writer(self) -> None:
        """Has written a file, and not committed it."""
        self.open.append(self.table.write(2, days_ago=0))

    @step(2, late=which)
    def close_writer(self, late: int) -> None:
        """One that took so long that its file is gone to the trash notices that, and gives up."""
        if self.open:
            file = self.open.pop(late % len(self.open))
            if Path(file.path).exists():
                self.written({"main": self.shown("main") | file.ids}, lambda: self.table.append([file]))

    @step(place=st.sampled_from(["data/part=0", "data", "metadata", "elsewhere"]), days=st.sampled_from([0, 2, 4, 10]))
    def stray(self, place: str, days: int) -> None:
        self.table.plant(f"{place}/stray-{next(STRAYS)}.avro", days_ago=days)


def chosen(values: Any, at: int) -> Any:
    """One of them, whichever number it is."""
    return sorted(values)[at % len(values)]
