"""Processes that are really killed in the middle of an operation, on a real disk: the next one goes on, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neve.maintenance.quarantine import Fate
from neve.state import StateStore
from neve.storage.moves import StoredFiles
from tests.builders.fake_quarantines import DAY, World

CHILD = """
import os, signal, sys
from pathlib import Path
from neve.state import StateStore
from tests.maintenance import test_quarantine_killed as ours

url, directory, operation, call, number = sys.argv[1:]
with StateStore.open(url) as store:
    world = ours.make_world(store, Path(directory))
    owner = StateStore if call == "settle_candidates" else ours.StoredFiles
    real, left = getattr(owner, call), [int(number)]

    def dying(*args, **words):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **words)

    setattr(owner, call, dying)
    getattr(ours, operation)(world)
"""


def make_world(store: StateStore, directory: Path) -> World:
    """The table of the directory; ten days after its files were recorded for those who purge."""
    world = World(store, location=str(directory))
    world.files = StoredFiles({})  # type: ignore[assignment]
    world.reach.all = {str(directory / "data" / "needed")}
    return world


def settle(world: World) -> None:
    world.settle(at_once=True)


def restore(world: World) -> None:
    world.restore()


def purge(world: World) -> None:
    world.clock.ms += 10 * DAY
    world.purge()


@pytest.mark.parametrize(
    ("operation", "call", "number"),
    [
        ("settle", "settle_candidates", 1),
        ("settle", "move", 1),
        ("settle", "settle_candidates", 3),
        ("restore", "put_back", 1),
        ("restore", "settle_candidates", 2),
        ("purge", "settle_candidates", 1),
    ],
)
def test_what_a_killed_process_left_is_finished_by_the_next(tmp_path: Path, operation: str, call: str, number: int) -> None:
    url, table = f"sqlite:///{tmp_path}/state.db", tmp_path / "t"
    (table / "data").mkdir(parents=True)
    for name in ("a", "b", "needed"):
        (table / "data" / name).write_text(name)
    with StateStore.open(url) as store:
        world = make_world(store, table)
        world.record(*(str(table / "data" / name) for name in ("a", "b", "needed")))
        if operation != "settle":
            settle(world)
    command = [sys.executable, "-c", CHILD, url, str(table), operation, call, str(number)]
    assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGKILL
    with StateStore.open(url) as store:
        world = make_world(store, table)
        {"settle": settle, "restore": restore, "purge": purge}[operation](world)
        fates = {Path(path).name: fate for path, fate in world.fates().items()}
    gone = {"settle": Fate.TRASHED, "restore": Fate.RESTORED, "purge": Fate.PURGED}[operation]
    assert fates == {"a": gone, "b": gone, "needed": Fate.NEEDED}
    found = {str(path.relative_to(table)): path.read_text() for path in table.rglob("*") if path.is_file()}
    home = {"settle": ".neve-trash/run1/data", "restore": "data"}.get(operation)
    others = {f"{home}/{name}": name for name in "ab"} if home else {}
    assert found == {"data/needed": "needed", **others}
