"""No file that any table can reach is ever missed, whatever tables do to themselves and in each other's directories.

Random tables commit files in random places, spelled in random ways and through links, replace and expire snapshots, are
dropped, renamed and registered twice, between refreshes of one index, and files cannot be read for a while. The model reads
everything.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from neve.maintenance.file_index import BelowRoot, Comparison, TheseFiles
from neve.table.location import Spellings
from tests.builders.fake_catalogs import FakeTable, World, name

NAMES = st.sampled_from(["c.db.a", "c.db.b", "d.x"])
LINKS = {"/link": "/wh/c/db/a/shared", "/disk": "/wh/c/db", "/wh/c/db/b/p": "/wh/c/db/a/data"}
DIRECTORIES = [
    "/wh/c/db/a",
    "/wh/c/db/b",
    "/wh/c/db/a_2",
    "/wh/d/x",
    "/link",
    "/disk/a",
    "/disk/b",
    "/wh/c/db/b/p",
    "/wh/c/db/c/..",
]
PLACES = st.builds(
    lambda home, directory, below: f"{home}{directory}{below}",
    st.sampled_from(["", "file:", "file://"]),
    st.sampled_from(DIRECTORIES),
    st.sampled_from(["", "/data", "/data/p=1", "//shared", "/x/../data"]),
)
STORED = st.builds(
    lambda scheme, table, part: f"{scheme}://lake/{table}/data/p={part}",
    st.sampled_from(["s3", "s3a"]),
    st.sampled_from(["a", "b", "raw"]),
    st.integers(0, 40),
)
GROUPS = st.lists(st.lists(st.one_of(PLACES, STORED), min_size=1, max_size=4), min_size=1, max_size=3)
ROOTS = ["/wh/c/db/a", "/wh/c/db/b", "/disk/a", "s3://lake/a", "s3://lake/b/data"]


class Tables(RuleBasedStateMachine):
    """One index over tables that change."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(links=LINKS)
        self.number = 0

    @initialize()
    def begin(self) -> None:
        for text in ("c.db.a", "c.db.b"):
            self.world.table(text)

    def _named(self, groups: list[list[str]]) -> list[list[str]]:
        """Each directory with a file name of its own."""
        found = []
        for group in groups:
            found.append([f"{directory}/{self.number + at}.parquet" for at, directory in enumerate(group)])
            self.number += len(group)
        return found

    def _table(self, text: str) -> FakeTable:
        return self.world.tables.get(text) or self.world.table(text)

    @rule(text=NAMES, commits=st.lists(GROUPS, min_size=1, max_size=3), metadata=st.none() | PLACES)
    def commit(self, text: str, commits: list[list[list[str]]], metadata: str | None) -> None:
        for groups in commits:
            self._table(text).commit(*self._named(groups), metadata=metadata)
            self.world.index().refresh()

    @rule(text=NAMES, groups=GROUPS, keep=st.none() | st.integers(1, 3))
    def replace_all(self, text: str, groups: list[list[str]], keep: int | None) -> None:
        self._table(text).replace_all(*self._named(groups), keep=keep)

    @rule(text=NAMES, keep=st.integers(1, 3))
    def expire(self, text: str, keep: int) -> None:
        if text in self.world.tables:
            self.world.tables[text].expire(keep)

    @rule(text=NAMES, groups=GROUPS, which=st.randoms(use_true_random=False))
    def commit_while_a_file_cannot_be_read(self, text: str, groups: list[list[str]], which: Any) -> None:
        """A refresh fails to read a manifest or a list once, as when the store throttles."""
        self._table(text).commit(*self._named(groups))
        now, files = self._table(text).now, self.world.lake.files
        lost = which.choice([*now.lists, *(one.path for path in now.lists for one in files[path])])
        content = files.pop(lost)
        self.world.index().refresh()
        files[lost] = content

    @rule(text=NAMES)
    def drop(self, text: str) -> None:
        self.world.tables.pop(text, None)

    @rule(text=NAMES, to=NAMES)
    def rename(self, text: str, to: str) -> None:
        if text in self.world.tables and to not in self.world.tables:
            self.world.tables[to] = self.world.tables.pop(text)

    @rule(text=NAMES, to=NAMES)
    def register_a_copy(self, text: str, to: str) -> None:
        if text in self.world.tables and to not in self.world.tables:
            copy = FakeTable(self.world.lake, self.world.tables[text].location)
            copy.now = self.world.tables[text].now
            self.world.tables[to] = copy

    @invariant()
    def every_reachable_file_is_found(self) -> None:
        index = self.world.index()
        assert not [one for one in index.refresh() if one.trouble]
        for root in ROOTS:
            for own in (name("c.db.a"), name("none.at.all")):
                self._check(index, root, own)

    def _check(self, index: Any, root: str, own: Any) -> None:
        spellings, real = Spellings.of(), self.world.real
        found = {path for path, _ in index.needed(Comparison(BelowRoot(root, spellings, real), real, spellings), own)}
        expected = self._reachable_below(root, own)
        assert expected <= found
        asked = sorted(expected)
        by_name = {path for path, _ in index.needed(Comparison(TheseFiles(asked, spellings, real), real, spellings), own)}
        assert by_name == expected

    def _reachable_below(self, root: str, own: Any) -> set[str]:
        """As a listing of the root would spell them; of the table itself, what it spells otherwise."""
        found = set[str]()
        here = self._real(root)
        for text, table in self.world.tables.items():
            for path in table.now.reachable():
                real = self._real(path)
                if not real.startswith(f"{here}/"):
                    continue
                listed = root + real[len(here) :]
                if text != str(own) or Spellings.of().parse(path).key != Spellings.of().parse(listed).key:
                    found.add(listed)
        return found

    def _real(self, path: str) -> str:
        key = Spellings.of().parse(path).key
        if path.startswith("s3"):
            return f"s3:{key}"
        directory, _, last = key.rpartition("/")
        return f"{self.world.real(directory)}/{last}"


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=40, stateful_step_count=10, deadline=None)
