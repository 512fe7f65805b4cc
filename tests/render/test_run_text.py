"""A run as text: how it ended, before and after, kernels, what did not land; and runs as a list."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType

from neve.core.plan_words import Kernel
from neve.core.record import GroupState, RunOutcome
from neve.render.demo import Compaction, Query, compactions_text
from neve.render.run import record_text, run_line
from neve.render.runs import run_row_text, runs_text
from tests.render.inspections import NOW_MS
from tests.render.runs import RUN_ID, make_empty_record, make_group, make_record, make_whole_record


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


def test_nothing_to_do_is_said_with_the_reason_and_nothing_else() -> None:
    assert shown(record_text(make_whole_record(make_empty_record()))) == [
        "local.db.events",
        "Nothing to do: the table has no data",
    ]


def test_work_that_others_did_first_is_no_failure() -> None:
    group = make_group(0, state=GroupState.SUPERSEDED, reason="its files are gone", snapshot_id=None)
    record = make_record(group, files_compacted=0, files_written=0, snapshots=())
    assert run_line(record) == "Nothing left to do: others compacted the same files meanwhile"


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
    rows = [Row(record=make_record().model_dump(mode="json")), Row(run_id="ab" * 16, finished_ms=None, outcome=None)]
    assert shown(runs_text(rows)) == [
        "run       started (UTC)     what     table            result          took",
        "3f9c0a1b  2025-06-15 15:06  compact  local.db.events  250 → 5 files  2.4 s",
        "abababab  2025-06-15 15:06  compact  local.db.events  not ended",
    ]


def test_no_runs_is_said() -> None:
    assert shown(runs_text([])) == ["No runs yet."]


def test_a_run_that_has_not_ended_says_so() -> None:
    told = shown(run_row_text(Row(finished_ms=None, outcome=None)))
    assert told == ["local.db.events", "Began 2025-06-15 15:06:40 UTC and has not ended", f"Run {RUN_ID}"]


def test_the_demo_shows_tables_and_queries_before_and_after() -> None:
    query = Query("events by type", "local.db.events", before_seconds=1.25, after_seconds=0.5, equal=True)
    assert shown(compactions_text([Compaction(make_whole_record(), (query,))])) == [
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
    compaction = Compaction(make_whole_record(failed), (query,))
    assert compaction.complaints == [
        "local.db.events: Failed after 2.4 s: no group of 1 was committed",
        "Results differ: events by type on local.db.events",
    ]
    lines = shown(compactions_text([compaction]))
    assert not [line for line in lines if "accounted for" in line]
    assert lines[-1].endswith("DIFFERENT")
