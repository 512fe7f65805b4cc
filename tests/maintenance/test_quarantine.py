"""Second looks, purges and restores over a storage and a list that fail, or die, at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    LeaseHeldError,
    MissingFileError,
    NeveError,
    RunTakenOverError,
    StorageError,
    TableGoneError,
)
from neve.maintenance.quarantine import Fate, FateChange, QuarantineRecord
from neve.maintenance.record import Operation
from neve.maintenance.removal import Unreachable
from neve.operations import quarantine
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from tests.builders.fake_quarantines import DAY, LOCATION, KilledError, World

TRASH = f"{LOCATION}/.neve-trash/run1/data"


@pytest.fixture(scope="module")
def store() -> Iterator[StateStore]:
    with StateStore.open("sqlite://") as opened:
        yield opened


@pytest.fixture
def world(store: StateStore, request: pytest.FixtureRequest) -> World:
    return World(store, uuid=request.node.name[-60:])


def numbers(record: QuarantineRecord) -> tuple[RunOutcome, int, int, int, int]:
    return record.outcome, record.files, record.needed, record.missing, record.failed


def test_files_wait_for_the_grace_time_are_asked_for_again_and_only_then_go(world: World) -> None:
    a, b, c = world.put("a", "b", "c")
    assert world.record(a, b, c) == 3
    world.clock.ms += DAY
    waiting = world.settle()
    assert numbers(waiting) == (RunOutcome.NOTHING_TO_DO, 0, 0, 0, 0)
    [rule] = waiting.not_due
    assert (rule.knob, rule.measured, rule.threshold, rule.due_ms) == (
        "quarantine-grace",
        86_400,
        86_400,
        world.clock.ms + 1,
    )
    assert world.reach.asked == 0
    world.clock.ms += 1
    world.reach.all = {b}
    record = world.settle()
    assert numbers(record) == (RunOutcome.DONE, 2, 1, 0, 0)
    assert (record.operation, record.size_bytes, record.runs, record.more) == (Operation.SETTLE, 20, ("run1",), False)
    assert world.files.contents == {f"{TRASH}/a": f"of {a}", f"{TRASH}/c": f"of {c}", b: f"of {b}"}
    assert world.fates() == {a: Fate.TRASHED, b: Fate.NEEDED, c: Fate.TRASHED}
    nothing = world.settle()
    assert nothing.reason == "no file has been in the quarantine for the grace time and waits"
    assert [str(rule) for rule in nothing.not_due] == ["no file is in the quarantine, due once there is one"]


def test_only_an_explicit_word_moves_files_at_once_and_even_then_they_are_asked_for(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.reach.all = {a}
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 1, 1, 0, 0)
    assert a in world.files.contents


def test_a_file_that_was_written_again_since_it_was_recorded_stays_and_is_forgotten(world: World) -> None:
    """A retried job writes its batch to the same path. It has not committed yet, so nothing shows that the file is needed."""
    listed, expired, resized, same = world.put("listed", "expired", "resized", "same")
    world.files.modified |= dict.fromkeys((listed, resized, same), 1_999)
    for path in (listed, resized, same):
        world.record(path, size_bytes=len(world.files.contents[path]), modified_ms=1_000)  # S3 tells seconds
    world.record(expired)
    world.clock.ms += 2 * DAY
    world.files.modified |= {listed: world.clock.ms, expired: world.clock.ms}
    world.files.contents[resized] += "more"
    assert [(change.path, change.step.value) for change in world.settle(dry_run=True).changes] == [
        (same, "move to the trash"),
        (expired, "stay: written again since it was recorded"),
        (listed, "stay: written again since it was recorded"),
        (resized, "stay: written again since it was recorded"),
    ]
    record = world.settle()
    assert (*numbers(record), record.rewritten) == (RunOutcome.DONE, 1, 0, 0, 0, 3)
    assert set(world.files.contents) == {listed, expired, resized, f"{TRASH}/same"}
    assert world.fates() == {**dict.fromkeys((listed, expired, resized), Fate.NEEDED), same: Fate.TRASHED}
    assert world.settle().outcome is RunOutcome.NOTHING_TO_DO


def test_a_file_that_was_written_again_while_its_move_was_interrupted_stays_and_its_copy_is_in_the_trash(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.fuse.last = world.fuse.steps + 6  # after the copy
    with pytest.raises(KilledError):
        world.settle(at_once=True)
    world.fuse.last = None
    assert set(world.files.contents) == {a, f"{TRASH}/a"}
    world.clock.ms += DAY
    world.files.contents[a], world.files.modified[a] = "new content", world.clock.ms
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 1, 0, 0, 0)
    assert world.files.contents == {a: "new content", f"{TRASH}/a": f"of {a}"}
    assert world.fates() == {a: Fate.TRASHED}


def test_files_of_a_stream_s_checkpoint_stay_even_if_they_were_recorded(world: World) -> None:
    offset, metadata = f"{LOCATION}/checkpoint/offsets/0", f"{LOCATION}/checkpoint/metadata"
    world.files.contents |= {offset: "v1", metadata: "{}"}
    world.record(offset, metadata)
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 0, 2, 0, 0)
    assert set(world.files.contents) == {offset, metadata}


def test_a_dry_run_tells_every_step_and_changes_nothing(world: World) -> None:
    a, b, c = world.put("a", "b", "c")
    world.record(a, b, c, f"{LOCATION}/data/gone")
    world.reach.all = {b}
    before, rows = dict(world.files.contents), world.rows()
    told = world.settle(at_once=True, dry_run=True)
    assert [(change.path[-1], change.step.value) for change in told.changes] == [
        ("e", "missing"),
        ("a", "move to the trash"),
        ("c", "move to the trash"),
        ("b", "stay"),
    ]
    assert numbers(told) == numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 2, 1, 1, 0)
    assert told.run_id is None
    assert before == {path: f"of {path}" for path in (a, b, c)}
    assert {row.fate for row in rows.values()} == {Fate.RECORDED}


def test_a_dry_run_of_each_operation_takes_no_lease_and_writes_nothing(world: World) -> None:
    world.record(*world.put("a", "b"))
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    before, rows = dict(world.files.contents), world.rows()
    world.store.take_lease(world.uuid, run_id="x", owner="elsewhere:1", now_ms=world.clock.ms, lease_ms=9)
    assert [change.step.value for change in world.purge(dry_run=True).changes] == ["purge", "purge"]
    assert [change.step.value for change in world.restore(dry_run=True).changes] == ["put back", "put back"]
    assert (world.files.contents, world.rows()) == (before, rows)
    with pytest.raises(LeaseHeldError, match="run x"):
        world.purge()


def test_sizes_that_nobody_knew_are_recorded_when_files_are_moved_and_shown_from_then_on(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, size_bytes=None)
    sizes = {path: len(content) for path, content in world.files.contents.items()}
    told = world.settle(at_once=True, dry_run=True)
    assert (told.size_bytes, told.files_without_size, told.changes[0].size_bytes) == (sizes[a], 0, sizes[a])
    assert world.rows()[a].size_bytes is None  # a dry run writes nothing
    moved = world.settle(at_once=True)
    assert (moved.files, moved.size_bytes, moved.files_without_size) == (1, sizes[a], 0)
    assert world.rows()[a].size_bytes == sizes[a]
    world.record(b, size_bytes=None)
    back = world.restore()
    assert (back.files, back.size_bytes, back.files_without_size) == (2, sizes[a], 1)  # the other was never looked at
    world.record(a, run_id="run2", size_bytes=None)
    world.settle(at_once=True, run_id="run2")
    world.clock.ms += 8 * DAY
    gone = world.purge()
    assert (gone.files, gone.size_bytes, gone.files_without_size) == (1, sizes[a], 0)


def test_a_missing_file_is_told_and_no_failure(world: World) -> None:
    (a,) = world.put("a")
    world.record(a, gone := f"{LOCATION}/data/gone")
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 1, 0, 1, 0)
    assert world.fates() == {a: Fate.TRASHED, gone: Fate.PURGED}


def test_a_file_that_is_needed_and_nowhere_is_a_failure(world: World) -> None:
    world.record(gone := f"{LOCATION}/data/gone")
    world.reach.all = {gone}
    record = world.settle(at_once=True)
    assert numbers(record) == (RunOutcome.FAILED, 0, 0, 0, 1)
    assert record.reason == f"{gone}: needed, and neither in its place nor in the trash"
    assert world.fates() == {gone: Fate.RECORDED}


def test_an_answer_about_a_file_that_was_not_asked_for_moves_nothing(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.reach.all = {a}
    world.reach.answer = lambda needed: {path.replace("s3://", "s3a://") for path in needed}
    with pytest.raises(NeveError, match=r"^Cannot tell which files are needed: the answer names s3a://lake/db/t/data/a, which"):
        world.settle(at_once=True)
    assert world.files.contents == {a: f"of {a}"}


def test_what_lies_in_the_trash_is_never_taken_for_an_orphan(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)
    world.record(f"{TRASH}/a", run_id="run2")
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 0, 1, 0, 0)
    assert world.files.contents == {f"{TRASH}/a": f"of {a}"}
    assert world.restore("run1").files == 1
    assert world.files.contents == {a: f"of {a}"}


def test_one_file_that_cannot_be_moved_does_not_hold_up_the_others(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.files.broken = {a}
    record = world.settle(at_once=True)
    assert numbers(record) == (RunOutcome.PARTLY_DONE, 1, 0, 0, 1)
    assert record.failures == (f"{a}: 503 Slow Down",)
    world.files.broken = set()
    assert numbers(world.settle(at_once=True)) == (RunOutcome.DONE, 1, 0, 0, 0)
    assert sorted(world.files.contents) == [f"{TRASH}/a", f"{TRASH}/b"]


def test_a_limit_leaves_the_rest_for_the_next_run(world: World) -> None:
    world.record(*world.put(*"abcde"))
    first, second = world.settle(at_once=True, limit=3), world.settle(at_once=True, limit=3)
    assert [(record.files, record.more) for record in (first, second)] == [(3, True), (2, False)]


def test_a_second_look_may_be_for_one_run_only(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, run_id="run1")
    world.record(b, run_id="run2")
    assert world.settle(at_once=True, run_id="run2").runs == ("run2",)
    assert world.fates() == {a: Fate.RECORDED, b: Fate.TRASHED}


def test_the_table_is_asked_anew_for_each_portion(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "PORTION", 2)
    world.record(*world.put(*"abcde"))
    assert world.settle(at_once=True).files == 5
    assert world.reach.asked == 3


@pytest.mark.parametrize("value", ["False", "no"])
@pytest.mark.parametrize("operation", ["settle", "purge"])
def test_a_table_whose_garbage_is_not_collected_keeps_every_file(world: World, operation: str, value: str) -> None:
    (a,) = world.put("a")
    world.record(a)
    if operation == "purge":
        world.settle(at_once=True)
        world.clock.ms += 8 * DAY
    before = dict(world.files.contents)
    world.table.properties["gc.enabled"] = value
    for dry_run in (True, False):
        record = world.settle(at_once=True, dry_run=dry_run) if operation == "settle" else world.purge(dry_run=dry_run)
        assert (record.outcome, record.reason, record.changes) == (
            RunOutcome.NOTHING_TO_DO,
            f"the table property gc.enabled is {value}, so no file is removed",
            (),
        )
    assert world.files.contents == before


@pytest.mark.parametrize("operation", ["purge", "settle"])
def test_metadata_that_needs_what_is_in_the_trash_names_the_restore(world: World, operation: str) -> None:
    """As after old metadata was registered again: the manifests that would tell what is needed are in the trash."""
    [manifest], [waiting] = world.put("m#1.avro"), world.put("b")
    world.record(manifest, run_id="0123456789abcdef")
    world.settle(at_once=True)
    world.record(waiting, run_id="run2")
    world.clock.ms += 8 * DAY

    def unreadable(_: set[str]) -> set[str]:
        spelled = manifest.replace("s3://", "s3a://")  # as another client spells it
        raise MissingFileError(
            f"Cannot look up files in the table's metadata: NotFoundException: File does not exist: {spelled}"
        )

    world.reach.answer = unreadable
    before = dict(world.files.contents)
    with pytest.raises(MissingFileError) as raised:
        getattr(world, operation)()
    assert str(raised.value) == (
        f"Cannot {operation} files of lake.db.t: its metadata needs {manifest}, which run 01234567 moved to the trash; older "
        "metadata was registered again, or the catalog was set back"
    )
    assert raised.value.hint == "Put the files back with `neve restore 01234567 --table lake.db.t`, then repeat this command."
    assert not raised.value.retryable
    assert world.files.contents == before
    world.restore("0123456789abcdef")
    assert manifest in world.files.contents


def test_a_missing_file_that_the_trash_does_not_have_is_reported_as_it_is(world: World) -> None:
    [gone], [other] = world.put("gone.avro"), world.put("a")
    world.record(other)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY

    def unreadable(_: set[str]) -> set[str]:
        raise MissingFileError(f"Cannot look up files: {gone}", hint="as it was")

    world.reach.answer = unreadable
    with pytest.raises(MissingFileError, match=f"^Cannot look up files: {gone}$") as raised:
        world.purge()
    assert raised.value.hint == "as it was"


def test_files_of_a_copy_with_the_same_uuid_are_left_for_the_copy(world: World) -> None:
    a, b, c = world.put("a", "b", "c")
    world.record(a, b, c)
    world.copies = {b: "dr.db.t"}
    record = world.settle(at_once=True)
    assert (record.files, record.elsewhere, world.fates()[b]) == (2, {"dr.db.t": 1}, Fate.RECORDED)
    assert world.files.contents[b] == f"of {b}"
    world.copies = {b: "dr.db.t", c: "dr.db.t"}
    world.clock.ms += 8 * DAY
    record = world.purge()
    assert (record.files, record.elsewhere, world.fates()[c]) == (1, {"dr.db.t": 1}, Fate.TRASHED)
    assert world.restore().files == 2


def test_files_are_purged_once_they_were_kept_long_enough(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.clock.ms += 7 * DAY
    kept = world.purge()
    assert kept.reason == "no file has been in the trash for as long as files are kept there"
    [rule] = kept.not_due
    assert (rule.knob, rule.threshold, rule.due_ms) == ("trash-keep", 7 * 86_400, world.clock.ms + 1)
    world.clock.ms += 1
    record = world.purge()
    assert numbers(record) == (RunOutcome.DONE, 2, 0, 0, 0)
    assert (record.size_bytes, world.files.contents) == (20, {})
    assert world.fates() == {a: Fate.PURGED, b: Fate.PURGED}


def test_a_slow_purge_asks_again_once_the_table_has_changed(world: World) -> None:
    """As after older metadata is registered again while a purge deletes a file every two seconds."""
    files = world.put(*(f"f{number:02}" for number in range(20)))
    world.record(*files)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    sleep = world._sleep

    def register_old_metadata(seconds: float) -> None:
        sleep(seconds)
        if len(world.slept) == 1:
            world.reach.all = set(files)
            world.table.append(1)

    world._sleep = register_old_metadata  # type: ignore[method-assign]
    record = world.purge(rate=0.5)
    assert (record.files, record.needed) == (5, 15)
    assert sorted(world.files.contents) == files[5:]


def test_a_purge_puts_back_what_is_needed_by_now(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    world.reach.all = {a}
    assert numbers(world.purge()) == (RunOutcome.DONE, 1, 1, 0, 0)
    assert world.files.contents == {a: f"of {a}"}
    assert world.fates() == {a: Fate.NEEDED, b: Fate.PURGED}


@pytest.mark.parametrize(
    ("rate", "batches", "slept"),
    [(2.0, [2, 2, 1], [1.0, 1.0, 0.5]), (0.5, [1] * 5, [2.0] * 5), (1000.0, [5], [0.005]), (2.5, [2, 2, 1], [0.8, 0.8, 0.4])],
)
def test_a_purge_keeps_to_its_rate(world: World, rate: float, batches: list[int], slept: list[float]) -> None:
    world.record(*world.put(*"abcde"))
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    world.purge(rate=rate)
    assert [len(paths) for paths in world.files.deleted] == batches
    assert world.slept == pytest.approx(slept, abs=0.002)


def test_a_purge_deletes_nothing_outside_of_the_trash_whatever_the_list_says(world: World) -> None:
    (a, b) = world.put("a", "b")
    world.record(a)
    world.store.settle_candidates(world.uuid, [FateChange(a, Fate.TRASHED, b)], world.clock.ms)
    world.clock.ms += 8 * DAY
    record = world.purge()
    assert numbers(record) == (RunOutcome.FAILED, 0, 0, 0, 1)
    assert record.reason == f"{a}: {b} is in no trash"
    assert world.files.contents == {a: f"of {a}", b: f"of {b}"}


def test_a_restore_brings_back_what_was_moved_and_forgets_what_was_recorded(world: World) -> None:
    a, b, c = world.put("a", "b", "c")
    world.record(a)
    world.settle(at_once=True)
    world.record(b)
    world.record(c, run_id="run2")
    assert world.restore(dry_run=True).not_moved == 1
    restored = world.restore()
    assert numbers(restored) == (RunOutcome.DONE, 2, 0, 0, 0)
    assert restored.not_moved == 1
    assert world.files.contents == {path: f"of {path}" for path in (a, b, c)}
    assert world.fates() == {a: Fate.RESTORED, b: Fate.RESTORED, c: Fate.RECORDED}
    again = world.restore()
    assert (again.outcome, again.reason) == (RunOutcome.NOTHING_TO_DO, "every file of the run is in its place")
    assert [rule.until for rule in again.not_due] == ["files of the run are moved to the trash"]
    assert world.record(a, run_id="run3") == 1  # it begins anew, with the grace time
    assert world.settle(run_id="run3").outcome is RunOutcome.NOTHING_TO_DO


def test_a_restore_overwrites_nothing(world: World) -> None:
    (a, b) = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.files.contents[a] = "somebody else's"
    record = world.restore()
    assert numbers(record) == (RunOutcome.PARTLY_DONE, 1, 0, 0, 1)
    assert record.failures == (f"{a}: left in the trash, since another file is in its place",)
    assert world.files.contents == {a: "somebody else's", f"{TRASH}/a": f"of {a}", b: f"of {b}"}


def test_a_restore_leaves_what_another_table_reads_in_the_trash_there_as_well(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.reach.all = {f"{TRASH}/a"}
    assert numbers(world.restore()) == (RunOutcome.DONE, 2, 0, 0, 0)
    assert world.files.contents == {a: f"of {a}", f"{TRASH}/a": f"of {a}", b: f"of {b}"}


def test_a_purge_that_puts_a_file_back_leaves_it_in_the_trash_if_it_is_read_there(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    world.reach.all = {a, f"{TRASH}/a"}
    assert numbers(world.purge()) == (RunOutcome.DONE, 0, 1, 0, 0)
    assert world.files.contents == {a: f"of {a}", f"{TRASH}/a": f"of {a}"}


def test_where_nobody_can_tell_what_is_read_in_the_trash_a_restore_leaves_it_there_as_well(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)

    def fail(_: set[str]) -> set[str]:
        raise CatalogUnreachableError("Cannot load table: 503")

    world.reach.answer = fail
    assert numbers(world.restore()) == (RunOutcome.DONE, 1, 0, 0, 0)
    assert world.files.contents == {a: f"of {a}", f"{TRASH}/a": f"of {a}"}


def test_a_file_that_cannot_be_put_back_is_told_once_and_comes_back_later(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.files.broken = {f"{TRASH}/a"}
    record = world.restore()
    assert numbers(record) == (RunOutcome.PARTLY_DONE, 1, 0, 0, 1)
    assert record.failures == (f"{a}: 503 Slow Down",)
    world.files.broken = set()
    assert numbers(world.restore()) == (RunOutcome.DONE, 1, 0, 0, 0)
    assert world.files.contents == {path: f"of {path}" for path in (a, b)}


def test_a_restore_after_the_purge_is_refused_with_the_reason(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    world.purge()
    with pytest.raises(BadRequestError, match=r"^Cannot restore run run1: all of its files are purged \(1\)$"):
        world.restore()


def test_a_restore_after_half_a_purge_brings_the_other_half(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    world.purge(limit=1)
    record = world.restore()
    assert (*numbers(record), record.purged) == (RunOutcome.PARTLY_DONE, 1, 0, 0, 0, 1)
    assert world.files.contents == {b: f"of {b}"}


def test_a_restore_of_files_that_vanished_says_so(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)
    world.files.contents.clear()
    record = world.restore()
    assert numbers(record) == (RunOutcome.FAILED, 0, 0, 1, 0)
    assert record.reason == "1 file is neither in its place nor in the trash"


def test_a_run_without_files_cannot_be_restored(world: World) -> None:
    with pytest.raises(
        BadRequestError, match=r"^Cannot restore run 0123abcd: it put no file of lake\.db\.t into the quarantine"
    ):
        world.restore("0123abcdef")


def test_where_the_store_keeps_versions_files_may_be_deleted_and_still_come_back(world: World) -> None:
    a, b = world.put("a", "b")
    world.record(a, b)
    with pytest.raises(BadRequestError, match=r"^Cannot delete files of lake\.db\.t: its storage keeps no older versions"):
        world.settle(at_once=True, delete=True)
    world.files.versioned = True
    assert [change.step.value for change in world.settle(at_once=True, delete=True, dry_run=True).changes] == ["delete"] * 2
    assert world.settle(at_once=True, delete=True).files == 2
    assert world.files.contents == {}
    assert {row.trash_path for row in world.rows().values()} == {a, b}
    assert world.restore().files == 2
    assert world.files.contents == {path: f"of {path}" for path in (a, b)}


def test_a_purge_leaves_older_versions_to_the_store(world: World) -> None:
    (a,) = world.put("a")
    world.files.versioned = True
    world.record(a)
    world.settle(at_once=True, delete=True)
    world.files.deleted.clear()
    world.clock.ms += 8 * DAY
    assert world.purge().files == 1
    assert (world.files.deleted, world.fates()) == ([], {a: Fate.PURGED})


def test_a_second_look_that_is_killed_at_any_step_is_finished_by_the_next(store: StateStore) -> None:
    def fresh(name: str) -> World:
        world = World(store, uuid=name)
        world.record(*world.put("a", "b"), f"{LOCATION}/data/gone")
        world.reach.all = {f"{LOCATION}/data/b"}
        return world

    (probe := fresh("settle")).settle(at_once=True)
    assert probe.fuse.steps > 8
    for last in range(1, probe.fuse.steps + 1):
        world = fresh(f"settle {last}")
        world.fuse.last = last
        with pytest.raises(KilledError):
            world.settle(at_once=True)
        world.fuse.last = None
        world.settle(at_once=True)
        assert (world.files.contents, world.fates()) == (probe.files.contents, probe.fates())


@pytest.mark.parametrize("versioned", [False, True])
def test_a_restore_that_is_killed_at_any_step_is_finished_by_the_next(store: StateStore, versioned: bool) -> None:
    def fresh(name: str) -> World:
        world = World(store, uuid=f"{name} {versioned}")
        world.files.versioned = versioned
        world.record(*world.put("a", "b"))
        world.settle(at_once=True, delete=versioned)
        world.fuse.steps = 0
        return world

    (probe := fresh("restore")).restore()
    assert probe.files.contents == {f"{LOCATION}/data/{name}": f"of {LOCATION}/data/{name}" for name in "ab"}
    for last in range(1, probe.fuse.steps + 1):
        world = fresh(f"restore {last}")
        world.fuse.last = last
        with pytest.raises(KilledError):
            world.restore()
        world.fuse.last = None
        world.restore()
        assert (world.files.contents, world.fates()) == (probe.files.contents, probe.fates())


def test_a_deletion_into_versions_that_is_killed_at_any_step_is_finished_by_the_next(store: StateStore) -> None:
    def fresh(name: str) -> World:
        world = World(store, uuid=name)
        world.files.versioned = True
        world.record(*world.put("a", "b"))
        return world

    (probe := fresh("delete")).settle(at_once=True, delete=True)
    for last in range(1, probe.fuse.steps + 1):
        world = fresh(f"delete {last}")
        world.fuse.last = last
        with pytest.raises(KilledError):
            world.settle(at_once=True, delete=True)
        world.fuse.last = None
        world.settle(at_once=True, delete=True)
        assert (world.files.contents, world.files.versions, world.fates()) == ({}, probe.files.versions, probe.fates())


def test_a_purge_that_is_killed_at_any_step_is_finished_by_the_next_and_touches_nothing_else(store: StateStore) -> None:
    def fresh(name: str) -> World:
        world = World(store, uuid=name)
        world.record(*world.put("a", "b", "c"))
        world.settle(at_once=True, limit=2)
        world.clock.ms += 8 * DAY
        world.fuse.steps = 0
        return world

    (probe := fresh("purge")).purge()
    for last in range(1, probe.fuse.steps + 1):
        world = fresh(f"purge {last}")
        world.fuse.last = last
        with pytest.raises(KilledError):
            world.purge()
        world.fuse.last = None
        world.purge()
        assert (world.files.contents, world.fates()) == (probe.files.contents, probe.fates())
    assert probe.files.contents == {f"{LOCATION}/data/c": f"of {LOCATION}/data/c"}


def test_files_of_a_table_that_was_replaced_under_its_name_stay(world: World) -> None:
    """The new table needs none of them, so that by its metadata all would go."""
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True, limit=1)
    before = dict(world.files.contents)
    world.clock.ms += 30 * DAY
    world.table.uuid = "another"
    for work in (world.settle, world.purge):
        with pytest.raises(TableGoneError, match="it was replaced by another table"):
            work()
    assert world.files.contents == before


def test_a_place_in_the_trash_that_metadata_names_is_not_emptied(world: World) -> None:
    (a,) = world.put("a")
    world.record(a)
    world.settle(at_once=True)
    world.clock.ms += 30 * DAY
    world.reach.all = {f"{TRASH}/a"}
    record = world.purge()
    assert numbers(record) == (RunOutcome.FAILED, 0, 0, 0, 1)
    assert record.failures == (f"{a}: {TRASH}/a may be in use",)
    assert f"{TRASH}/a" in world.files.contents


def test_a_table_that_cannot_be_read_is_restored_all_the_same(world: World) -> None:
    """That is what a restore may be for. Nobody can tell what is read in the trash, so that files stay there as well."""
    a, b = world.put("a", "b")
    world.record(a, b)
    world.settle(at_once=True)
    world.files.contents[a] = world.files.contents[f"{TRASH}/a"]
    world.store.settle_candidates(world.uuid, [FateChange(a, Fate.RECORDED, f"{TRASH}/a")], world.clock.ms)

    def unreadable(_: set[str]) -> set[str]:
        raise StorageError("Cannot find what the table needs: a manifest is missing")

    world.reach.answer = unreadable
    record = world.restore()
    assert numbers(record) == (RunOutcome.PARTLY_DONE, 1, 0, 0, 1)
    assert record.failures == (f"{a}: {TRASH}/a may be in use",)
    assert set(world.files.contents) == {a, b, f"{TRASH}/a", f"{TRASH}/b"}

    world.reach.answer = lambda needed: needed
    assert numbers(world.restore()) == (RunOutcome.DONE, 1, 0, 0, 0)
    assert set(world.files.contents) == {a, b, f"{TRASH}/b"}


def test_a_proof_names_metadata_that_is_no_newer_than_what_was_asked() -> None:
    """The heartbeat of the lease loads the table too: a commit of another writer must not pass for judged."""
    loaded = ["m1"]

    def needed(_: object) -> set[str]:
        loaded.append("m2")
        return set()

    assert Unreachable.judged(["a"], needed, lambda: ("u", loaded[-1])).metadata_location == "m1"


def test_a_proof_is_made_by_asking_and_covers_what_was_asked_for() -> None:
    made = Unreachable.judged(["a", "b"], lambda asked: {path for path in asked if path == "b"}, lambda: ("u", "m1"))
    assert (made.table_uuid, made.metadata_location, made.paths) == ("u", "m1", frozenset({"a"}))
    with pytest.raises(TypeError, match=r"^Cannot make a proof by hand"):
        Unreachable("u", "m1", frozenset({"b"}))
    with pytest.raises((TypeError, ValueError), match=r"seal|by hand"):
        replace(made, paths=frozenset({"b"}))
    with pytest.raises(FrozenInstanceError):
        made.paths = frozenset({"b"})  # type: ignore[misc]


@pytest.mark.parametrize("delete", [False, True], ids=["trash", "versions"])
@pytest.mark.parametrize("lost", [False, True], ids=["held", "lease-lost"])
def test_a_file_that_is_committed_on_its_way_out_comes_back_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: bool, delete: bool
) -> None:
    """The process is paused between its last check and the move; meanwhile another one takes the table and commits the file."""
    a, b, c = world.put("a", "b", "c")
    world.record(a, b, c)
    world.files.versioned = delete
    monkeypatch.setattr(quarantine, "BATCH", 2)
    name = "delete" if delete else "move"
    original = getattr(world.files, name)

    def paused(files: Any, *proof: Any) -> dict[str, str]:
        world.reach.all = {a}
        world.table.append(1)
        if lost:
            world.store.take_lease(world.uuid, run_id="x", owner="elsewhere:1", now_ms=world.clock.ms + DAY, lease_ms=DAY)
        failures: dict[str, str] = original(files, *proof)
        return failures

    monkeypatch.setattr(world.files, name, paused)
    if lost:
        with pytest.raises(RunTakenOverError):
            world.settle(at_once=True, delete=delete)
    else:
        assert numbers(world.settle(at_once=True, delete=delete)) == (RunOutcome.DONE, 2, 1, 0, 0)
    assert a in world.files.contents
    assert b not in world.files.contents
    assert world.fates() == {a: Fate.NEEDED, b: Fate.TRASHED, c: Fate.RECORDED if lost else Fate.TRASHED}


def test_the_table_is_asked_once_if_nothing_was_committed_meanwhile(world: World) -> None:
    world.record(*world.put("a", "b"))
    world.settle(at_once=True)
    assert world.reach.asked == 1
