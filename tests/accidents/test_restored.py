"""Accidents with a state store of yesterday: it was restored from a backup, and knows nothing of what happened since."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from neve.maintenance.quarantine import Fate
from neve.operations import quarantine
from neve.rewrite.planner import Request
from neve.state import StateStore
from tests.accidents.unguarded import accident, answering
from tests.builders.cleanup_tables import Make, Site
from tests.builders.table_integrity import assert_whole

by_one_ref = answering(
    quarantine._needed, "(writer := moving.context.writer) and {file.path for file in writer.scan(writer.head())} & set(asked)"
)


def copied(source: Path, target: Path) -> None:
    """By SQLite's own means, since others have it open."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def overwritten(site: Site) -> None:
    site.bench.sql("DELETE FROM {} WHERE id >= 0")
    site.append(90, 100)


def on_another_branch(site: Site) -> None:
    site.bench.sql("ALTER TABLE {} CREATE BRANCH side")
    overwritten(site)
    site.bench.expire()


def tagged(site: Site) -> None:
    site.bench.sql("ALTER TABLE {} CREATE TAG kept")
    overwritten(site)
    site.bench.expire()


def tagged_and_rolled_back(site: Site) -> None:
    site.bench.sql("ALTER TABLE {} CREATE TAG kept")
    before = site.load().snapshots()[-2].snapshot_id
    site.bench.spark.sql(f"CALL local.system.rollback_to_snapshot('{site.name}', {before})").collect()


CASES: dict[str, Callable[[Site], Any]] = {
    "head": lambda _: None,
    "branch": on_another_branch,
    "tag": tagged,
    "older snapshot": overwritten,
    "tag after a rollback": tagged_and_rolled_back,
}


def compacted(site: Site, state: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Compacts, and backs the state store up when the run has begun and written nothing; gives the new files."""
    begin = StateStore.begin

    def backing_up(self: StateStore, run: Any) -> None:
        begin(self, run)
        copied(state, backup)

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "begin", backing_up)
        record = site.neve.compact(site.name, request=Request(force=True))
    return {output.path for group in record.groups for output in group.outputs}


def every_version(site: Site) -> dict[int, list[int]]:
    """The ids of every snapshot as pyiceberg reads them."""
    table = site.load()
    return {
        s.snapshot_id: sorted(table.scan(snapshot_id=s.snapshot_id).to_arrow()["id"].to_pylist()) for s in table.snapshots()
    }


@accident(
    "A run was resumed from a state store that was restored from a backup, and took back files that it had committed since",
    evidence="Neve's own trials",
    guard="What a run leaves goes into the quarantine, whose check looks at every snapshot of every branch and tag, and no "
    "storage moves or deletes a file without a proof from it.",
    without=[by_one_ref],
    sees="lost files",
)
def test_a_run_is_resumed_from_a_restored_state_store(sites: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "quarantine.db"
    for case, change in CASES.items():
        site, backup = sites(ids=20), tmp_path / f"{case}.db"
        written = compacted(site, state, backup, monkeypatch)
        assert written
        change(site)
        reads = every_version(site)
        copied(backup, state)
        (journalled,) = [run for run in site.neve.unfinished() if str(run.plan.table).endswith(site.name)]
        site.neve.resume(journalled.run_id)
        recorded = {file.path for file in site.neve.quarantined(site.name)}
        assert written & recorded == (set() if case == "head" else written), case
        site.clear()
        assert_whole(site.load(), {ref: reads_of(site, ref, reads) for ref in site.load().metadata.refs})
        assert every_version(site).items() >= reads.items(), f"lost files: {case}"
        # What the resumed run wrote itself, for a group that had been committed before, is gone.
        fates = {file.path: file.fate for file in site.neve.quarantined(site.name)}
        assert fates == {path: Fate.NEEDED if path in written else Fate.PURGED for path in recorded}, case


def reads_of(site: Site, ref: str, reads: dict[int, list[int]]) -> list[int]:
    """What a ref reads: as before, or, where the resumed run has compacted it, the same rows in another snapshot."""
    snapshot = site.load().metadata.snapshot_by_id(site.load().metadata.refs[ref].snapshot_id)
    while snapshot is not None and snapshot.snapshot_id not in reads:
        snapshot = site.load().metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    assert snapshot is not None
    return reads[snapshot.snapshot_id]
