"""The order of a search for orphans, what ends it, and that a kill between any two steps loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from neve.commit.marker import PROPERTY, Marker
from neve.errors import BadRequestError, InDoubtError, LeaseHeldError, MissingFileError
from neve.maintenance.file_index import Trust
from neve.maintenance.orphans import Judged, Neighbour, Verdict
from neve.maintenance.quarantine import Fate
from neve.operations import remove_orphans as module
from neve.policy.model import Policy
from neve.rewrite.record import RunOutcome
from neve.state.rows import Run
from tests.builders.fake_tables import FakeTable
from tests.builders.orphan_scenes import FILES, NOW, UUID, KilledError, Stage
from tests.builders.table_states import make_state


def test_the_table_is_loaded_anew_between_the_listing_and_the_comparison() -> None:
    stage = Stage()
    record = stage.run()
    assert stage.steps == ["list", "versions", "refresh", "judge", "refresh", "begin", "record"]
    assert (record.outcome, record.taken, record.listed, record.orphans) == (RunOutcome.DONE, 5, 14, 5)
    assert stage.rules is not None
    assert stage.rules.cutoff_ms == NOW - 3 * 86400 * 1000


def test_a_dry_run_tells_the_files_and_holds_and_records_nothing() -> None:
    stage = Stage()
    record = stage.run(dry_run=True, limit=3)
    assert stage.steps == ["list", "versions", "refresh", "judge"]
    assert (record.files, record.taken, record.limited) == (FILES[:3], 3, True)
    assert (stage.quarantine.files, stage.table.properties, record.run_id) == ({}, {}, None)


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
            r"it is not known where c\.db\.u has its files \(denied\)$",
        ),
        (
            {
                "judged": Judged(files={}, strange=("/wh/t/metadata/1",)),
                "metadata": {"/wh/t/metadata/1": "u"},
            },
            r"another table is there \(u: 1 metadata file, the newest is /wh/t/metadata/1\)$",
        ),
        ({"judged": Judged(files={}, conflicts=(("/a", "hdfs://a"),))}, r"/a is listed and the table names hdfs://a: they may"),
        ({"judged": Judged(files={}, other_formats=("/wh/t/_delta_log/0",))}, r"_delta_log/0 belongs to a table of another"),
        (
            {"judged": Judged(files={}, checkpoints=("/wh/t/c/offsets/0",))},
            r"c/offsets/0 belongs to the checkpoint of a stream$",
        ),
        (
            {"judged": Judged(files={Verdict.MISSING: 2, Verdict.IN_USE: 1})},
            r"lacks 2 of 3 files that the table needs there$",
        ),
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


OLD = "0a12d441-03fe-4693-9a96-a0705ddf69c1"
LEFT = {"/wh/t/metadata/1-a": OLD.upper(), "/wh/t/metadata/2-a": OLD}


def left_behind(**changes: Any) -> Stage:
    """A table that was created where another one was dropped, whose files are still there."""
    judged = Judged(files={Verdict.ORPHAN: 5, Verdict.STRANGE: 2}, strange=tuple(LEFT))
    return Stage(**{"judged": judged, "metadata": LEFT, **changes})


def test_leftovers_of_a_dropped_table_are_listed_with_the_command_that_resolves_them() -> None:
    third = {"/wh/t/metadata/9-b": "u"}
    stage = left_behind(judged=Judged(files={}, strange=(*LEFT, *third)), metadata=LEFT | third)
    for is_alone in (False, True):
        with pytest.raises(InDoubtError) as caught:
            stage.run(is_alone=is_alone)
        assert str(caught.value) == (
            "Cannot tell orphans in /wh/t: metadata of 2 other tables is there "
            f"({OLD}: 2 metadata files, the newest is /wh/t/metadata/2-a; u: 1 metadata file, the newest is /wh/t/metadata/9-b)"
        )
        command = f"neve orphans c.db.t --dropped-table {OLD} --dropped-table u"
        assert f"`{command} --dry-run`" in (caught.value.hint or "")
        assert f"`{command}`" in (caught.value.hint or "")
    assert stage.quarantine.files == {}


def test_a_dropped_table_that_somebody_vouches_for_goes_to_the_quarantine_metadata_first() -> None:
    stage = left_behind()
    record = stage.run(dropped=frozenset({OLD}), limit=3)
    assert list(stage.quarantine.files) == [*LEFT, FILES[0].path]
    assert (record.taken, record.limited, record.orphans, record.verdicts[Verdict.DROPPED]) == (3, True, 7, 2)


def test_leftovers_that_wait_in_the_quarantine_are_no_doubt_any_more() -> None:
    stage = left_behind()
    stage.run(dropped=frozenset({OLD}), limit=3)
    record = left_behind(quarantine=stage.quarantine).run()
    assert (record.taken, record.orphans) == (4, 7)
    assert left_behind(quarantine=stage.quarantine).run().reason == "all 7 orphans wait in the quarantine already"


def test_restored_leftovers_are_doubt_again() -> None:
    stage = left_behind()
    stage.run(dropped=frozenset({OLD}))
    for path, file in stage.quarantine.files.items():
        stage.quarantine.files[path] = file.model_copy(update={"fate": Fate.RESTORED})
    with pytest.raises(InDoubtError, match="metadata of another table"):
        left_behind(quarantine=stage.quarantine).run()


def test_nobody_can_vouch_that_a_table_of_a_configured_catalog_was_dropped() -> None:
    alive = Neighbour(name="d.db.u", places=("/elsewhere",), uuid=OLD.upper())
    stage = left_behind(neighbours=[alive])
    with pytest.raises(InDoubtError, match=rf"^Cannot treat table {OLD} as dropped: it is d\.db\.u$"):
        stage.run(dropped=frozenset({OLD}))
    assert stage.quarantine.files == {}


def test_the_own_versions_of_a_table_are_held_beside_leftovers_of_another() -> None:
    judged = Judged(files={Verdict.ORPHAN: 5}, strange=("/m", *LEFT))
    stage = left_behind(judged=judged, metadata={"/m": UUID, **LEFT})
    record = stage.run(dropped=frozenset({OLD}))
    assert stage.steps[-5:] == ["drop", "hold", "refresh", "begin", "record"]
    assert record.warnings[0].startswith("2 files kept for 1 version of the table not in its history, such as /m: ")


def test_nothing_is_held_where_there_is_nothing_to_take() -> None:
    stage = Stage(judged=Judged(files={Verdict.STRANGE: 1}, strange=("/m",)), files=(), metadata={"/m": UUID})
    assert (stage.run().taken, "hold" in stage.steps) == (0, False)


@pytest.mark.parametrize("value", ["false", "FALSE", "no", "0", "true ", ""])
def test_a_table_without_garbage_collection_is_refused(value: str) -> None:
    stage = Stage(table=FakeTable(properties={"gc.enabled": value}))
    with pytest.raises(BadRequestError, match=rf"^Cannot look for orphans of c\.db\.t: its property gc\.enabled is {value}$"):
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
    assert record.already_recorded == 5
    assert [rule.until for rule in record.not_due] == ["`neve quarantine settle TABLE` has moved them"]
    assert Stage(judged=Judged(files={}), files=()).run().reason == "every file is accounted for"


DAY = 86_400_000


def test_files_that_are_too_young_are_counted_and_due_when_the_oldest_of_them_reaches_the_age() -> None:
    written = NOW - 2 * DAY
    young = Stage(judged=Judged(files={Verdict.FRESH: 3, Verdict.IN_USE: 9}, oldest_fresh_ms=written), files=()).run()
    assert young.reason == "3 files that no snapshot needs are younger than 3 days"
    [rule] = young.not_due
    assert (rule.what, rule.knob) == ("3 files that no snapshot needs, younger than 3 days", "orphan-age")
    # A file is a candidate once it is older than the age, not at it.
    assert rule.due_ms == written + 3 * DAY + 1
    one = Stage(judged=Judged(files={Verdict.FRESH: 1}, oldest_fresh_ms=written), files=()).run()
    assert one.reason == "1 file that no snapshot needs is younger than 3 days"


def test_the_moment_at_which_a_young_file_is_due_is_the_first_at_which_it_is_a_candidate() -> None:
    written, found = NOW - 2 * DAY, Stage()
    found.run()
    assert found.rules is not None
    [rule] = Stage(judged=Judged(files={Verdict.FRESH: 1}, oldest_fresh_ms=written), files=()).run().not_due
    assert rule.due_ms is not None
    for moment, verdict in ((rule.due_ms - 1, Verdict.FRESH), (rule.due_ms, Verdict.CANDIDATE)):
        then = found.rules.model_copy(update={"cutoff_ms": moment - 3 * DAY})
        judged = then.judge("/wh/t/data/x", written)
        assert judged is not None
        assert judged[0] is verdict


def test_files_of_unknown_age_are_due_once_their_age_is_known() -> None:
    record = Stage(judged=Judged(files={Verdict.FRESH: 2}), files=()).run()
    assert record.reason == "2 files that no snapshot needs are of unknown age"
    [rule] = record.not_due
    assert (rule.due_ms, rule.until) == (None, "the storage reports when they were written")


def test_a_table_without_files_to_judge_says_which_file_would_be_an_orphan() -> None:
    [rule] = Stage(judged=Judged(files={}), files=()).run().not_due
    assert rule.until == "a file without a snapshot is 3 days old"


def test_orphans_that_wait_already_are_counted_beside_those_that_are_recorded() -> None:
    stage = Stage()
    stage.run(limit=2)
    record = stage.run(dry_run=True)
    assert (record.taken, record.already_recorded, record.orphans) == (3, 2, 5)


def test_young_files_beside_orphans_that_wait_are_due_by_themselves() -> None:
    judged = Judged(files={Verdict.ORPHAN: 5, Verdict.FRESH: 1}, listed=6, oldest_fresh_ms=NOW - DAY)
    stage = Stage(judged=judged)
    stage.run()
    record = stage.run()
    assert record.reason == (
        "all 5 orphans wait in the quarantine already, and 1 file that no snapshot needs is younger than 3 days"
    )
    assert [rule.rule for rule in record.not_due] == ["orphan-age", "waiting"]


def test_a_single_orphan_that_waits_is_no_plural() -> None:
    stage = Stage(judged=Judged(files={Verdict.ORPHAN: 1}), files=FILES[:1])
    stage.run()
    record = stage.run()
    assert (record.reason, record.not_due[0].what) == (
        "the only orphan waits in the quarantine already",
        "1 orphan waits in the quarantine",
    )


def test_leftovers_of_a_dropped_table_that_wait_are_orphans_that_wait() -> None:
    judged = Judged(files={Verdict.STRANGE: 2}, strange=tuple(LEFT))
    stage = left_behind(judged=judged, files=())
    stage.run(dropped=frozenset({OLD}))
    again = left_behind(judged=judged, files=(), quarantine=stage.quarantine).run()
    assert (again.reason, again.not_due[0].rule) == ("all 2 orphans wait in the quarantine already", "waiting")


def test_files_that_another_table_needs_are_kept_and_named() -> None:
    stage = Stage(needed=[(FILES[0].path, "c.db.u"), (FILES[1].path, "d.v")])
    record = stage.run()
    assert stage.steps == ["list", "versions", "refresh", "judge", "share", "refresh", "begin", "record"]
    assert list(stage.quarantine.files) == [file.path for file in FILES[2:]]
    assert record.warnings == ("2 files kept: needed by c.db.u and 1 other table",)


def test_other_tables_are_asked_after_the_listing() -> None:
    stage = Stage()
    stage.neighbours = Asked(stage)
    stage.run()
    assert stage.steps[:4] == ["list", "neighbours", "versions", "refresh"]


class Asked(Sequence[Neighbour]):
    """Nobody, and the moment in which somebody asked."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __iter__(self) -> Iterator[Neighbour]:
        self._stage.step("neighbours")
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, _: Any) -> Any:
        raise IndexError


def test_doubt_about_the_table_itself_comes_after_its_own_error() -> None:
    class Unreadable(Stage):
        def judge(self) -> Judged:
            raise MissingFileError("Cannot read m.avro: it is not there")

    itself = Neighbour(name="c.db.t", places=("/wh/t",), trouble="no manifest")
    with pytest.raises(MissingFileError):
        Unreadable(neighbours=[itself]).run()
    stage = Stage(neighbours=[itself])
    with pytest.raises(InDoubtError, match=r"not known where c\.db\.t has its files \(no manifest\)$"):
        stage.run()
    assert stage.quarantine.files == {}
    assert Stage(neighbours=[itself]).run(is_alone=True).taken == 5


def test_the_table_itself_under_another_name_is_no_neighbour_and_the_files_that_it_needs_stay() -> None:
    twice = Neighbour(name="d.db.t", places=("/wh/t",), uuid=UUID.upper())
    stage = Stage(neighbours=[twice], needed=[(FILES[0].path, "d.db.t")])
    assert stage.run().taken == 4
    assert FILES[0].path not in {file.path for file in stage.quarantine.files.values()}
    other = twice.model_copy(update={"uuid": "0a12d441-03fe-4693-9a96-a0705ddf69c1"})
    with pytest.raises(InDoubtError, match=r"d\.db\.t has files in /wh/t$"):
        Stage(neighbours=[other]).run(is_alone=True)
    unreadable = twice.model_copy(update={"trouble": "denied"})
    with pytest.raises(InDoubtError, match=r"not known where d\.db\.t has its files"):
        Stage(neighbours=[unreadable]).run()


def test_the_table_itself_is_no_neighbour_and_one_behind_a_link_is() -> None:
    assert Stage(neighbours=[Neighbour(name="c.db.t", places=("/wh/t",))]).run().taken == 5
    linked = Neighbour(name="c.db.u", places=("/elsewhere/u",))
    with pytest.raises(InDoubtError, match=r"c\.db\.u has files in /elsewhere/u$"):
        Stage(neighbours=[linked], links={"/elsewhere/u": "/wh/t/data"}).run()


@pytest.mark.parametrize("trust", [Trust(ignored=("c.db",)), Trust(exclusive_prefixes=("file:///wh",))])
def test_settings_may_vouch_for_a_table_that_cannot_be_read(trust: Trust) -> None:
    unknown = Neighbour(name="c.db.u", trouble="denied")
    assert Stage(neighbours=[unknown]).run(trust=trust).taken == 5
    with pytest.raises(InDoubtError) as caught:
        Stage(neighbours=[unknown]).run(trust=Trust(ignored=("c.db.other",), exclusive_prefixes=("/wh/t/data",)))
    assert "orphans.ignore-tables=c.db.u" in (caught.value.hint or "")
    assert "orphans.exclusive-prefixes=/wh/t" in (caught.value.hint or "")


def test_a_file_that_a_link_leads_to_is_not_taken_from_an_inventory() -> None:
    stage = Stage(links={"/wh/t/data": "/disk/u/data"})
    record = stage.run()
    assert (record.taken, record.reason) == (0, "5 files are stored elsewhere, behind a symbolic link")
    assert [rule.until for rule in record.not_due] == ["no symbolic link leads to them"]
    assert Stage(links={"/wh/t": "/disk/t", "/wh/t/data": "/disk/t/data"}).run().taken == 5


WHOLE = {"location": "/wh/t", "limited": False}


@pytest.mark.parametrize(
    ("record", "outcome", "is_due"),
    [
        (WHOLE, "done", False),
        (WHOLE, "nothing-to-do", False),
        (WHOLE | {"location": "/wh/t/data/day=1"}, "done", True),  # it looked at a part of the table
        (WHOLE | {"limited": True}, "done", True),  # it left orphans for the next search
        (WHOLE, "failed", True),  # it was killed
    ],
)
def test_only_a_search_of_the_whole_table_that_has_ended_puts_off_the_next_one(
    record: dict[str, Any], outcome: str, is_due: bool
) -> None:
    run = Run("r", UUID, "c.db.t", "orphans", NOW - 2_000, NOW - 1_000, outcome, record)
    state = make_state(location="/wh/t/")
    context: Any = SimpleNamespace(
        state=state,
        uuid=UUID,
        clock=SimpleNamespace(now_ms=lambda: NOW),
        policy=Policy,
        records=SimpleNamespace(runs=lambda *_, **__: [run]),
    )
    assert module.is_due(context).due is is_due
