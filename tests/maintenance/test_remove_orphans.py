"""The order of a search for orphans, what ends it, and that a kill between any two steps loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from neve.core.marker import PROPERTY, Marker
from neve.core.model import TableName
from neve.core.orphans import Judged, Neighbour, OrphanRecord, Rules, Verdict
from neve.core.quarantine import Doomed
from neve.core.record import RunOutcome
from neve.errors import BadRequestError, InDoubtError, LeaseHeldError
from neve.maintenance import remove_orphans as module
from neve.maintenance.remove_orphans import OrphanRequest, OrphanTools, remove_orphans
from tests.flow.fakes import FakeTable, FakeWriter
from tests.maintenance.listed import Listed

NOW = 10**13
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
REQUEST = OrphanRequest(TableName(catalog="c", namespace=("db",), name="t"), UUID, "/wh/t", 3 * 86400, 100)
FILES = tuple(Doomed(path=f"/wh/t/data/{i}", reason="orphan", size_bytes=1) for i in range(5))


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Stage:
    """The world of one search: it writes down what is asked of it, in order, and dies where it is told to."""

    judged: Judged = field(default_factory=lambda: Judged(files={Verdict.ORPHAN: 5, Verdict.IN_USE: 9}, listed=14))
    files: Sequence[Doomed] = FILES
    metadata: Mapping[str, str] = field(default_factory=dict)
    neighbours: Sequence[Neighbour] = ()
    quarantine: Listed = field(default_factory=Listed)
    table: FakeTable = field(default_factory=FakeTable)
    dies_at: int = -1
    steps: list[str] = field(default_factory=list)
    rules: Rules | None = None

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.dies_at:
            raise KilledError(name)

    def list_files(self, root: str, rules: Rules, inventory: str | None = None) -> None:  # noqa: ARG002
        self.step("list")
        self.rules = rules

    def judge(self) -> Judged:
        self.step("judge")
        return self.judged

    def owners(self, metadata_files: Iterable[str]) -> Mapping[str, str]:
        return {path: self.metadata[path] for path in metadata_files}

    def hold(self, metadata_files: Iterable[str]) -> Judged:
        self.step("hold")
        held = {Verdict.ORPHAN: 3, Verdict.HELD: 2}
        self.files = self.files[:3]
        return self.judged.model_copy(update={"files": held, "holders": tuple(metadata_files)})

    def orphans(self) -> Iterator[Doomed]:
        yield from self.files

    def now_ms(self) -> int:
        return NOW

    def record_doomed(self, *args: Any) -> int:
        self.step("record")
        return self.quarantine.record_doomed(*args)

    def quarantined(self, *args: Any, **words: Any) -> Iterator[Any]:
        return self.quarantine.quarantined(*args, **words)

    def settle_doomed(self, *_: Any) -> None:
        raise AssertionError("a search settles nothing")

    def run(self, **changes: Any) -> OrphanRecord:
        stage = self

        class Writer(FakeWriter):
            def refresh(self) -> None:
                stage.step("refresh")
                super().refresh()

        writer = Writer(self.table)
        tools = OrphanTools(
            writer=writer,
            search=self,
            neighbours=lambda: self.neighbours,
            unfinished=lambda: (),
            clock=self,
            begin=lambda _: self.step("begin"),
            quarantine=self,
        )
        return remove_orphans(replace(REQUEST, **changes), tools)


def test_the_table_is_loaded_anew_between_the_listing_and_the_comparison() -> None:
    stage = Stage()
    record = stage.run()
    assert stage.steps == ["list", "refresh", "judge", "begin", "record"]
    assert (record.outcome, record.taken, record.listed, record.orphans) == (RunOutcome.DONE, 5, 14, 5)
    assert stage.rules is not None
    assert stage.rules.cutoff_ms == NOW - 3 * 86400 * 1000


def test_a_dry_run_tells_the_files_and_holds_and_records_nothing() -> None:
    stage = Stage()
    record = stage.run(dry_run=True, limit=3)
    assert stage.steps == ["list", "refresh", "judge"]
    assert (record.files, record.taken, record.limited) == (FILES[:3], 3, True)
    assert (stage.quarantine.files, stage.table.properties) == ({}, {})


@pytest.mark.parametrize("dies_at", range(6))
def test_a_kill_anywhere_leaves_what_the_next_run_finishes(dies_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)
    stage = Stage(dies_at=dies_at)
    with pytest.raises(KilledError):
        stage.run()
    recorded = dict(stage.quarantine.files)
    again = Stage(quarantine=stage.quarantine, table=stage.table)
    record = again.run()
    assert list(stage.quarantine.files) == [file.path for file in FILES]
    assert record.taken == 5 - len(recorded)
    assert {path: stage.quarantine.files[path].run_id for path in recorded} == {p: f.run_id for p, f in recorded.items()}
    assert PROPERTY not in stage.table.properties


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"neighbours": [Neighbour(name="c.db.u", places=("/x", "file:/wh/t/data/u"))]},
            r"c\.db\.u has files in file:/wh/t/data/u$",
        ),
        ({"neighbours": [Neighbour(name="c.db.u", places=("/wh",))]}, r"c\.db\.u has files in /wh$"),
        (
            {"neighbours": [Neighbour(name="c.db.u", trouble="denied")]},
            r"nobody knows where c\.db\.u has its files \(denied\)$",
        ),
        (
            {
                "judged": Judged(files={}, strange=("/wh/t/metadata/1",)),
                "metadata": {"/wh/t/metadata/1": "u"},
            },
            r"another table \(u\)$",
        ),
        ({"judged": Judged(files={}, conflicts=(("/a", "hdfs://a"),))}, r"/a is listed and the table names hdfs://a: they may"),
        ({"judged": Judged(files={}, other_formats=("/wh/t/_delta_log/0",))}, r"_delta_log/0 belongs to a table of another"),
        ({"judged": Judged(files={Verdict.MISSING: 2, Verdict.IN_USE: 1})}, r"lacks 2 of 3 files that the table needs there$"),
    ],
)
def test_any_doubt_ends_it_with_nothing_recorded(changes: Any, message: str) -> None:
    stage = Stage(**changes)
    with pytest.raises(InDoubtError, match=message):
        stage.run()
    assert stage.quarantine.files == {}
    assert "begin" not in stage.steps
    assert PROPERTY not in stage.table.properties


def test_somebody_may_vouch_for_a_table_that_cannot_be_loaded_but_not_for_one_that_is_there() -> None:
    unknown, here = Neighbour(name="u", trouble="denied"), Neighbour(name="v", places=("/wh/t/v",))
    assert Stage(neighbours=[unknown]).run(is_alone=True).taken == 5
    with pytest.raises(InDoubtError, match="v has files in /wh/t/v"):
        Stage(neighbours=[unknown, here]).run(is_alone=True)


def test_what_versions_need_that_are_not_in_the_history_is_held_unless_somebody_vouches() -> None:
    judged = Judged(files={Verdict.ORPHAN: 5}, strange=("/m", "/n"))
    stage = Stage(judged=judged, metadata={"/m": UUID.upper(), "/n": UUID})
    assert stage.run(is_alone=True).taken == 5
    assert "hold" not in stage.steps
    stage.quarantine.files.clear()
    record = stage.run()
    assert (record.taken, record.orphans, record.verdicts[Verdict.HELD]) == (3, 3, 2)
    (warning,) = record.warnings
    assert warning.startswith("2 files kept for 2 versions of the table not in its history, such as /m: of a second catalog, ")


def test_nothing_is_held_where_there_is_nothing_to_take() -> None:
    stage = Stage(judged=Judged(files={Verdict.STRANGE: 1}, strange=("/m",)), files=(), metadata={"/m": UUID})
    assert (stage.run().taken, "hold" in stage.steps) == (0, False)


@pytest.mark.parametrize("value", ["false", "FALSE"])
def test_a_table_without_garbage_collection_is_refused(value: str) -> None:
    stage = Stage(table=FakeTable(properties={"gc.enabled": value}))
    with pytest.raises(BadRequestError, match=r"^Cannot look for orphans of c\.db\.t: its property gc\.enabled is false$"):
        stage.run()
    assert stage.steps == []


def test_nothing_is_looked_at_while_another_run_holds_the_table() -> None:
    marker = Marker(run_id="other", owner="elsewhere:1", until_ms=NOW + 1)
    stage = Stage(table=FakeTable(properties={PROPERTY: marker.text}))
    with pytest.raises(LeaseHeldError, match=r"run other \(elsewhere:1\) is at work on it"):
        stage.run()
    assert stage.steps == []


def test_orphans_that_wait_already_are_not_counted_towards_the_limit() -> None:
    stage = Stage()
    assert [stage.run(limit=2).taken for _ in range(4)] == [2, 2, 1, 0]
    record = stage.run()
    assert (record.outcome, record.reason) == (RunOutcome.NOTHING_TO_DO, "all 5 orphans wait in the quarantine already")
    assert Stage(judged=Judged(files={}), files=()).run().reason == "every file is accounted for"
