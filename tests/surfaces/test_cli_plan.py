"""`neve plan` on a real warehouse, and the words that it shares with `neve compact`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neve.cli.next_steps import again
from neve.cli.options import Shared
from neve.operations.requests import KERNELS, TIERS
from neve.rewrite.group import Kernel, Tier
from neve.settings.environment import variable_name


@pytest.fixture
def planned(neve: Any, warehouse: Path) -> Any:
    """Runs `neve plan` on the table of floats and gives its JSON."""

    def run(*args: str, table: str = "db.floats", code: int = 0) -> Any:
        result = neve("plan", table, "--warehouse", str(warehouse), "--json", *args)
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout)

    return run


def test_the_words_of_the_command_line_are_those_of_the_plan() -> None:
    assert tuple(tier.value for tier in Tier) == TIERS
    assert tuple(kernel.value for kernel in Kernel) == KERNELS


def test_text_says_what_would_be_done(neve: Any, warehouse: Path) -> None:
    result = neve("plan", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "local.db.floats"
    assert lines[1].startswith("5 files (")
    assert lines[1].endswith(") → 1 file in 1 group by arrow")
    row = next(line for line in lines if line.startswith("  (unpartitioned)"))
    assert row.split()[1:5] == ["minor", "5", "→", "1"]


def test_json_has_groups_with_the_paths_of_their_files(planned: Any) -> None:
    document = planned()
    assert (document["schema_version"], document["table"], document["empty_reason"]) == (1, "local.db.floats", None)
    assert (document["input_files"], document["output_files"], document["skipped"]) == (5, 1, [])
    [group] = document["groups"]
    assert (group["tier"], group["kernel"], group["outputs"]) == ("minor", "arrow", 1)
    assert len(group["files"]) == 5
    assert all(path.endswith(".parquet") for path in group["files"])
    assert document["price"]["requests"] == group["price"]["requests"] == 12


def test_nothing_to_do_is_a_success_with_its_reason(neve: Any, warehouse: Path, planned: Any) -> None:
    result = neve("plan", "db.floats", "--warehouse", str(warehouse), "--min-input-files", "6")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "Nothing to do: fewer small files than min-input-files (6)"
    document = planned("--min-input-files", "6")
    assert (document["groups"], document["empty_reason"]) == ([], "fewer small files than min-input-files (6)")


def test_force_goes_below_the_thresholds(planned: Any) -> None:
    assert len(planned("--min-input-files", "6", "--force")["groups"]) == 1


def test_tier_and_kernel_can_be_pinned(planned: Any) -> None:
    [group] = planned("--tier", "full", "--kernel", "spark")["groups"]
    assert (group["tier"], group["reason"], group["kernel"], group["kernel_reason"]) == (
        "full",
        "asked for",
        "spark",
        "asked for",
    )


def test_an_explicit_option_that_the_pinned_kernel_cannot_apply_is_refused(neve: Any, warehouse: Path) -> None:
    options = ("--kernel", "copy", "--compression-codec", "snappy", "--row-group-rows", "1000000")
    result = neve("plan", "db.floats", "--warehouse", str(warehouse), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    reason = "compression-codec snappy was given, and copy keeps the codec of its input files"
    assert f"Cannot rewrite local.db.floats with kernel copy: {reason}" in result.stderr


def test_a_configured_option_that_the_kernel_does_not_apply_is_in_the_plan(
    planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned("--kernel", "copy")["not_applied"] == []
    monkeypatch.setenv(variable_name(("policy", "row-group-rows")), "1000000")
    document = planned("--kernel", "copy")
    [told] = document["not_applied"]
    assert told == {
        "option": "row-group-rows",
        "value": "1000000",
        "origin": f"variable {variable_name(('policy', 'row-group-rows'))}",
        "kernel": "copy",
        "groups": 1,
        "reason": "copy keeps the row groups of its input files",
    }


def test_partitions_are_chosen_by_patterns(planned: Any) -> None:
    everything = {group["partition"] for group in planned("--force", table="db.v1")["groups"]}
    first, second, *_ = sorted(everything)
    assert len(everything) > 2
    chosen = planned("--force", "--partition", first, "--partition", second, table="db.v1")
    assert {group["partition"] for group in chosen["groups"]} == {first, second}
    assert {skipped["reason"] for skipped in chosen["skipped"]} == {"not asked for"}
    starred = planned("--force", "--partition", "country=*", table="db.v1")
    assert {group["partition"] for group in starred["groups"]} == everything


@pytest.mark.parametrize("flag", ["--small-file-threshold", "--min-file-size"])
def test_the_small_file_threshold_goes_by_two_names(planned: Any, flag: str) -> None:
    assert planned(flag, "1 B", "--target-file-size", "1 MB")["policy"]["small_file_threshold_bytes"] == 1
    assert planned(flag, "1 B", "--target-file-size", "1 MB")["groups"] == []


def test_limits_hold(planned: Any) -> None:
    document = planned("--max-bytes", "1 KB")
    assert document["groups"] == []
    assert document["empty_reason"] == "the run already reads its 1 KB (max-bytes)"
    assert planned("--max-cost", "0")["empty_reason"] == "the run would cost more than 0 (max-cost)"


def test_an_unknown_strategy_is_refused_with_those_that_there_are(neve: Any, warehouse: Path) -> None:
    result = neve("plan", "db.floats", "--warehouse", str(warehouse), "--strategy", "z-order")
    assert result.exit_code == 2
    assert "small-files" in result.stderr
    assert neve("plan", "db.floats", "--warehouse", str(warehouse), "--strategy", "small-files").exit_code == 0


def test_the_strategy_and_its_verdicts_are_in_the_plan(planned: Any) -> None:
    document = planned("--strategy", "adaptive", "--reads-per-day", "100000000")
    assert document["policy"]["strategy"] == "adaptive"
    [told] = document["preferred"]
    assert told["score"] >= told["runner_up_score"] > 0
    assert document["groups"][0]["reason"].startswith(f"{told['strategy']} is worth ")
    assert document["gain_per_month"] > document["price"]["money"]


def test_a_layout_that_was_asked_for_must_be_one_of_the_table(neve: Any, warehouse: Path) -> None:
    result = neve("plan", "db.floats", "--warehouse", str(warehouse), "--cluster-by", "idd")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Cannot lay local.db.floats out by idd: it has no such column of single values")


def test_a_layout_that_the_table_has_outlived_is_left_aside(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_name(("policy", "cluster-by")), "gone")
    result = neve("plan", "db.floats", "--warehouse", str(warehouse), "--json")
    assert result.exit_code == 0
    assert "the layout is left aside: Cannot lay local.db.floats out by gone" in result.stderr
    assert json.loads(result.stdout)["layout"] is None


def test_the_text_shows_so_many_groups(neve: Any, warehouse: Path) -> None:
    text = neve("plan", "db.v1", "--warehouse", str(warehouse), "--force", "--groups", "2").stdout
    assert "\n2 of " in text


def test_planning_loads_no_spark(warehouse: Path) -> None:
    program = f"""
import sys
sys.argv = ["neve", "plan", "db.floats", "--json", "--warehouse", {str(warehouse)!r}]
from neve.cli import main
try:
    main()
finally:
    sys.stderr.write(str("pyspark" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "False"


def test_another_command_is_told_for_the_same_place() -> None:
    assert again(Shared(), "inspect", "db.t") == "neve inspect db.t"
    shared = Shared(config=Path("my conf.yaml"), profile="prod", warehouse="w", catalog="lake")
    assert again(shared, "inspect", "db.t") == (
        "neve inspect db.t --config 'my conf.yaml' --profile prod --warehouse w --catalog lake"
    )


def test_prices_follow_the_settings(neve: Any, warehouse: Path) -> None:
    def price(*settings: str) -> dict[str, float]:
        result = neve("plan", "db.floats", "--warehouse", str(warehouse), "--force", "--json", *settings)
        return dict(json.loads(result.stdout)["price"])

    plain = price()
    dear = price("--set", "cost.core-hour=0", "--set", "cost.thousand-reads=0", "--set", "cost.thousand-writes=1000")
    assert plain["money"] > 0
    assert dear["money"] == pytest.approx(2.0)  # one output, two requests to write it
    assert price("--set", "cost.arrow-throughput=1 B")["core_seconds"] > 1000 * plain["core_seconds"]
