"""Compactions in which a single group fails: the kinds of failure, and what must remain afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from neve.operations import rewrite_run as run_module
from neve.rewrite.record import RunRecord
from tests.builders.commit_scenes import tools_of
from tests.builders.compaction_runs import Notes
from tests.builders.contexts import compact
from tests.builders.fake_tables import FakeDeletes, FakeEngine, FakeTable, FakeWriter, plan_of

BAD = 1
"""The group of partition b."""


def unreadable() -> Exception:
    return UnicodeDecodeError("utf-8", b"x\xc3\xc3", 1, 2, "invalid continuation byte")


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no text")


FAULTS: dict[str, Callable[[], Exception]] = {
    "zero-division": lambda: ZeroDivisionError("division by zero"),
    "unicode": unreadable,
    "memory": MemoryError,
    "recursion": lambda: RecursionError("maximum recursion depth exceeded"),
    "surrogate": lambda: KeyError("a\udcc3\x00b"),
    "unprintable": Unprintable,
}


def three_partitions() -> FakeTable:
    table = FakeTable()
    for row, partition in enumerate("aabbcc"):
        table.append(row, partition=partition)
    return table


@dataclass
class Scene:
    """One run, whose stages can be made to raise for the group of partition b."""

    fault: Callable[[], Exception]
    patch: pytest.MonkeyPatch
    table: FakeTable = field(default_factory=three_partitions)

    def __post_init__(self) -> None:
        self.plan = plan_of(self.table)
        self.notes = Notes()
        self.engine = FakeEngine(self.table, self.plan)
        self.writer = FakeWriter(self.table)
        self.deletes = FakeDeletes(self.table)
        self.tools = replace(self.make_tools(), journal=self.notes, deletes=self.deletes)

    def make_tools(self) -> Any:
        return tools_of(self.writer, self.engine)

    def run(self) -> RunRecord:
        return compact(self.plan, self.tools)

    def strike(self, on: bool) -> None:
        if on:
            raise self.fault()

    def raising(self, owner: Any, name: str, when: Callable[..., bool]) -> None:
        """Lets a function raise where its arguments are those of the group at fault."""
        plain = getattr(owner, name)

        def wrapped(*args: Any, **words: Any) -> Any:
            self.strike(when(*args, **words))
            return plain(*args, **words)

        self.patch.setattr(owner, name, wrapped)


def proving(scene: Scene) -> None:
    scene.raising(run_module, "proof_of", lambda result, *_: result.group_id == BAD)


def assert_clean(scene: Scene) -> None:
    """Every file that the run wrote is live, or was discarded; no live file ever was."""
    ours = {path for path in scene.table.contents if "neve-" in path}
    live = set(scene.table.now.data) | {key[0] for key in scene.table.now.deletes}
    assert ours - live == set(scene.engine.quarantine.paths) & ours
    assert not live & set(scene.engine.quarantine.paths)
