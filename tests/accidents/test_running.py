"""Accidents of whoever maintains tables: it locks itself out, two of it work at once, or it asks too much of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import pytest

from neve.commit import lease, process
from neve.commit.lease import Held
from neve.commit.marker import PROPERTY, Marker
from neve.commit.protocol import Retry, certainly_failed
from neve.errors import CommitUnknownError, LeaseHeldError, RunTakenOverError, TableGoneError
from neve.maintenance.quarantine import Candidate
from neve.operations import quarantine_moves, resume
from neve.operations.expire_snapshots import _Expiry
from neve.operations.rewrite_manifests import _Rewriting
from neve.rewrite.record import GroupState, RunOutcome
from neve.spark.maintenance.manifests import SparkManifests
from neve.spark.table.bridge import TableBridge
from neve.state import Run, StateStore, journal, pruning
from tests.accidents.unguarded import accident, answering
from tests.builders.commit_scenes import Scene
from tests.builders.compaction_runs import ELSEWHERE as OTHER
from tests.builders.compaction_runs import TwoHosts, another_process
from tests.builders.contexts import compact
from tests.builders.expiry_scenes import Bench as Expiry
from tests.builders.expiry_scenes import Table as Past
from tests.builders.fake_quarantines import DAY, World
from tests.builders.fake_tables import Answer, FakeTable, FakeWriter
from tests.builders.id_tables import ROWS, append, filled, states
from tests.builders.processes import gone_process
from tests.builders.spark_connections import manifest_paths, opened
from tests.builders.spark_tables import Bench, Still
from tests.builders.table_contents import local
from tests.builders.table_integrity import assert_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = Still().now_ms()
ELSEWHERE = "otherhost:77"


def marked(bench: Bench, owner: str, until_ms: int) -> None:
    text = Marker(run_id="theirs", owner=owner, until_ms=until_ms).text
    bench.spark.sql(f"ALTER TABLE {bench.sql_name} SET TBLPROPERTIES ('{PROPERTY}' = '{text}')")


def compacted(bench: Bench, **words: Any) -> list[GroupState]:
    try:
        return states(bench.compact(paths=bench.inputs, **words))
    except LeaseHeldError as error:
        raise AssertionError(f"locked out: {error}") from error


@accident(
    "A maintainer locks itself out: a killed run holds its lock for ever",
    evidence="flink: iceberg #12794, #15303; amoro #3794, #3365, #4103, #4172, #3111",
    guard="A lease names its process: one that is gone from this machine holds nothing.",
    without=[answering(lease.is_over, "False")],
    sees="locked out: Cannot take .* run theirs",
)
def test_a_run_whose_process_is_gone_holds_nothing(bench: Bench) -> None:
    filled(bench)
    marked(bench, gone_process(), NOW + 3_600_000)
    assert compacted(bench) == [GroupState.COMMITTED]
    assert PROPERTY not in bench.load().properties
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "A maintainer locks itself out: the machine of a run is gone with its lock",
    evidence="flink: iceberg #12794, #15303",
    guard="A lease ends by itself unless it is renewed, the mark on the table too; whoever comes then takes it over.",
    without=[answering(Marker.is_valid, "True")],
    sees="locked out: Cannot take .* run theirs",
)
def test_a_lease_that_nobody_renews_ends_by_itself(bench: Bench) -> None:
    filled(bench)
    marked(bench, ELSEWHERE, NOW)
    assert compacted(bench) == [GroupState.COMMITTED]
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "A run that was taken for dead comes back and commits beside its successor",
    evidence="iceberg #9521, #8001",
    guard="Directly before every commit the lease is renewed and the table's marker is read: a run whose table another one has "
    "taken over commits nothing more, and removes nothing.",
    without=[answering(Held.assert_held, "None")],
    sees="committed",
)
def test_a_run_that_was_taken_over_commits_nothing_more(bench: Bench) -> None:
    filled(bench)
    head = bench.load().current_snapshot()
    with suppress(RunTakenOverError):
        found = compacted(bench, strike=lambda: marked(bench, ELSEWHERE, NOW + 1))
        raise AssertionError(f"{found} by a run that lost its table")
    assert bench.load().current_snapshot() == head
    assert_whole(bench.load(), {"main": ROWS})


def unowned(table: FakeTable) -> set[str]:
    """Files that the table needs and that somebody removed."""
    return {path for path in table.now.data if path not in table.contents}


@accident(
    "A run that is alive on another host is resumed, and one of the two removes what the other commits",
    evidence="a trial of this project: 120 rows unreadable",
    guard="A run has one owner, by a token in the journal: it is taken over only when its heartbeat has ended or its process "
    "certainly has, what the owner before wrote stays, and that owner writes, commits and removes nothing more.",
    without=[
        answering(lease.is_over, "True"),
        answering(process.is_certainly_gone, "True"),
        answering(journal.require_owner, "None"),
        answering(Held.assert_held, "None"),
    ],
    sees="files of the head are gone",
)
def test_a_run_that_is_alive_elsewhere_is_not_resumed_and_its_files_stay() -> None:
    hosts = TwoHosts()

    def removed(table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:  # noqa: ARG001
        """The quarantine without its second check: what is recorded is gone."""
        return sum(hosts.table.contents.pop(file.path, None) is not None for file in files)

    for engine in hosts.engines:
        engine.quarantine.record_candidates = removed  # type: ignore[method-assign]
    hosts.engines[1].failing = {0, 1}  # so that the first one's commit would still fit

    def resumed_elsewhere() -> None:
        with another_process(OTHER), suppress(LeaseHeldError):
            resume.resume(hosts.theirs.unfinished()[0], hosts.tools(FakeWriter(hosts.table), 1, hosts.theirs))

    hosts.engines[0].after_last = resumed_elsewhere
    record = compact(hosts.plan, hosts.tools(FakeWriter(hosts.table), 0, hosts.ours))
    if gone := unowned(hosts.table):
        raise AssertionError(f"{len(gone)} files of the head are gone")
    assert record.outcome is RunOutcome.DONE
    assert hosts.table.visible() == [0, 1, 2, 3]


@accident(
    "A table is dropped and made anew under its name during a run, and the run works on the new one",
    evidence="a trial of this project",
    guard="A table is known by its uuid: one that is gone stays gone for the run, whatever has its name by now.",
    without=[answering(Held._require_table, "None")],
    sees="a lease on another table",
)
def test_a_table_of_the_same_name_is_not_taken_for_the_planned_one() -> None:
    table = FakeTable(uuid="new")
    with suppress(TableGoneError), lease.leased("db.t", "old", "r", leases=None, writer=FakeWriter(table), clock=Still()):
        raise AssertionError("a lease on another table")
    assert table.properties == {}


@accident(
    "A table is dropped during a run, and the run ends with an error of the programming language",
    evidence="a trial of this project: AttributeError",
    guard="A table that is gone is told by its uuid: the run ends with the reason, and its record names the files it wrote.",
    without=[answering(TableBridge.newest, "self.table.operations().refresh()")],
    sees="the table is gone, and the run",
)
def test_a_table_that_is_dropped_during_a_run_is_the_reason_of_its_end(bench: Bench) -> None:
    filled(bench)

    def dropped() -> None:
        with closing(bench.catalog()) as catalog:
            catalog.drop_table(("accidents", bench.name))

    try:
        record = bench.compact(paths=bench.inputs, strike=dropped)
    except Exception as error:
        raise AssertionError(f"the table is gone, and the run ended with {type(error).__name__}: {error}") from error
    reasons = [group.reason for group in record.groups]
    assert record.table_gone, f"the table is gone, and the run says {reasons}"
    assert record.outcome is RunOutcome.FAILED
    written = {output.path for group in record.groups for output in group.outputs}
    assert written == {path for path in bench.on_disk() if "neve" in path}


@accident(
    "A table is renamed during a run, and nobody may work on it under its new name",
    evidence="a trial of this project",
    guard="When a run ends, its marker is looked for under the table's new name, by the table's uuid, and removed there.",
    without=[answering(TableBridge.follow, "None")],
    sees="locked out: Cannot take .*_moved",
)
def test_a_table_that_was_renamed_during_a_run_is_free_under_its_new_name(bench: Bench) -> None:
    filled(bench)
    new_name = f"{bench.name}_moved"

    def renamed() -> None:
        with closing(bench.catalog()) as catalog:
            catalog.rename_table(("accidents", bench.name), ("accidents", new_name))

    record = bench.compact(paths=bench.inputs, strike=renamed)
    assert (record.outcome, record.table_gone is None) == (RunOutcome.FAILED, False)
    bench.name = new_name
    with another_process(OTHER):
        assert compacted(bench) == [GroupState.COMMITTED]
    assert PROPERTY not in bench.load().properties
    assert_whole(bench.load(), {"main": ROWS})


def recorded(state: Path, bench: Bench) -> list[Path]:
    """Files that the quarantine would let go of, were it not to look again."""
    with StateStore.open(f"sqlite:///{state}") as store:
        return [local(file.path) for file in store.quarantined(str(bench.load().metadata.table_uuid))]


@accident(
    "Manifests are missing once they were rewritten beside other jobs",
    evidence="iceberg #4161",
    guard="A rewrite of manifests whose answer was lost is looked for in the table; its manifests go only when it certainly "
    "did not land, and then by way of the quarantine.",
    behind=[answering(_Rewriting.landed, "None"), answering(_Rewriting.is_named, "False")],
    without=[answering(certainly_failed, "True")],
    sees="lost files",
)
def test_no_manifest_is_missing_after_a_rewrite_whose_answer_was_lost(
    bench: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(bench)
    send = SparkManifests.commit

    def lost(self: SparkManifests, *args: Any) -> None:
        send(self, *args)
        raise CommitUnknownError("Cannot tell whether the commit landed: 504 Gateway Timeout")

    monkeypatch.setattr(SparkManifests, "commit", lost)
    with opened(spark, warehouse, tmp_path / "state.db", **{"policy.manifest-min-count": "2"}) as neve:
        neve.manifests(f"accidents.{bench.name}")
    assert len(manifest_paths(bench)) == 1
    for path in recorded(tmp_path / "state.db", bench):
        path.unlink()
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "A rewrite of manifests fails for good, since others rewrote some of them meanwhile",
    evidence="iceberg #4161",
    guard="Before each try the manifests to be replaced are looked for in the head; where some are gone, the rest is planned "
    "and written anew.",
    without=[answering(_Rewriting._objection, "None")],
    sees="failed",
)
def test_manifests_that_others_rewrite_meanwhile_are_planned_again(
    bench: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(bench)
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('commit.retry.num-retries' = '1', 'commit.retry.min-wait-ms' = '1')")
    write, written = SparkManifests.write, list[Any]()

    def struck(self: SparkManifests, plan: Any) -> Any:
        done = write(self, plan)
        if not written:
            spark.sql(f"CALL local.system.rewrite_manifests('accidents.{bench.name}')").collect()
            for start in (30, 40, 50):
                append(bench, start)
        written.append(done)
        return done

    monkeypatch.setattr(SparkManifests, "write", struck)
    with opened(spark, warehouse, tmp_path / "state.db", **{"policy.manifest-min-count": "2"}) as neve:
        record = neve.manifests(f"accidents.{bench.name}")
    assert (record.outcome, len(written)) == (RunOutcome.DONE, 2)
    assert_whole(bench.load(), {"main": [*ROWS, *range(30, 60)]})


@pytest.fixture
def store() -> Iterator[StateStore]:
    with StateStore.open("sqlite://") as opened_:
        yield opened_


@accident(
    "A store is flooded with deletes",
    evidence="iceberg #14679; Slack's account of its maintenance",
    guard="The trash is purged so many files in a second, and no more.",
    without=[answering(quarantine_moves.seconds_left, "0.0")],
    sees="10 files in 0.0 s",
)
def test_a_purge_keeps_to_its_rate(store: StateStore) -> None:
    world = World(store)
    world.record(*world.put(*"abcdefghij"))
    world.settle(at_once=True)
    world.clock.ms += 8 * DAY
    began = world.clock.ms
    assert world.purge(rate=2.0).files == 10
    seconds = (world.clock.ms - began) / 1000
    assert seconds == pytest.approx(5.0, abs=0.01), f"10 files in {seconds} s"


@accident(
    "A catalog is hammered with retries",
    evidence="iceberg #14679; amoro in IOMETE's evaluation",
    guard="Each try of a commit waits twice as long as the one before, by the table's own commit.retry.* properties, and half "
    "of a wait is left to chance.",
    without=[answering(Retry.wait_seconds, "0.0")],
    sees="0.0, 0.0, 0.0, 0.0",
)
def test_tries_of_a_commit_are_further_and_further_apart() -> None:
    scene = Scene()
    outcome = scene.commit(*[Answer.CONFLICT] * 5)
    assert scene.waits == [0.1, 0.2, 0.4, 0.8]
    assert (sorted(outcome.dropped), scene.table.visible()) == ([0, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9])


FILES = 2_000


class Many(Past):
    """Whose expiry leaves many files, of which it is counted how many are in memory at once."""

    most = 0

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:  # noqa: ARG002
        given: list[ReferenceType[Candidate]] = []
        for i in range(FILES):
            doomed = Candidate(path=f"file-{i}", reason="lost")
            given.append(ref(doomed))
            yield doomed
            if i % 100 == 0:
                self.most = max(self.most, sum(each() is not None for each in given))


@accident(
    "The driver runs out of memory over the files that an expiry found",
    evidence="iceberg #14679",
    guard="What an operation finds is streamed from Spark to the state store in batches, and never listed.",
    without=[answering(_Expiry._reported, "iter(list(tally.counting(lost)))")],
    sees="in memory at once",
)
def test_files_that_an_expiry_found_are_never_all_in_memory(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.state.quarantine.BATCH", 100)
    past = Many()
    record = Expiry(past).expire(tools={"quarantine": store})
    assert record.recorded == FILES
    assert past.most <= 200, f"{past.most} files in memory at once"


@accident(
    "A maintainer's own tables grow until they need maintenance themselves",
    evidence="Slack's account of its lock and tracking tables",
    guard="Whenever a run ends, of whatever kind, runs that are older than the settings keep them are forgotten, once a day.",
    without=[answering(pruning.tidy, "None")],
    sees="remembered for ever",
)
def test_old_runs_are_forgotten_whatever_kind_of_runs_there_are() -> None:
    day = pruning.DAY_MS
    with StateStore.open("sqlite://", keep_seconds=10 * 86_400) as store:
        for number in range(1, 100):
            store.start_run(Run(f"r{number}", "t", "db.t", "expire", number * day))
            store.finish_run(f"r{number}", finished_ms=number * day, outcome="done", record={})
        kept = len(store.runs())
    assert kept == 11, f"{kept} runs are remembered for ever"
