"""Every operation that holds a table asks whether it still does before it changes anything, and stops with nothing removed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import neve
from neve.commit.lease import Held
from neve.errors import NeveError, RunTakenOverError, TableGoneError
from neve.maintenance.delete_files import Upkeep
from neve.operations.requests import StatsRequest
from neve.operations.rollback import roll_back
from neve.operations.statistics import keep_statistics
from neve.operations.tags import keep_tags
from neve.state import StateStore
from tests.builders.compaction_runs import compacted, small_table
from tests.builders.delete_scenes import Scene as Upkept
from tests.builders.expiry_scenes import Bench as Expiry
from tests.builders.fake_quarantines import World
from tests.builders.fake_tables import FakeWriter
from tests.builders.manifest_scenes import many_manifests, rewrite
from tests.builders.orphan_scenes import Stage
from tests.builders.tagged_tables import KEEP, tagged_table
from tests.builders.ttl_scenes import Scene as Past

LOST = [RunTakenOverError("Cannot go on with run r: taken over"), TableGoneError("Cannot go on with t: it was dropped")]


@pytest.fixture(params=LOST, ids=["taken-over", "gone"], autouse=True)
def lost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is lost before the first change."""

    def losing(_: Held) -> None:
        raise request.param

    monkeypatch.setattr(Held, "assert_held", losing)


def stops() -> pytest.RaisesExc[NeveError]:
    return pytest.raises(NeveError, match=r"^Cannot go on with ")


def test_rows_past_their_time_stay() -> None:
    scene = Past()
    before = scene.table.visible()
    with stops():
        scene.run()
    assert scene.table.visible() == before


def test_no_snapshot_is_expired_and_no_file_recorded() -> None:
    bench = Expiry()
    with stops():
        bench.expire()
    assert (bench.table.commits, bench.quarantine.files) == (0, {})


def test_no_orphan_is_recorded() -> None:
    stage = Stage()
    with stops():
        stage.run()
    assert "record" not in stage.steps


def test_manifests_stay_and_new_ones_are_not_recorded() -> None:
    table = many_manifests()
    with stops():
        rewrite(table)
    assert (table.sent, len(table.versions), table.doomed) == (0, 5, [])


def test_deletes_stay_and_new_ones_are_not_removed() -> None:
    scene = Upkept()
    with stops():
        scene.run(Upkeep.CONVERT)
    assert (scene.ours(), scene.engine.quarantine.paths) == ([], [])


def test_no_file_is_moved_to_the_trash() -> None:
    with StateStore.open("sqlite://") as store:
        world = World(store)
        world.record(*world.put("a", "b"))
        before = dict(world.files.contents)
        with stops():
            world.settle(at_once=True)
    assert world.files.contents == before


def test_tags_and_statistics_stay() -> None:
    table = tagged_table()
    refs = dict(table.refs)
    with stops():
        keep_tags(table.context(), table, KEEP, prefix="neve")
    with stops():
        keep_statistics(table.context(), table, StatsRequest(columns=("city",)))
    assert (table.refs, table.statistics, table.doomed) == (refs, [], [])


def test_a_branch_is_not_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table()
    with monkeypatch.context() as patch:
        patch.setattr(Held, "assert_held", lambda _: None)
        record = compacted(table)
    head = table.head

    def losing() -> None:
        raise LOST[0]

    with stops():
        roll_back(record, FakeWriter(table), losing)
    assert table.head == head


def test_every_module_that_holds_a_table_asks_whether_it_still_does() -> None:
    """A new operation that takes a lease and never asks fails here."""
    silent = []
    for path in Path(str(neve.__file__)).parent.rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}
        source = path.read_text(encoding="utf-8")
        # `leased_run` hands the lease on to `operations.rewrite_run`, which asks.
        if "leased" in names and "assert_held" not in source and path.name != "takeover.py":
            silent.append(path.name)
    assert silent == []
