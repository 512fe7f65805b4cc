from __future__ import annotations

import math
import re
from contextlib import suppress

import pytest
from pydantic import ValidationError

from neve.policy.model import Policy, contradictions, knobs, read_property
from neve.table.units import MIB


def make_policy(**knobs: object) -> Policy:
    return Policy.model_validate({key.replace("_", "-"): value for key, value in knobs.items()})


def test_every_knob_has_a_unit_a_reason_and_its_own_table_property_first() -> None:
    for key, knob in knobs().items():
        assert knob.unit
        assert knob.why.endswith(".")
        assert knob.properties[0] == f"neve.{key}"


def test_a_knob_without_a_default_says_what_happens_then() -> None:
    fields = {str(field.alias): field.get_default() for field in Policy.model_fields.values()}
    assert {key for key, knob in knobs().items() if knob.unset} == {key for key, value in fields.items() if value is None}


def test_a_file_is_small_below_half_the_target_unless_said_otherwise() -> None:
    assert make_policy(target_file_size="256 MB").small_bytes == 128 * MIB
    assert make_policy(target_file_size="256 MB", small_file_threshold="64 MB").small_bytes == 64 * MIB


def test_a_fragment_is_an_eighth_of_the_target_and_always_small() -> None:
    assert make_policy(target_file_size="256 MB").fragment_bytes == 32 * MIB
    assert make_policy(target_file_size="256 MB", small_file_threshold="10 MB").fragment_bytes == 10 * MIB


def test_refuses_a_small_file_threshold_above_the_target() -> None:
    message = "small-file-threshold must not be above target-file-size, or every good file counts as small"
    with pytest.raises(ValidationError, match=message):
        make_policy(target_file_size="64 MB", small_file_threshold="65 MB")


def test_no_file_above_half_the_target_is_small_since_two_of_them_cannot_make_one_good_file() -> None:
    assert make_policy(target_file_size="64 MB", small_file_threshold="64 MB").small_bytes == 32 * MIB
    assert make_policy(target_file_size="64 MB", small_file_threshold="10 MB").small_bytes == 10 * MIB


def test_no_file_below_twice_the_target_is_cut_since_a_merge_may_write_it() -> None:
    assert make_policy(target_file_size="64 MB", max_file_size="100 MB").large_bytes == 128 * MIB
    assert make_policy(target_file_size="64 MB", max_file_size="1 GB").large_bytes == 1024 * MIB
    assert make_policy().large_bytes is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("target-file-size", 0, "greater than 0"),
        ("fragment-ratio", 1, "greater than or equal to 2"),
        ("min-input-files", 1, "greater than or equal to 2"),
        ("delete-ratio", 1.5, "less than or equal to 1"),
        ("compression-codec", "ztsd", "'ztsd' is not a codec; write one of zstd, snappy"),
        ("target-file-siz", 1, "Extra inputs are not permitted"),
    ],
)
def test_refuses_values_out_of_bounds(key: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Policy.model_validate({key: value})


def test_reads_a_codec_in_any_case_as_iceberg_does() -> None:
    assert make_policy(compression_codec="ZSTD").compression_codec == "zstd"


def test_survives_a_trip_through_json() -> None:
    policy = make_policy(target_file_size="256 MB", small_file_threshold="10 MB")
    assert Policy.model_validate_json(policy.model_dump_json(by_alias=True)) == policy


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({"fragment-ratio": 2, "small-file-threshold": "10 MB"}, "fragment-ratio"),
        ({"row-group-min-size": "200 MB"}, "row-group-min-size"),
        ({"max-files": 4}, "max-files"),
        ({"min-input-files": 20_000}, "max-files"),
        ({"hot-window": "40 days"}, "cold-after"),
    ],
)
def test_names_knobs_that_contradict_each_other(values: dict[str, object], first: str) -> None:
    (found,) = contradictions(Policy.model_validate(values), values)
    assert found.keys[0] == first


@pytest.mark.parametrize(("text", "told"), [("a", "sort(a asc nulls-first)"), ("ZORDER(a, b)", "z-order(a, b)")])
def test_a_layout_is_kept_in_one_spelling(text: str, told: str) -> None:
    assert make_policy(cluster_by=text).cluster_by == told


@pytest.mark.parametrize(("value", "message"), [("a, a", "names a column twice"), (7, "7 is not a layout; write columns")])
def test_refuses_what_is_no_layout(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(cluster_by=value)


def test_a_default_that_does_not_fit_gives_way() -> None:
    values = {"target-file-size": "4 MB", "small-file-threshold": "100 KB"}
    assert contradictions(Policy.model_validate(values), values) == ()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("write.target-file-size-bytes", "134217728", 134217728),
        ("history.expire.max-snapshot-age-ms", "432000000", "432000000 ms"),
        ("neve.target-file-size", "128 MB", "128 MB"),
        ("write.parquet.compression-codec", "zstd", "zstd"),
    ],
)
def test_reads_table_properties_in_the_unit_of_their_name(name: str, text: str, expected: object) -> None:
    assert read_property(name, text) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("write.target-file-size-bytes", "'128 MB' is not a whole number of bytes"),
        ("history.expire.max-snapshot-age-ms", "'128 MB' is not a whole number of milliseconds"),
    ],
)
def test_refuses_units_in_properties_that_iceberg_reads_as_numbers(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        read_property(name, "128 MB")


@pytest.mark.parametrize("value", ["-5 days", "-1", "-0.5", "nan", "inf", "-inf", "1e400", -1, -0.5, math.nan, math.inf])
def test_every_knob_with_a_number_refuses_what_makes_no_sense(value: object) -> None:
    units = ("duration", "size", "count", "ratio", "money", "rows", "writes")
    numbers = sorted(key for key, one in knobs().items() if one.unit in units)
    assert len(numbers) > 30
    accepted = list[str]()
    for key in numbers:
        with suppress(ValidationError):
            Policy.model_validate({key: value})
            accepted.append(key)
    assert accepted == []
