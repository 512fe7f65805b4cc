from __future__ import annotations

import logging
import re

import pytest

from neve.errors import SettingsError
from neve.table.units import MIB
from tests.builders.settings_files import Load

COMMENTED = """{
"iceberg": {
  "write": {
    "target_file_size_mb": 128,        // of the files that writers make
    "compression_codec": "zstd",
    "parquet_row_group_size": 8192
  },
  "compaction": {
    "enabled": true,
    "small_file_threshold_mb": 64,     // "small" is below this
    "min_files_to_compact": 3,
    "opportunistic_check_interval": 5,
    "max_files_per_compaction": 100
  }
}}"""


@pytest.mark.parametrize("text", [COMMENTED, re.sub("//.*", "", COMMENTED)])
def test_loads_the_older_config_unchanged(load: Load, text: str) -> None:
    policy, origins = load(text, name="config.json").policy()
    assert policy.target_file_size_bytes == 128 * MIB
    assert policy.small_file_threshold_bytes == 64 * MIB
    assert (policy.min_input_files, policy.check_interval_writes, policy.max_files) == (3, 5, 100)
    assert (policy.compression_codec, policy.row_group_rows, policy.advise) == ("zstd", 8192, True)
    assert str(origins["advise"]) == "file config.json"
    assert str(origins["fragment-ratio"]) == "default"


def test_warns_that_the_row_group_size_counts_rows(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    load(COMMENTED, name="config.json")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "config.json: iceberg.write.parquet_row_group_size is read as rows per row group; 8192 rows are few, and such "
        "files read slowly: leave it out to let sizes decide"
    )


def test_leaves_sections_of_the_other_application_alone_with_one_warning(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    text = '{"iceberg": {"compaction": {"enabled": false}}, "s3": {"bucket": "b"}, "cache": 5}'
    loaded = load(text, name="config.json")
    assert loaded.policy()[0].advise is False
    assert loaded.settings.cache.enabled is True
    assert [record.getMessage() for record in caplog.records] == [
        "config.json: beside iceberg, these sections belong to another application: s3, cache"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '{"iceberg": {"write": {"target_size_mb": 1}}}',
            "iceberg.write.target_size_mb: unknown key, did you mean target_file_size_mb?",
        ),
        ('{"iceberg": {"compact": {}}}', "iceberg.compact: unknown key, did you mean compaction?"),
        ('{"iceberg": {"write": 5}}', "iceberg.write: should be a section"),
        ('{"iceberg": 5}', "iceberg: should be a section with write and compaction"),
        (
            '{"iceberg": {"write": {"target_file_size_mb": "big"}}}',
            "iceberg.write.target_file_size_mb: 'big' is not a size; write a number and a unit, such as 128 MB",
        ),
        (
            '{"iceberg": {"compaction": {"min_files_to_compact": 1}}}',
            "iceberg.compaction.min_files_to_compact: should be greater than or equal to 2, not 1",
        ),
        (
            '{"iceberg": {"write": {"target_file_size_mb": 64}, "compaction": {"small_file_threshold_mb": 65}}}',
            (
                "iceberg.compaction.small_file_threshold_mb: must not be above target-file-size, or every good file counts as "
                "small; it is 65 MB (file config.json), target-file-size is 64 MB (file config.json)"
            ),
        ),
        (
            '{"iceberg": {}, "policy": {}}',
            "iceberg: cannot stand beside policy, which says the same in other words; keep one of them",
        ),
    ],
)
def test_refuses_mistakes_inside_its_section_by_its_own_names(load: Load, text: str, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text, name="config.json")
    assert str(caught.value) == f"Cannot load settings: config.json: {line}"


def test_a_profile_and_a_variable_lie_over_it(load: Load) -> None:
    loaded = load(COMMENTED, name="config.json", profile="prod", environ={"NEVE_POLICY__MAX_FILES": "50"})
    policy, _ = loaded.policy()
    assert (policy.min_input_files, policy.check_interval_writes, policy.max_files) == (20, 100, 50)
