"""Presets: the numbers of each, where they rank, and how a wrong name is answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neve.errors import SettingsError
from neve.health.row_groups import count_row_groups
from neve.policy.model import Policy
from neve.policy.presets import PRESETS
from neve.python_api import table
from neve.settings.presets import with_preset
from neve.table.units import GIB, MIB
from tests.builders.files import make_files
from tests.builders.settings_files import Load

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "presets.md"


def policy_of(name: str, **values: object) -> Policy:
    return Policy(preset=name, **values)


def test_serverless_db_has_the_numbers_of_its_config_file(load: Load) -> None:
    assert load(flags={"preset": "serverless-db"}).policy()[0] == policy_of(
        "serverless-db",
        target_file_size_bytes=128 * MIB,
        small_file_threshold_bytes=64 * MIB,
        min_input_files=3,
        max_files=100,
        check_interval_writes=5,
        advise=True,
        compression_codec="zstd",
        row_group_rows=8192,
        row_group_min_bytes=1,
        snapshot_keep_seconds=168 * 3600,
    )


def test_notebook_has_the_numbers_of_its_call(load: Load) -> None:
    assert load(flags={"preset": "notebook"}).policy()[0] == policy_of(
        "notebook", target_file_size_bytes=128 * MIB, small_file_threshold_bytes=10 * MIB, min_input_files=2
    )


def test_nimtable_has_the_numbers_of_its_planning_and_execution(load: Load) -> None:
    assert load(flags={"preset": "nimtable"}).policy()[0] == policy_of(
        "nimtable",
        target_file_size_bytes=1 * GIB,
        small_file_threshold_bytes=32 * MIB,
        max_group_bytes=50 * GIB,
        compression_codec="snappy",
    )


def test_amoro_has_the_numbers_of_its_table_properties(load: Load) -> None:
    assert load(flags={"preset": "amoro"}).policy()[0] == policy_of(
        "amoro",
        target_file_size_bytes=128 * MIB,
        fragment_ratio=8,
        max_files=10_000,
        minor_file_count=12,
        minor_interval_seconds=3600,
        delete_ratio_limit=0.1,
        full_interval_seconds=None,
        snapshot_keep_seconds=720 * 60,
    )


def test_distributed_has_the_numbers_of_its_planning(load: Load) -> None:
    assert load(flags={"preset": "distributed"}).policy()[0] == policy_of(
        "distributed", target_file_size_bytes=1 * GIB, small_file_threshold_bytes=32 * MIB, max_parallelism=16
    )


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_of_a_preset_has_it_as_origin_and_stands_in_the_guide(load: Load, name: str) -> None:
    _, origins = load(flags={"preset": name}).policy()
    said = {key for key, value in PRESETS[name].knobs.items() if value is not None}
    assert {key for key, origin in origins.items() if str(origin) == f"preset {name}"} == said
    assert {str(origin) for key, origin in origins.items() if key not in said} == {"default", "flag --preset"}
    section = GUIDE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\|.*\| `([a-z-]+)` = (.+?) \|", section, flags=re.MULTILINE))
    assert rows == {key: _written(value) for key, value in PRESETS[name].knobs.items()}


def _written(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "unset" if value is None else str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def test_a_preset_is_chosen_in_every_way_a_knob_is_set(load: Load) -> None:
    expected = load(flags={"preset": "nimtable"}).policy()[0]
    assert expected.target_file_size_bytes == 1 * GIB
    assert load("policy: {preset: nimtable}").policy()[0] == expected
    assert load("profiles: {p: {policy: {preset: nimtable}}}", profile="p").policy()[0] == expected
    assert load(environ={"NEVE_POLICY__PRESET": "nimtable"}).policy()[0] == expected
    assert load(flags={"policy.preset": "nimtable"}).policy()[0] == expected
    assert load().policy({"neve.preset": "nimtable"})[0] == expected
    assert (
        dict(table("db.t", preset="nimtable").knobs) == dict(table("db.t").preset("nimtable").knobs) == {"preset": "nimtable"}
    )


@pytest.mark.parametrize(
    ("file", "environ", "flags", "properties", "files", "origin"),
    [
        ("{preset: notebook}", {}, {}, {}, 2, "preset notebook"),
        ("{preset: notebook, min-input-files: 7}", {}, {}, {}, 7, "file neve.yaml"),
        ("{preset: notebook}", {"NEVE_POLICY__MIN_INPUT_FILES": "8"}, {}, {}, 8, "variable NEVE_POLICY__MIN_INPUT_FILES"),
        ("{min-input-files: 7}", {"NEVE_POLICY__PRESET": "notebook"}, {}, {}, 2, "preset notebook"),
        ("{min-input-files: 7}", {}, {"preset": "notebook", "min-input-files": 9}, {}, 9, "flag --min-input-files"),
        ("{preset: notebook}", {}, {}, {"neve.min-input-files": "6"}, 2, "preset notebook"),
        ("{}", {}, {}, {"neve.preset": "notebook"}, 2, "preset notebook"),
        ("{}", {}, {}, {"neve.preset": "notebook", "neve.min-input-files": "6"}, 6, "table property neve.min-input-files"),
        ("{min-input-files: 7}", {}, {}, {"neve.preset": "notebook"}, 7, "file neve.yaml"),
        ("{preset: serverless-db}", {}, {}, {"neve.preset": "notebook"}, 3, "preset serverless-db"),
        ("{preset: serverless-db}", {"NEVE_POLICY__PRESET": "notebook"}, {}, {}, 2, "preset notebook"),
        ("{preset: notebook, min-input-files: null}", {}, {}, {}, 5, "default"),
        ("{preset: null}", {}, {}, {"neve.preset": "notebook"}, 2, "preset notebook"),
    ],
)
def test_a_preset_ranks_just_below_the_place_that_chose_it(
    load: Load,
    file: str,
    environ: dict[str, str],
    flags: dict[str, object],
    properties: dict[str, str],
    files: int,
    origin: str,
) -> None:
    loaded = load(f"policy: {file}", environ=environ, flags=flags)
    policy, origins = loaded.policy(properties)
    assert (policy.min_input_files, str(origins["min-input-files"])) == (files, origin)
    rows = {row.key: row for row in loaded.explain(properties)}
    assert (rows["policy.min-input-files"].value, rows["policy.min-input-files"].origin) == (str(files), origin)


def test_a_profile_is_laid_over_the_preset_of_the_file(load: Load) -> None:
    policy, origins = load("{profile: prod, policy: {preset: serverless-db}}").policy()
    assert (policy.min_input_files, policy.check_interval_writes, policy.max_files) == (20, 100, 100)
    assert [str(origins[key]) for key in ("check-interval", "max-files")] == ["profile prod", "preset serverless-db"]


def test_a_null_takes_a_preset_back(load: Load) -> None:
    text = "{policy: {preset: nimtable}, profiles: {plain: {policy: {preset: null}}}}"
    assert load(text, profile="plain").policy()[0] == Policy()


def test_a_higher_preset_leaves_nothing_of_a_lower_one(load: Load) -> None:
    policy, _ = load("policy: {preset: nimtable}", flags={"preset": "notebook"}).policy()
    assert policy == load(flags={"preset": "notebook"}).policy()[0]
    assert policy.compression_codec is None


def test_amoro_turns_a_full_interval_of_lower_layers_off(load: Load) -> None:
    text = "policy: {full-interval: 30 days}"
    assert load(text).policy()[0].full_interval_seconds == 30 * 86400
    assert load(text, flags={"preset": "amoro"}).policy()[0].full_interval_seconds is None


def test_a_preset_gives_way_to_a_knob_that_it_does_not_fit(load: Load) -> None:
    policy, _ = load(flags={"preset": "amoro", "small-file-threshold": "8 MB"}).policy()
    assert (policy.fragment_ratio, policy.fragment_bytes, policy.small_bytes) == (8, 8 * MIB, 8 * MIB)


def test_a_contradiction_with_a_preset_names_it(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"preset": "nimtable", "target-file-size": "16 MB"})
    assert str(caught.value) == (
        "Cannot load settings: preset nimtable: policy.small-file-threshold: must not be above target-file-size, or every good "
        "file counts as small; it is 32 MB (preset nimtable), target-file-size is 16 MB (flag --target-file-size)"
    )


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("amro", ", did you mean amoro?"),
        ("Nimtable", ", did you mean nimtable?"),
        ("xyz", "; write one of serverless-db, notebook, nimtable, amoro, distributed"),
    ],
)
def test_refuses_an_unknown_preset_with_the_nearest_one(load: Load, word: str, advice: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"preset": word})
    assert str(caught.value) == f"Cannot load settings: flag --preset: policy.preset: there is no preset '{word}'{advice}"
    with pytest.raises(SettingsError) as caught:
        load().policy({"neve.preset": word})
    assert str(caught.value) == f"Cannot use table property neve.preset: there is no preset '{word}'{advice}"
    assert caught.value.hint == "Correct the property, or override it with --set policy.preset=VALUE."


def test_serverless_db_finds_no_fault_with_the_row_groups_that_it_asks_for(load: Load) -> None:
    files = make_files([{"size_bytes": 128 * MIB, "row_groups": 2000}])

    def badly_cut(policy: Policy) -> int | None:
        counted = count_row_groups(files, policy, {}, {})
        return None if counted is None else counted.files_with_small_groups

    assert badly_cut(Policy()) == 1
    assert badly_cut(load(flags={"preset": "serverless-db"}).policy()[0]) == 0


def test_settings_without_a_preset_have_no_layer_for_it() -> None:
    assert with_preset([{}, {}]) == [{}, {}]
