"""The quarantine as a state machine: recordings, second looks, restores, purges, and a kill at any step of any of them.

Whatever happens in whatever order: a file that the table needs is in its place at every moment, and a file that was not purged
can be brought back with the content that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from neve.errors import BadRequestError
from neve.maintenance.quarantine import Fate, QuarantineRecord, is_trash, original_path
from neve.state import StateStore
from tests.builders.fake_quarantines import DAY, HOUR, LOCATION, KilledError, World

NAMES = tuple("abcdef")
RUNS = ("run1", "run2", "run3")
UUIDS = count()
STORE = StateStore.open("sqlite://")

names = st.sets(st.sampled_from(NAMES), min_size=1)
kills = st.one_of(st.none(), st.integers(1, 30))


class QuarantineLife(RuleBasedStateMachine):
    """`content` is what every file held; `purged` are those whose purge has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(STORE, uuid=f"t{next(UUIDS)}")
        self.content = {path: f"of {path}" for path in self.world.put(*NAMES)}
        self.purged: set[str] = set()

    @rule(chosen=names, run=st.sampled_from(RUNS))
    def record(self, chosen: set[str], run: str) -> None:
        """An operation judges, rightly or not; what the table needs may be among it."""
        self.world.record(*(path for path in self._paths(chosen) if path not in self.purged), run_id=run)

    @rule(chosen=names)
    def table_needs(self, chosen: set[str]) -> None:
        """Another commit, a rollback, a branch: only what is in its place can come to be needed by a writer who looks."""
        in_place = {path for path in self._paths(chosen) if path in self.world.files.contents}
        self.world.reach.all = in_place

    @rule(hours=st.integers(1, 400))
    def time_passes(self, hours: int) -> None:
        self.world.clock.ms += hours * HOUR

    @rule(kill=kills, at_once=st.booleans(), limit=st.one_of(st.none(), st.integers(1, 3)))
    def settle(self, kill: int | None, at_once: bool, limit: int | None) -> None:
        self._carry_out(kill, lambda: self.world.settle(at_once=at_once, limit=limit))

    @rule(kill=kills, run=st.sampled_from(RUNS))
    def restore(self, kill: int | None, run: str) -> None:
        self._restore(kill, run)

    def _restore(self, kill: int | None, run: str) -> None:
        fates = {row.fate for row in self.world.rows().values() if row.run_id == run}
        if fates - {Fate.PURGED}:
            self._carry_out(kill, lambda: self.world.restore(run))
        else:
            reason = "all of its files are purged" if fates else "it put no file of lake.db.t into the quarantine"
            with pytest.raises(BadRequestError, match=f"Cannot restore run {run}: {reason}"):
                self.world.restore(run)

    @rule(kill=kills, limit=st.one_of(st.none(), st.integers(1, 3)))
    def purge(self, kill: int | None, limit: int | None) -> None:
        before = self._in_trash()
        self._carry_out(kill, lambda: self.world.purge(limit=limit))
        old = self.world.clock.ms - 7 * DAY
        lost = {path for path in before if not self._lies(path)}
        assert all(before[path] < old for path in lost)
        self.purged |= lost

    def _carry_out(self, kill: int | None, operation: Callable[[], QuarantineRecord]) -> None:
        with self._killed_at(kill):
            assert operation().failed == 0

    @contextmanager
    def _killed_at(self, step: int | None) -> Iterator[None]:
        fuse = self.world.fuse
        fuse.steps, fuse.last = 0, step
        try:
            yield
        except KilledError:
            pass
        finally:
            fuse.last = None

    @invariant()
    def what_is_needed_is_in_its_place(self) -> None:
        contents = self.world.files.contents
        assert {path: contents.get(path) for path in self.world.reach.all} == {p: self.content[p] for p in self.world.reach.all}

    @invariant()
    def every_file_is_somewhere_until_it_is_purged(self) -> None:
        contents = self.world.files.contents
        for path, content in self.content.items():
            found = {contents[where] for where in contents if path in (where, original_path(where))}
            assert found == (set() if path in self.purged else {content})

    @invariant()
    def the_list_knows_where_every_file_is(self) -> None:
        rows = self.world.rows()
        for where in self.world.files.contents:
            if is_trash(where):
                assert rows[original_path(where)].trash_path == where
        for path, row in rows.items():
            if row.fate in (Fate.NEEDED, Fate.RESTORED):
                assert self._is_here(path)

    def teardown(self) -> None:
        """In the end every run is restored: what is not purged is in its place and whole, and nothing is left in the trash."""
        for run in RUNS:
            self._restore(None, run)
        kept = {path: content for path, content in self.content.items() if path not in self.purged}
        assert self.world.files.contents == kept

    def _in_trash(self) -> dict[str, int]:
        return {path: row.changed_ms for path, row in self.world.rows().items() if row.fate is Fate.TRASHED}

    def _is_here(self, path: str) -> bool:
        return path in self.world.files.contents

    def _lies(self, path: str) -> bool:
        return any(path in (where, original_path(where)) for where in self.world.files.contents)

    def _paths(self, chosen: set[str]) -> list[str]:
        return [f"{LOCATION}/data/{name}" for name in sorted(chosen)]


TestQuarantineLife = QuarantineLife.TestCase
TestQuarantineLife.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
