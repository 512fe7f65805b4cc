"""A search for orphan files that reads from memory, and the run that quarantines what it finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from neve.maintenance.orphans import Judged, Neighbour, OrphanRecord, OrphanRules, Verdict
from neve.maintenance.quarantine import Candidate
from neve.operations.other_versions import Unlisted
from neve.operations.remove_orphans import OrphanTerms, find_orphans
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import FakeTable, FakeWriter
from tests.builders.quarantine_lists import ListedQuarantine

NOW = 10**13
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
TERMS = OrphanTerms("/wh/t", 3 * 86400, 100)
FILES = tuple(Candidate(path=f"/wh/t/data/{i}", reason="orphan", size_bytes=1) for i in range(5))


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Stage:
    """The world of one search: it writes down what is asked of it, in order, and dies where it is told to."""

    judged: Judged = field(default_factory=lambda: Judged(files={Verdict.ORPHAN: 5, Verdict.IN_USE: 9}, listed=14))
    files: Sequence[Candidate] = FILES
    metadata: Mapping[str, str] = field(default_factory=dict)
    neighbours: Sequence[Neighbour] = ()
    needed: Sequence[tuple[str, str]] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    quarantine: ListedQuarantine = field(default_factory=ListedQuarantine)
    table: FakeTable = field(default_factory=FakeTable)
    dies_at: int = -1
    steps: list[str] = field(default_factory=list)
    rules: OrphanRules | None = None

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.dies_at:
            raise KilledError(name)

    def list_files(self, root: str, rules: OrphanRules, inventory: str | None = None) -> None:  # noqa: ARG002
        self.step("list")
        self.rules = rules

    def judge(self) -> Judged:
        self.step("judge")
        return self.judged

    def reload(self) -> None:
        self.step("versions")

    def owners(self, metadata_files: Iterable[str], *, may_be_gone: bool = False) -> Mapping[str, str]:
        assert not may_be_gone
        return {path: self.metadata[path] for path in metadata_files}

    def needs(self, metadata_files: Iterable[str]) -> Unlisted:
        return Unlisted(tuple(metadata_files), [file.path for file in FILES[3:]])

    def hold(self, paths: Iterable[str]) -> Judged:
        self.step("hold")
        held = {Verdict.ORPHAN: 3, Verdict.HELD: len(list(paths))}
        self.files = self.files[:3]
        return self.judged.model_copy(update={"files": held})

    def drop(self, metadata_files: Iterable[str]) -> Judged:
        self.step("drop")
        dropped = tuple(Candidate(path=path, reason="metadata of a dropped table", size_bytes=1) for path in metadata_files)
        self.files = (*dropped, *self.files)
        return self.judged.model_copy(update={"files": {**self.judged.files, Verdict.DROPPED: len(dropped)}})

    def share(self, paths: Iterable[str]) -> Judged:
        self.step("share")
        shared = set(paths)
        self.files = [file for file in self.files if file.path not in shared]
        return self.judged.model_copy(update={"files": {Verdict.ORPHAN: len(self.files), Verdict.SHARED: len(shared)}})

    def orphans(self) -> Iterator[Candidate]:
        yield from self.files

    def now_ms(self) -> int:
        return NOW

    def record_candidates(self, *args: Any) -> int:
        self.step("record")
        return self.quarantine.record_candidates(*args)

    def quarantined(self, *args: Any, **words: Any) -> Iterator[Any]:
        return self.quarantine.quarantined(*args, **words)

    def settle_candidates(self, *_: Any) -> None:
        raise AssertionError("a search settles nothing")

    def run(self, **changes: Any) -> OrphanRecord:
        stage = self

        class Writer(FakeWriter):
            def refresh(self) -> None:
                stage.step("refresh")
                super().refresh()

        writer = Writer(self.table)
        context: Any = Beginning(writer, self, uuid=UUID, quarantine=self)
        index: Any = SimpleNamespace(refresh=lambda: self.neighbours, needed=lambda *_: self.needed)

        def real(directory: str) -> str:
            return self.links.get(directory, directory)

        return find_orphans(context, replace(TERMS, **changes), self, index, self, real=real)

    def unfinished(self) -> tuple[()]:
        return ()

    def adopt_trash(self, *_: object) -> int:
        return 0


class Beginning(FakeContext):
    """Notes when the run begins."""

    def begin(self, *_: object) -> None:
        self.clock.step("begin")
