"""How deep a commit lies: whoever reads a traceback of `neve compact` sees every frame of ours on one screen."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.api import Neve
from neve.cli.entry import main
from neve.operations import compact
from neve.operations.rewrite_run import PlannedRun
from tests.builders.commit_scenes import SPECS
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import FakeEngine, FakeTable, FakeWriter, Still, plan_of

MOST = 12


class WalkedWriter(FakeWriter):
    """Notes who calls when a commit is sent."""

    frames: list[str]

    def rewrite(self, *args: Any, **words: Any) -> None:
        frame, self.frames = sys._getframe(1), []
        while frame is not None:
            if frame.f_globals["__name__"].split(".")[0] == "neve":
                self.frames.insert(0, f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        super().rewrite(*args, **words)


def test_from_the_command_to_the_send_of_the_commit_there_are_few_frames(
    monkeypatch: pytest.MonkeyPatch, warehouse: Path
) -> None:
    table = FakeTable()
    for row, partition in enumerate("aabb"):
        table.append(row, partition=partition)
    plan, writer = plan_of(table), WalkedWriter(table)
    context = FakeContext(writer, Still(), engine=FakeEngine(table, plan), specs=SPECS)
    # What reads the table and keeps the record is beside the way to the commit.
    for name, answer in {
        "_require_possible": None,
        "_inspect": SimpleNamespace(state=None),
        "_plan": plan,
        "_planned": PlannedRun(plan, SPECS),
        "_resumable": nullcontext(),
    }.items():
        monkeypatch.setattr(compact, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(compact, "_record", lambda _, record, __: record)
    monkeypatch.setattr(Neve, "table", lambda *_, **__: context)
    monkeypatch.setattr(sys, "argv", ["neve", "compact", "db.t", "--warehouse", str(warehouse)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    assert len(table.now.data) == 2
    assert len(writer.frames) <= MOST, "\n".join(writer.frames)
