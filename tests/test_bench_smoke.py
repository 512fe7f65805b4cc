"""The benchmarks run to their end on tiny sizes and leave what they promise; what they compute from measurements is right."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.chart_page import Figures, filled
from bench.file_opens import FileOpens
from bench.row_writer import Command, Model, commands
from bench.scale import Measured, Rate
from bench.shapes_deletes import Cdc
from bench.shapes_events import Events
from bench.shapes_metadata import write_stream

ROOT = Path(__file__).resolve().parent.parent


def left_by(name: str, directory: Path) -> dict[str, Any]:
    """Runs a benchmark with `--quick`; returns its JSON, after a look at the table on the terminal."""
    target = directory / f"{name}.json"
    command = [sys.executable, "-m", f"bench.{name}", "--work", str(directory / "work"), "--json", str(target), "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert done.stdout == Figures(**document["figures"]).text() + "\n"
    assert all(path.read_text(encoding="utf-8").startswith("<svg ") for path in directory.glob("*.svg"))
    return document


def test_the_planning_benchmark_checks_every_plan_of_a_small_table(tmp_path: Path) -> None:
    target = ["--json", str(tmp_path / "planning.json")]
    command = [sys.executable, "-m", "bench.planning", "--sizes", "2000", "--repeats", "1", *target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "2,000" in done.stdout


@pytest.mark.slow
def test_the_memory_benchmark_measures_every_case_with_both_kernels(tmp_path: Path) -> None:
    document = left_by("memory", tmp_path)
    cases = [(row["case"], row["kernel"], row["verdict"]) for row in document["rows"]]
    names = ("events 0.02 GB", "8 MiB x 200", "10 MB strings")
    assert cases == [(name, kernel, "ok") for name in names for kernel in ("copy", "arrow")]
    assert (tmp_path / "memory.svg").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_rewrite_benchmark_lets_all_contenders_make_two_files_of_a_tiny_table(tmp_path: Path) -> None:
    document = left_by("rewrite", tmp_path)
    made = [(row["table"], row["contender"], [run["output_files"] for run in row["runs"]]) for row in document["rows"]]
    assert made == [("tiny", name, [2]) for name in ("rewrite_data_files", "copy", "arrow")]
    for row in document["rows"]:
        run = row["runs"][0]
        roles = run["jvm_peak_bytes"] + run["driver_peak_bytes"] + run["workers_peak_bytes"]
        assert 0 < run["jvm_peak_bytes"] < run["peak_rss_bytes"] <= roles * 1.1
    assert (tmp_path / "rewrite.svg").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_oversized_deletes_lets_everybody_finish_a_small_table(tmp_path: Path) -> None:
    document = left_by("oversized_deletes", tmp_path)
    ended = [(row["contender"], row["outcome"], row["output_rows"]) for row in document["rows"]]
    assert ended == [(name, "completed", 36_000) for name in ("neve", "iceberg", "iceberg-lean")]
    assert document["rows"][0]["kernels"] == ["arrow"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_clustering_benchmark_reads_less_at_every_stage_and_keeps_the_rows(tmp_path: Path) -> None:
    document = left_by("clustering", tmp_path)
    assert (tmp_path / "clustering.svg").exists()
    read = {stage["name"]: sum(stage["reads"].values()) for stage in document["stages"]}
    assert read["neve cluster"] < read["as written"]


def test_commands_of_the_writers_benchmark_come_from_its_seed_and_mostly_change_the_newest_days() -> None:
    first, again, other = (list(islice(commands(seed), 100)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert [command.kind for command in first[:4]] == ["UPDATE", "DELETE", "MERGE", "UPDATE"]
    assert sum(command.day >= 6 for command in first) == 83


def test_the_model_of_the_writers_benchmark_follows_every_command() -> None:
    model = Model.new()
    assert model.totals()[7] == (24_000, sum(range(7, 192_000, 8)), 0)
    model.apply(Command("UPDATE", 7, 7))
    changed = [i for i in range(192_000) if i % 97 == 7 and i % 8 == 7]
    assert model.totals()[7][2] == len(changed)
    model.apply(Command("DELETE", 7, 7))
    gone = [i for i in range(192_000) if i % 499 == 7 and i % 8 == 7]
    assert model.totals()[7][:2] == (24_000 - len(gone), sum(range(7, 192_000, 8)) - sum(gone))
    model.apply(Command("MERGE", 0, 1))
    young = [i for i in range(192_000 - 30, 192_000) if i % 8 == 0]
    assert model.totals()[0][0] == 24_000 + 30
    assert model.totals()[0][2] == 100 * len(young)


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_writers_counts_the_commands_of_both_sides_and_finds_the_rows_right(tmp_path: Path) -> None:
    document = left_by("writers", tmp_path)
    assert [(side["contender"], side["is_right"], side["failed_appends"]) for side in document["sides"]] == [
        ("rewrite_data_files", True, 0),
        ("neve maintain", True, 0),
    ]
    assert all(sum(side["commands"].values()) >= 1 for side in document["sides"])
    assert (tmp_path / "writers.svg").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_large_sorts_lets_everybody_finish_a_small_table(tmp_path: Path) -> None:
    document = left_by("sort_large", tmp_path)
    names = ("neve-sort", "neve-zorder", "neve-hilbert", "iceberg-sort", "iceberg-zorder")
    assert [(row["contender"], row["outcome"]) for row in document["rows"]] == [(name, "completed") for name in names]


@pytest.mark.slow
@pytest.mark.spark
def test_the_deletes_benchmark_leaves_the_right_rows_without_deletes_and_opens_each_delete(tmp_path: Path) -> None:
    document = left_by("deletes", tmp_path)
    made = [(row["contender"], [run["deletes_left"] for run in row["runs"]]) for row in document["rows"]]
    assert made == [("rewrite_data_files", [0]), ("arrow", [0])]
    theirs, own = (row["runs"][0]["delete_opens"] for row in document["rows"])
    assert own == 40
    assert theirs >= own
    assert list(document["memory"]) == ["10", "20"]
    assert (tmp_path / "deletes.svg").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_the_file_index_finds_exactly_the_orphans_of_a_small_catalog(tmp_path: Path) -> None:
    document = left_by("orphan_index", tmp_path)
    cold, same, changed, *searches = document["rows"]
    assert [row["loads"] for row in (cold, same, changed)] == [7, 7, 7]
    assert cold["reads"] > changed["reads"] > same["reads"] == 7
    assert len(searches) == 2
    assert not (tmp_path / "work").exists()


def test_a_table_of_changes_knows_which_rows_are_left() -> None:
    cdc = Cdc(10)
    assert [list(files) for files in cdc.rounds] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    first, second = cdc.rounds
    gone = {int(i) for files in cdc.rounds for n in range(5) for i in cdc.positions(files, n)}
    assert {i // 10_000 for i in cdc.positions(second, 3).tolist()} == {8}
    keys = cdc.keys(first, 0)
    # Rows of the second round are younger than the first round's deletes.
    assert (keys[:80].max() < 50_000, keys[80:].min() >= 50_000) == (True, True)
    gone |= {int(i) for files in cdc.rounds for n in range(5) for i in cdc.keys(files, n)[:80]}
    assert cdc.left == (100_000 - len(gone), sum(range(100_000)) - sum(gone))


def test_position_deletes_of_a_partition_name_rows_of_several_files() -> None:
    cdc = Cdc(100, shared=True)
    named = cdc.positions(cdc.rounds[1], 4)
    assert (len(named), sorted(set((named // 10_000).tolist()))) == (100, [5, 6, 7, 8, 9])


def test_every_open_of_a_file_counts_even_twice_in_a_row(tmp_path: Path) -> None:
    for name in ("a", "b", ".a.crc"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    with FileOpens(tmp_path) as opens:
        for name in ("a", "a", "b", ".a.crc"):
            (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / "a").read_text(encoding="utf-8")
    assert opens.count == 3


@pytest.mark.slow
@pytest.mark.spark
def test_the_scale_benchmark_measures_every_kernel_with_one_worker_and_two(tmp_path: Path) -> None:
    document = left_by("scale", tmp_path)
    pairs = [(rate["kernel"], rate["workers"]) for rate in document["rates"]]
    assert pairs == [(kernel, workers) for kernel in ("copy", "arrow", "spark") for workers in (1, 2)]
    assert document["assumptions"].startswith("Extrapolated from 2 cores")
    assert (tmp_path / "scale.svg").exists()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.stack
@pytest.mark.usefixtures("rest")
def test_the_query_benchmark_counts_fewer_requests_after_a_compaction(tmp_path: Path) -> None:
    document = left_by("query", tmp_path)
    rows = {(r["place"], r["reader"], r["query"], r["when"]): r["run"]["requests"] for r in document["rows"]}
    assert len(rows) == 2 * 2 * 3 * 2
    assert {asked for (place, *_), asked in rows.items() if place == "local"} == {None}
    assert rows["s3", "spark", "full scan", "after"] < rows["s3", "spark", "full scan", "before"]
    assert [(one["files_before"], one["files_after"]) for one in document["compactions"]] == [(20, 10), (20, 10)]
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["query-local.svg", "query-s3.svg"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_upkeep_lets_both_find_the_same_files_and_plans_queries_faster_afterwards(tmp_path: Path) -> None:
    document = left_by("maintenance", tmp_path)
    sides = [(row["case"], row["contender"], len(row["turns"])) for row in document["rows"]]
    assert sides[:4] == [
        ("expire 100 snapshots", "neve expire", 1),
        ("expire 100 snapshots", "expire_snapshots, stream_results true", 1),
        ("expire 100 snapshots", "expire_snapshots, stream_results false", 1),
        ("move 396 files of them to the trash", "neve quarantine settle", 1),
    ]
    assert list(document["memory"]["neve orphans"]) == ["5000", "20000"]
    assert [document["predicted"][when]["whole"] for when in ("before", "after")] == [20, 1]
    assert (tmp_path / "maintenance.svg").exists()


def test_a_stream_of_commits_leaves_behind_what_compaction_has_replaced(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    files = write_stream(catalog, ("b", "s"), snapshots=110)
    table = catalog.load_table("b.s")
    assert all(path.exists() for path in files)
    # A compacted file and ten commits of two; 110 lists and manifests, 109 commits of two files and one of one, the metadata.
    assert len(list(table.scan().plan_files())) == 21
    assert len(table.history()) == len(table.metadata.snapshots) == 110
    assert len(files) == 110 + 110 + 2 * 109 + 1 + 1
    assert len(table.metadata.snapshots[98].manifests(table.io)) == 99


def measured(*, megabytes: int, wall: float, cpu: float, workers: int = 2) -> Measured:
    return Measured("copy", workers, "t", megabytes * 10**6, 10, wall, cpu)


def test_a_rate_is_what_the_larger_table_took_more_and_a_terabyte_follows_from_it() -> None:
    rate = Rate.of(measured(megabytes=100, wall=3, cpu=2), measured(megabytes=500, wall=5, cpu=4))
    assert (rate.whole_mb_per_second, rate.mb_per_second, rate.mb_per_cpu_second) == (100, 200, 200)
    assert rate.per_core == 100
    # 1 TB in 600 s are 1,666.7 MB/s.
    assert rate.cores_for_a_terabyte == 17


def test_a_difference_that_noise_ate_gives_no_rate() -> None:
    rate = Rate.of(measured(megabytes=100, wall=5, cpu=4), measured(megabytes=500, wall=5, cpu=4))
    assert (rate.mb_per_second, rate.per_core, rate.cores_for_a_terabyte) == (None, None, None)


def test_the_rows_of_a_table_do_not_depend_on_how_many_files_hold_them() -> None:
    cuts = [pa.concat_tables(Events(2_000, files).content(n) for n in range(files)) for files in (10, 20, 200)]
    assert cuts[0]["id"].to_pylist() == list(range(2_000))
    assert len(cuts[0]["user_id"].unique()) > 1_900
    assert cuts[0].equals(cuts[1])
    assert cuts[0].equals(cuts[2])


def test_files_that_would_not_come_out_even_are_refused() -> None:
    with pytest.raises(ValueError, match="100 rows in 15 files of 10 days do not come out even"):
        Events(100, 15)


def test_figures_are_one_table_on_a_terminal_and_in_a_page() -> None:
    figures = Figures(["case", "s"], [["long name", "1.5"], ["b", "10.0"]], notes=["Said below."])
    assert figures.text() == "case          s\nlong name   1.5\nb          10.0\nSaid below."
    assert figures.markdown() == "| case | s |\n| --- | --: |\n| long name | 1.5 |\n| b | 10.0 |\n\nSaid below.\n"


def test_a_page_gets_the_tables_that_there_are_and_keeps_the_rest() -> None:
    page = "a\n<!-- figures: x -->\nold\n<!-- end -->\nb\n<!-- figures: y -->\nstays\n<!-- end -->\n"
    once = filled(page, {"x": "new\n"})
    assert once == "a\n<!-- figures: x -->\nnew\n<!-- end -->\nb\n<!-- figures: y -->\nstays\n<!-- end -->\n"
    assert filled(once, {"x": "new\n"}) == once


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_the_service_compacts_each_table_and_tells_what_one_more_costs(tmp_path: Path) -> None:
    found = left_by("serve", tmp_path)
    assert [row["tables"] for row in found["rows"]] == [1, 3]
    assert found["per_run"].keys() == {"cpu_seconds", "wall_seconds"}


@pytest.mark.slow
@pytest.mark.spark
def test_the_benchmark_of_the_file_index_finds_the_orphans_and_nothing_else(tmp_path: Path) -> None:
    found = left_by("orphan_index", tmp_path)
    assert [row["case"] for row in found["rows"]][:2] == ["index, cold", "index, no table changed"]
    assert found["rows"][1]["reads"] < found["rows"][0]["reads"]


def test_the_benchmark_of_fleets_reads_each_table_once(tmp_path: Path) -> None:
    found = left_by("fleet", tmp_path)
    assert [(one["name"], one["read"], one["jobs"]) for one in found["rounds"]] == [
        ("first", 100, 10),
        ("no change", 0, 10),
        ("no change", 0, 10),
        ("1 % changed", 1, 10),
    ]


@pytest.mark.slow
def test_the_benchmark_of_a_fleet_behind_a_rest_catalog_reports_the_requests_that_the_server_saw(tmp_path: Path) -> None:
    rounds = left_by("fleet_rest", tmp_path)["rounds"]
    assert rounds[-1]["known"] == 1_000
    assert all(one["requests"] == one["reported"] <= 600 for one in rounds)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.stack
def test_a_short_soak_of_the_service_leaves_nothing_undone(tmp_path: Path) -> None:
    found = left_by("soak", tmp_path)
    assert found["runs"] >= 20
    assert (found["left"], found["interval"][1]) == ([], 1.0)
