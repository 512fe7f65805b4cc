"""Every knob can be set in every way, and means the same in each."""

from __future__ import annotations

import json

import pytest

from neve.policy.model import Policy, knobs
from neve.settings.environment import is_reserved, variable_name
from neve.settings.keys import leaves, settings_tree
from tests.builders.settings_files import Load

VALUES = {
    "target-file-size": "96 MB",
    "small-file-threshold": "24 MB",
    "fragment-ratio": "16",
    "min-input-files": "4",
    "max-files": "77",
    "max-bytes": "3 GB",
    "max-cost": "1.5",
    "max-parallelism": "3",
    "inline-deletes": "3 MB",
    "max-file-size": "700 MB",
    "min-group-size": "5 MB",
    "max-group-size": "10 GB",
    "minor-file-count": "7",
    "minor-interval": "10 min",
    "full-interval": "30 days",
    "reencode-after": "2 h",
    "cool-down": "5 min",
    "gap-wait": "2 min",
    "row-change-interval": "3 min",
    "check-interval": "9",
    "advise": "false",
    "compression-codec": "gzip",
    "row-group-rows": "50000",
    "row-group-min-size": "2 MB",
    "delete-ratio": "0.25",
    "snapshot-keep": "36 h",
    "snapshot-min-count": "4",
    "snapshot-consumers": "job-id",
    "snapshot-consumer-keep": "3 days",
    "snapshot-refs": "false",
    "snapshot-limit": "50",
    "metadata-keep": "20",
    "quarantine-grace": "3 days",
    "trash-keep": "2 weeks",
    "purge-rate": "50",
    "orphan-age": "5 days",
    "orphan-interval": "2 days",
    "maintain-compact": "false",
    "maintain-deletes": "false",
    "maintain-expire": "false",
    "maintain-manifests": "false",
    "maintain-orphans": "false",
    "strategy": "adaptive",
    "cluster-by": "z-order(city, amount)",
    "cluster-depth": "6",
    "hot-window": "2 h",
    "cold-after": "90 days",
    "reads-per-day": "12.5",
    "payback": "7 days",
    "scan-parallelism": "32",
    "queries": "city = 'Rome'; amount > 10",
    "evolve-specs": "true",
    "manifest-target-size": "4 MB",
    "manifest-min-count": "30",
    "stats-columns": "city, amount",
    "stats-change": "0.3",
    "auto-tags": "daily 3, monthly 6",
    "auto-tag-prefix": "kept",
    "ttl": "45 days",
    "ttl-column": "ts",
    "ttl-format": "yyyy-MM-dd",
    "ttl-by": "file",
    "ttl-since": "last-write",
    "ttl-floor": "6 h",
}


@pytest.mark.parametrize("key", [key for key in knobs() if key != "preset"])  # which has a suite of its own
def test_a_knob_is_reachable_as_file_key_profile_variable_flag_and_table_property(load: Load, key: str) -> None:
    value = VALUES[key]
    expected = Policy.model_validate({key: value})
    assert expected != Policy()
    written = json.dumps({key: value})
    assert load(f"policy: {written}").policy()[0] == expected
    assert load(f"profiles: {{p: {{policy: {written}}}}}", profile="p").policy()[0] == expected
    assert load(environ={variable_name(("policy", key)): value}).policy()[0] == expected
    assert load(flags={key: value}).policy()[0] == expected
    assert load(flags={f"policy.{key}": value}).policy()[0] == expected
    assert load().policy({f"neve.{key}": value})[0] == expected


def test_no_setting_hides_behind_a_reserved_variable() -> None:
    assert [path for path, _ in leaves(settings_tree()) if is_reserved(variable_name(path))] == []
