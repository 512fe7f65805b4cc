"""A run as text: how it ended, before and after, kernels, what did not land; and runs as a list."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import pytest
from rich.console import Console, RenderableType

from neve.health.not_due import NotDue
from neve.render.demo import DemoCompaction, Query, compactions_text
from neve.render.resuming import remaining_text
from neve.render.run import record_text, run_line
from neve.render.runs import run_row_text, runs_text
from neve.rewrite.group import Kernel, RunKind
from neve.rewrite.kernel_options import NotApplied
from neve.rewrite.record import GroupState, RunOutcome, SnapshotExpiry
from neve.rewrite.remaining import NextStep, Remaining, RemainingGroup
from neve.table.units import MIB
from tests.builders.inspections import NOW_MS, make_clustering
from tests.builders.run_records import RUN_ID, make_empty_record, make_group, make_record, make_whole_record


def shown(content: RenderableType, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(content)
    return out.getvalue().splitlines()


def test_a_run_is_told_from_its_headline_to_its_snapshots() -> None:
    assert shown(record_text(make_whole_record())) == [
        "local.db.events",
        "Compacted 250 files into 5 in 2.4 s; every row accounted for (10,000 rows)",
        "",
        "Before and after",
        "                 before    after",
        "  data files        255       10",
        "  average size    48 KB   1.1 MB",
        "  total size      12 MB    11 MB",
        "  small files       252        7",
        "  delete files        3        0",
        "  health             61       95",
        "",
        "Kernels",
        "  copy  2 groups",
        "",
        "Run",
        f"  id        {RUN_ID}",
        "  started   2025-06-15 15:06:40 UTC",
        "  read      10 MB, wrote 9 MB",
        "  snapshot  11 → 12",
    ]


def test_a_clustering_run_shows_depth_and_reads_before_by_prediction_and_after() -> None:
    record = make_whole_record(make_record(kind=RunKind.CLUSTER))
    assert record.before is not None
    assert record.after is not None
    columns = make_clustering().columns
    done = make_clustering(depth=1.9, columns=(columns[0].model_copy(update={"point_read": 0.29}), columns[1]))
    record = record.model_copy(
        update={
            "before": record.before.model_copy(update={"clustering": make_clustering()}),
            "after": record.after.model_copy(update={"clustering": done}),
        }
    )
    lines = shown(record_text(record))
    assert lines[1].startswith("Clustered 250 files into 5 in 2.4 s")
    at = lines.index("Clustering by hilbert(city, place.amount)")
    assert lines[at + 1 : at + 5] == [
        "                                             before   predicted   after",
        "  files over a row's values                      53         1.8     1.9",
        "  bytes read for one value of city             100%         31%     29%",
        "  bytes read for one value of place.amount     7.0%        2.0%    7.0%",
    ]


def test_without_a_proof_for_every_group_none_is_claimed() -> None:
    assert run_line(make_record(make_group(0), make_group(1, proof=None))) == "Compacted 250 files into 5 in 2.4 s"


def test_groups_that_did_not_land_are_named_with_their_reasons() -> None:
    lost = make_group(1, state=GroupState.DROPPED, reason="a delete landed on file-7", snapshot_id=None)
    record = make_record(make_group(0), lost, outcome=RunOutcome.PARTLY_DONE)
    lines = shown(record_text(record))
    assert lines[1:3] == [
        "Partly done: compacted 250 files into 5 in 2.4 s; 1 group of 2 not committed;",
        "every row accounted for (10,000 rows)",
    ]
    at = lines.index("1 group not committed")
    assert lines[at + 1] == "  group 1  dropped  a delete landed on file-7"


def test_a_long_list_of_losses_is_cut() -> None:
    lost = [make_group(i, state=GroupState.FAILED, reason="no", snapshot_id=None) for i in range(12)]
    lines = shown(record_text(make_record(*lost, outcome=RunOutcome.FAILED, snapshots=())))
    assert lines[1] == "Failed after 2.4 s: no group of 12 was committed"
    at = lines.index("12 groups not committed, the first 10")
    assert [line.split()[1] for line in lines[at + 1 : at + 11]] == [str(i) for i in range(10)]
    assert lines[at + 11] == ""
    assert lines[-1] == "  snapshot  11"


def test_a_kernel_comes_with_why_others_would_not() -> None:
    groups = [make_group(i, kernel=Kernel.ARROW, refusals=("copy: schemas differ",)) for i in range(2)]
    lines = shown(record_text(make_record(*groups, make_group(2), kernels={Kernel.COPY: 1, Kernel.ARROW: 2})))
    at = lines.index("Kernels")
    assert lines[at + 1 : at + 4] == ["  arrow  2 groups", "         copy: schemas differ (2 times)", "  copy   1 group"]


@pytest.mark.parametrize(
    ("expiry", "line"),
    [
        (
            SnapshotExpiry(run_id="ab" * 16, outcome=RunOutcome.DONE, snapshots=10, files=22, size_bytes=3 * MIB),
            "10; 22 files (3 MB) are no longer needed (run abababab)",
        ),
        (SnapshotExpiry(run_id="ab" * 16, outcome=RunOutcome.DONE, snapshots=1), "1 (run abababab)"),
        (
            SnapshotExpiry(run_id="ab" * 16, outcome=RunOutcome.PARTLY_DONE, snapshots=1, reason="v1 went"),
            "1, but v1 went (run abababab)",
        ),
        (SnapshotExpiry(outcome=RunOutcome.NOTHING_TO_DO, reason="every snapshot is kept"), "none: every snapshot is kept"),
        (
            SnapshotExpiry(
                outcome=RunOutcome.NOTHING_TO_DO,
                reason="every snapshot is kept",
                not_due=(NotDue(rule="age", what="oldest snapshot", due_ms=86_400_000),),
            ),
            "none: every snapshot is kept. Oldest snapshot, due at 1970-01-02 00:00:00 UTC",
        ),
        (SnapshotExpiry(outcome=RunOutcome.FAILED, reason="the compaction failed"), "none: the compaction failed"),
    ],
)
def test_expired_snapshots_are_shown_after_a_compaction_and_where_there_was_nothing_to_compact(
    expiry: SnapshotExpiry, line: str
) -> None:
    for record in (make_whole_record(make_record(expiry=expiry)), make_empty_record().model_copy(update={"expiry": expiry})):
        lines = shown(record_text(record))
        assert lines[lines.index("Expired snapshots") + 1].strip() == line


def test_options_that_were_not_applied_are_listed_with_origin_and_reason() -> None:
    option = NotApplied(
        option="row-group-rows",
        value="8192",
        origin="preset serverless-db",
        kernel=Kernel.COPY,
        groups=1,
        reason="copy keeps the row groups of its input files",
    )
    lines = shown(record_text(make_record(not_applied=(option,))), width=140)
    at = lines.index("Options not applied")
    told = "copy keeps the row groups of its input files (1 group); set by preset serverless-db"
    assert lines[at + 1] == f"  row-group-rows 8192  {told}"


def test_nothing_to_do_is_said_with_the_reason_and_nothing_else() -> None:
    assert shown(record_text(make_whole_record(make_empty_record()))) == [
        "local.db.events",
        "Nothing to do: the table has no data",
    ]


def test_work_that_others_did_first_is_no_failure() -> None:
    group = make_group(0, state=GroupState.SUPERSEDED, reason="its files are gone", snapshot_id=None)
    record = make_record(group, files_compacted=0, files_written=0, snapshots=())
    assert run_line(record) == "Nothing left to do: others rewrote the same files meanwhile"


@dataclass(frozen=True)
class Row:
    run_id: str = RUN_ID
    table_name: str = "local.db.events"
    kind: str = "compact"
    started_ms: int = NOW_MS
    finished_ms: int | None = NOW_MS + 2400
    outcome: str | None = "done"
    record: dict[str, Any] = field(default_factory=dict)


def test_runs_are_listed_one_per_line() -> None:
    rows = [
        Row(record=make_record().model_dump(mode="json")),
        Row(run_id="ab" * 16, finished_ms=None, outcome=None),
        Row(run_id="cd" * 16, finished_ms=None, outcome="interrupted"),
    ]
    assert shown(runs_text(rows)) == [
        "run       started (UTC)     what     table            result          took",
        "3f9c0a1b  2025-06-15 15:06  compact  local.db.events  250 → 5 files  2.4 s",
        "abababab  2025-06-15 15:06  compact  local.db.events  running",
        "cdcdcdcd  2025-06-15 15:06  compact  local.db.events  interrupted",
    ]


@pytest.mark.parametrize("width", [80, 72, 60])
def test_no_duration_in_the_list_of_runs_is_cut(width: int) -> None:
    long_name = "lake.warehouse.a_rather_long_name_of_a_table"
    numbers = {"snapshots_before": 12_044, "expired": list(range(12_001))}
    rows = [
        Row(kind="expire", table_name=long_name, record=numbers),
        Row(kind="quarantine", table_name=long_name, record={"operation": "settle", "files": 123_456}),
        Row(kind="maintain", finished_ms=NOW_MS + 1_066_000_000, record={"steps": []}),
        Row(outcome="partly-done", finished_ms=NOW_MS + 754_000),
    ]
    lines = shown(runs_text(rows), width=width)
    assert lines[0].endswith("  took")
    assert ("started (UTC)" in lines[0]) is (width == 80)
    assert [line.rsplit("  ", 1)[1].strip() for line in lines if line.startswith("3f9c0a1b")] == [
        "2.4 s",
        "2.4 s",
        "12.3 days",
        "12.6 min",
    ]
    assert max(map(len, lines)) <= width


def test_one_file_is_one_file_in_the_list_of_runs() -> None:
    record = make_record(files_compacted=5, files_written=1).model_dump(mode="json")
    assert shown(runs_text([Row(record=record)]))[1].endswith("  5 → 1 file     2.4 s")


def test_a_resumed_run_took_as_long_as_it_worked_since_it_was_resumed() -> None:
    days_later = NOW_MS + 3 * 86_400_000
    record = make_whole_record(make_record(resumed_ms=days_later, finished_ms=days_later + 2400))
    assert record.stats is not None
    assert (record.seconds, record.stats.compaction_time_ms) == (2.4, 2400)
    row = Row(finished_ms=record.finished_ms, record=record.model_dump(mode="json"))
    assert shown(runs_text([row]))[1].endswith("250 → 5 files  2.4 s")
    page = shown(record_text(record))
    assert page[1] == "Compacted 250 files into 5 in 2.4 s; every row accounted for (10,000 rows)"
    assert "  resumed   2025-06-18 15:06:40 UTC" in page


def test_a_run_that_a_later_one_ended_was_interrupted_and_took_nobody_knows_how_long() -> None:
    told = {"reason": "it was interrupted; run ab went on with it", "interrupted": True}
    row = Row(kind="maintain", finished_ms=NOW_MS + 3 * 86_400_000, outcome="failed", record=told)
    assert shown(runs_text([row]))[1] == "3f9c0a1b  2025-06-15 15:06  maintain  local.db.events  interrupted"
    assert shown(run_row_text(row), width=120)[1] == f"Started 2025-06-15 15:06:40 UTC and ended as failed: {told['reason']}"


def test_no_runs_is_said() -> None:
    assert shown(runs_text([])) == ["No runs yet."]


def test_a_run_that_has_not_ended_is_running_or_was_interrupted() -> None:
    told = shown(run_row_text(Row(finished_ms=None, outcome=None)))
    assert told == ["local.db.events", "Started 2025-06-15 15:06:40 UTC and is running", f"Run {RUN_ID}"]
    told = shown(run_row_text(Row(finished_ms=None, outcome="interrupted")))
    assert told[1:] == [
        "Started 2025-06-15 15:06:40 UTC and was interrupted",
        f"Run {RUN_ID}",
        f"Finish it with: `neve resume {RUN_ID[:8]}`",
    ]
    told = shown(run_row_text(Row(kind="expire", finished_ms=None, outcome="interrupted")))
    assert told[1:] == ["Started 2025-06-15 15:06:40 UTC and was interrupted", f"Run {RUN_ID}"]


def make_remaining(*steps: tuple[NextStep, GroupState]) -> Remaining:
    groups = (
        RemainingGroup(
            group_id=number,
            partition=f"day={number}",
            step=step,
            state=state,
            reason=f"reason {number}",
            input_files=10,
            input_bytes=2 * MIB,
        )
        for number, (step, state) in enumerate(steps)
    )
    return Remaining(run_id=RUN_ID, table="local.db.events", branch="main", started_ms=NOW_MS, groups=tuple(groups))


def test_a_dry_run_of_a_resume_is_one_line_and_the_groups() -> None:
    left = make_remaining(
        (NextStep.NONE, GroupState.COMMITTED),
        (NextStep.NONE, GroupState.SUPERSEDED),
        (NextStep.COMMIT, GroupState.WRITTEN),
        (NextStep.REWRITE, GroupState.PLANNED),
        (NextStep.REWRITE, GroupState.WRITTEN),
    )
    assert shown(remaining_text(left), width=120) == [
        "local.db.events",
        "A resume would commit 1 group and rewrite 2 groups (20 files, 4 MB); 1 of 5 groups committed already",
        f"Run {RUN_ID}, started 2025-06-15 15:06:40 UTC",
        "",
        "  day=0  committed   reason 0",
        "  day=1  superseded  reason 1",
        "  day=2  commit      reason 2",
        "  day=3  rewrite     reason 3",
        "  day=4  rewrite     reason 4",
    ]


def test_a_dry_run_of_a_resume_says_where_nothing_is_left_and_shows_the_first_groups_only() -> None:
    left = make_remaining(*[(NextStep.NONE, GroupState.COMMITTED)] * 12)
    lines = shown(remaining_text(left))
    assert lines[1] == "Run 3f9c0a1b has nothing left to do: 12 of 12 groups committed; a resume ends it"
    assert len(lines) == 4 + 10 + 1
    assert lines[-1] == "  and 2 more"


def test_the_demo_shows_tables_and_queries_before_and_after() -> None:
    query = Query("events by type", "local.db.events", before_seconds=1.25, after_seconds=0.5, equal=True)
    assert shown(compactions_text([DemoCompaction(make_whole_record(), (query,))])) == [
        "",
        "Compacted",
        "table               files         average  deletes   health  by",
        "local.db.events  255 → 10  48 KB → 1.1 MB    3 → 0  61 → 95  copy",
        "Every row accounted for before its commit (10,000 rows); 1 run in 2.4 s.",
        "",
        "The same queries before and after, in one warm Spark session",
        "query           table            before  after  result",
        "events by type  local.db.events  1.25 s  0.5 s  equal",
    ]


def test_the_demo_hides_neither_different_results_nor_runs_that_failed() -> None:
    query = Query("events by type", "local.db.events", before_seconds=1, after_seconds=1, equal=False)
    group = make_group(0, state=GroupState.FAILED, reason="disk full", snapshot_id=None, proof=None)
    failed = make_record(group, outcome=RunOutcome.FAILED, snapshots=(), files_compacted=0, files_written=0)
    compaction = DemoCompaction(make_whole_record(failed), (query,))
    assert compaction.complaints == [
        "local.db.events: Failed after 2.4 s: no group of 1 was committed",
        "Results differ: events by type on local.db.events",
    ]
    lines = shown(compactions_text([compaction]))
    assert not [line for line in lines if "accounted for" in line]
    assert lines[-1].endswith("DIFFERENT")
