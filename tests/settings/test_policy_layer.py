"""Knobs of policies among the other settings: over file and profile, under variables and flags."""

from __future__ import annotations

from typing import Any

import pytest

from neve.errors import SettingsError
from neve.policy.effective import KnobValue
from neve.settings import Loaded
from neve.settings.policy_layer import with_policy_knobs
from neve.table.units import MIB
from tests.builders.settings_files import Load


def knobs(**values: Any) -> dict[str, KnobValue]:
    return {key.replace("_", "-"): KnobValue(value=value, policy="night") for key, value in values.items()}


def shown(loaded: Loaded, *keys: str, table: dict[str, str] | None = None) -> dict[str, tuple[str, str]]:
    rows = {row.key: (row.value, row.origin) for row in loaded.explain(table)}
    return {key: rows[f"policy.{key}"] for key in keys}


def test_a_policy_goes_before_the_file_a_profile_and_the_table(load: Load) -> None:
    text = "policy: {max-files: 70}\nprofile: p\nprofiles: {p: {policy: {min-input-files: 8}}}\n"
    loaded = with_policy_knobs(load(text), knobs(max_files=15, min_input_files=6, fragment_ratio="7"))
    assert shown(loaded, "max-files", "min-input-files", "fragment-ratio", table={"neve.fragment-ratio": "3"}) == {
        "max-files": ("15", "policy night"),
        "min-input-files": ("6", "policy night"),
        "fragment-ratio": ("7", "policy night"),
    }
    assert loaded.policy()[0].max_files == 15


def test_a_variable_and_a_flag_go_before_a_policy(load: Load) -> None:
    loaded = load(environ={"NEVE_POLICY__MAX_FILES": "70"}, flags={"min-input-files": "8"})
    loaded = with_policy_knobs(loaded, knobs(max_files=5, min_input_files=6))
    assert shown(loaded, "max-files", "min-input-files") == {
        "max-files": ("70", "variable NEVE_POLICY__MAX_FILES"),
        "min-input-files": ("8", "flag --min-input-files"),
    }


def test_without_knobs_nothing_changes(load: Load) -> None:
    loaded = load("policy: {max-files: 70}\n")
    assert with_policy_knobs(loaded, {}) is loaded


def test_a_preset_of_a_flag_goes_before_a_knob_of_a_policy(load: Load) -> None:
    loaded = with_policy_knobs(load(flags={"preset": "nimtable"}), knobs(target_file_size="77 MB", max_files=9))
    assert shown(loaded, "target-file-size", "max-files") == {
        "target-file-size": ("1 GB", "preset nimtable"),
        "max-files": ("9", "policy night"),
    }


def test_a_preset_of_a_flag_is_not_mixed_with_that_of_a_policy(load: Load) -> None:
    loaded = with_policy_knobs(load(flags={"preset": "nimtable"}), knobs(preset="amoro"))
    assert shown(loaded, "preset")["preset"] == ("nimtable", "flag --preset")
    assert "preset amoro" not in {row.origin for row in loaded.explain()}


def test_a_preset_of_the_file_gives_way_to_a_knob_of_a_policy(load: Load) -> None:
    loaded = with_policy_knobs(load("policy: {preset: nimtable}\n"), knobs(target_file_size="77 MB"))
    assert shown(loaded, "target-file-size", "max-group-size") == {
        "target-file-size": ("77 MB", "policy night"),
        "max-group-size": ("50 GB", "preset nimtable"),
    }


def test_a_preset_of_a_policy_goes_before_the_file_and_replaces_its_preset(load: Load) -> None:
    loaded = with_policy_knobs(load("policy: {preset: nimtable}\n"), knobs(preset="amoro"))
    assert shown(loaded, "preset")["preset"] == ("amoro", "policy night")
    origins = {row.origin for row in loaded.explain()}
    assert "preset nimtable" not in origins
    assert "preset amoro" in origins


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"max_filse": 3}, "policy night: policy.max-filse: unknown key, did you mean max-files?"),
        ({"target_file_size": "1 XB"}, "policy night: policy.target-file-size: unknown unit 'xb'"),
        ({"max_files": "${env:X}"}, "policy night: policy.max-files: takes no reference"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_name_of_its_policy(
    load: Load, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        with_policy_knobs(load(), knobs(**values))
    assert str(caught.value).startswith(f"Cannot use policies: {reason}")


def test_knobs_of_policies_that_contradict_each_other_are_refused_with_their_origin(load: Load) -> None:
    loaded = with_policy_knobs(load(), knobs(target_file_size=64 * MIB, small_file_threshold="1 GB"))
    with pytest.raises(SettingsError, match="policy night"):
        loaded.policy()
