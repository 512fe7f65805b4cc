"""Properties of Iceberg and Amoro as policy: each means what it means there, and the guide tells of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neve.errors import SettingsError
from neve.policy.model import knobs
from neve.table.units import MIB
from tests.builders.settings_files import Load

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "properties.md"

TAKEN = [
    ("write.target-file-size-bytes", "268435456", "target_file_size_bytes", 256 * MIB),
    ("write.parquet.compression-codec", "GZIP", "compression_codec", "gzip"),
    ("history.expire.max-snapshot-age-ms", "3600000", "snapshot_keep_seconds", 3600),
    ("self-optimizing.enabled", "false", "advise", False),
    ("self-optimizing.enabled", "false", "maintain_compact", False),
    ("table-expire.enabled", "false", "maintain_expire", False),
    ("clean-orphan-file.enabled", "false", "maintain_orphans", False),
    ("self-optimizing.target-size", "67108864", "target_file_size_bytes", 64 * MIB),
    ("self-optimizing.max-file-count", "500", "max_files", 500),
    ("self-optimizing.fragment-ratio", "16", "fragment_ratio", 16),
    ("self-optimizing.minor.trigger.file-count", "20", "minor_file_count", 20),
    ("self-optimizing.minor.trigger.interval", "600000", "minor_interval_seconds", 600),
    ("self-optimizing.minor.trigger.interval", "-1", "minor_interval_seconds", 36_500 * 86_400),
    ("self-optimizing.major.trigger.duplicate-ratio", "0.3", "delete_ratio_limit", 0.3),
    ("self-optimizing.full.trigger.interval", "86400000", "full_interval_seconds", 86_400),
    ("self-optimizing.full.trigger.interval", "-1", "full_interval_seconds", None),
    ("snapshot.keep.duration", "720min", "snapshot_keep_seconds", 720 * 60),
    ("snapshot.base.keep.minutes", "30", "snapshot_keep_seconds", 1800),
]
EXPIRY = {
    "data-expire.enabled": "true",
    "data-expire.field": "day",
    "data-expire.retention-time": "90d",
    "data-expire.datetime-string-pattern": "yyyyMMdd",
}


@pytest.mark.parametrize(("name", "text", "field", "value"), TAKEN)
def test_a_property_is_read_as_its_tool_means_it(load: Load, name: str, text: str, field: str, value: object) -> None:
    for spelled in {name, name.replace("self-optimizing.", "self.optimizing.")}:
        policy, origins = load().policy({spelled: text})
        assert getattr(policy, field) == value
        key = next(key for key, knob in knobs().items() if name in knob.properties)
        assert value is None or str(origins[key]) == f"table property {spelled}"


@pytest.mark.parametrize(
    ("spelled", "declared", "field"),
    [
        ("table.expire.enabled", "table-expire.enabled", "maintain_expire"),
        ("table-expire.enable", "table-expire.enabled", "maintain_expire"),
        ("clean-orphan-file.enable", "clean-orphan-file.enabled", "maintain_orphans"),
    ],
)
def test_other_spellings_of_amoro_s_switches_are_read_after_the_usual_one(
    load: Load, spelled: str, declared: str, field: str
) -> None:
    policy, origins = load().policy({spelled: "false"})
    assert getattr(policy, field) is False
    assert str(origins[field.replace("_", "-")]) == f"table property {spelled}"
    for order in ((spelled, declared), (declared, spelled)):
        said = {name: "true" if name == declared else "false" for name in order}
        assert getattr(load().policy(said)[0], field) is True


@pytest.mark.parametrize("name", ["change.data.ttl", "change.data.ttl.minutes"])
def test_a_property_without_effect_is_warned_of(load: Load, caplog: pytest.LogCaptureFixture, name: str) -> None:
    assert load().policy({name: "10080"})[0] == load().policy()[0]
    [line] = caplog.messages
    assert line == (
        f"table property {name} has no effect: it limits the change store of Amoro's mixed tables, which an Iceberg table has "
        "not; neve.ttl limits its rows"
    )


def test_our_own_property_comes_first_then_the_optimizer_s_then_the_writer_s(load: Load) -> None:
    said = {"write.target-file-size-bytes": "1048576"}
    assert load().policy(said)[0].target_file_size_bytes == MIB
    said |= {"self.optimizing.target-size": "2097152"}
    assert load().policy(said)[0].target_file_size_bytes == 2 * MIB
    said |= {"self-optimizing.target-size": "3145728"}
    assert load().policy(said)[0].target_file_size_bytes == 3 * MIB
    said |= {"neve.target-file-size": "4 MB"}
    assert load().policy(said)[0].target_file_size_bytes == 4 * MIB


def test_amoro_s_expiry_counts_where_it_is_on_and_with_amoro_s_defaults(load: Load) -> None:
    policy, origins = load().policy(EXPIRY)
    assert (policy.ttl_seconds, policy.ttl_column, policy.ttl_format) == (90 * 86_400, "day", "yyyyMMdd")
    assert (policy.ttl_by, policy.ttl_since, str(origins["ttl-by"])) == (
        "file",
        "last-write",
        "table property data-expire.enabled",
    )
    told = {
        "data-expire.level": "FILE",
        "data-expire.base-on-rule": "CURRENT_TIME",
        "data-expire.datetime-number-format": "TIMESTAMP_MS",
    }
    policy, _ = load().policy({key: value for key, value in EXPIRY.items() if "pattern" not in key} | told)
    assert (policy.ttl_by, policy.ttl_since, policy.ttl_format) == ("file", "now", "milliseconds")


@pytest.mark.parametrize("switch", [{"data-expire.enabled": "false"}, {"data-expire.enabled": ""}])
def test_amoro_s_expiry_means_nothing_where_it_is_off(load: Load, switch: dict[str, str]) -> None:
    assert load().policy(EXPIRY | switch)[0] == load().policy()[0]
    without = {key: value for key, value in EXPIRY.items() if key != "data-expire.enabled"}
    assert load().policy(without)[0].ttl_seconds is None


def test_a_limit_of_our_own_is_not_bent_by_amoro_s_defaults(load: Load) -> None:
    policy, _ = load().policy(EXPIRY | {"neve.ttl": "7 days"})
    assert (policy.ttl_seconds, policy.ttl_by, policy.ttl_since) == (7 * 86_400, "row", "now")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("self.optimizing.minor.trigger.interval", "1h", "'1h' is not a whole number of milliseconds, nor below zero"),
        ("snapshot.base.keep.minutes", "x", "'x' is not a whole number of minutes"),
        ("history.expire.max-snapshot-age-ms", "7d", "'7d' is not a whole number of milliseconds"),
    ],
)
def test_a_value_that_its_tool_would_not_take_is_named_as_the_table_spells_it(
    load: Load, name: str, text: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"Cannot use table property {name}: {reason}")):
        load().policy({name: text})


def test_the_guide_tells_of_every_property_what_it_becomes() -> None:
    rows = re.findall(r"^\| `([a-z][\w.-]+)` \| (.*?) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name: re.findall(r"`([a-z-]+)`", becomes) for name, becomes in rows}
    taken = [(name, key) for key, knob in knobs().items() for name in knob.properties if not name.startswith("neve.")]
    assert sorted((name, key) for name, found in told.items() for key in found) == sorted(taken)
    assert len([name for name, found in told.items() if not found]) > 30
