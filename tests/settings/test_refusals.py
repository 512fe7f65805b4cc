from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import neve
from neve.errors import SettingsError
from neve.policy.model import knobs
from neve.settings.problems import HINT
from neve.table.properties import NOTES
from tests.builders.settings_files import Load


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("polcy: {}", "polcy: unknown key, did you mean policy?"),
        ("policy: {target_file_size: 1}", "policy.target_file_size: unknown key, did you mean target-file-size?"),
        ("target-file-size: 1", "target-file-size: unknown key, did you mean policy.target-file-size?"),
        ("spark: {masterr: x}", "spark.masterr: unknown key, did you mean master?"),
        (
            "log: {zzz: 1}",
            "log.zzz: unknown key; valid here: level, format",
        ),
        (
            "profiles: {prod: {policy: {max-fles: 1}}}",
            "profiles.prod.policy.max-fles: unknown key, did you mean max-files?",
        ),
        ("profiles: 5", "profiles: should be a section with one section per profile"),
        (
            "policy: {target-file-size: 128 XB}",
            (
                "policy.target-file-size: unknown unit 'xb' in size '128 XB'; "
                "write B, KB, MB, GB or TB (1024-based), such as 128 MB"
            ),
        ),
        (
            "policy: {min-input-files: many}",
            "policy.min-input-files: should be a valid integer, unable to parse string as an integer, not 'many'",
        ),
        ("policy: {max-files: yes}", "policy.max-files: should not be true; put it in quotes if it is a word"),
        ("policy: {max-files: [1]}", "policy.max-files: should be a valid integer, not a list"),
        ("policy: 5", "policy: should be a section with keys such as target-file-size, small-file-threshold, fragment-ratio"),
        ("catalogs: [a]", "catalogs: should be a section"),
        ("catalogs: {1: {type: rest}}", "catalogs.1: a key must be text; put it in quotes"),
        ("spark: {jars: a.jar}", "spark.jars: should be a list, not 'a.jar'"),
        (
            "spark: {driver-memory: 4x}",
            "spark.driver-memory: unknown unit 'x' in size '4x'; write B, KB, MB, GB or TB (1024-based), such as 128 MB",
        ),
        ("spark: {driver-memory: 4}", "spark.driver-memory: 4 is less than 1 MB"),
        ("log: {format: jsn}", "log.format: should be 'text' or 'json', not 'jsn', did you mean json?"),
        ("default-catalog: 5", "default-catalog: should be a valid string, not 5"),
        ("cache: {max-size: 0}", "cache.max-size: should be greater than 0, not 0"),
        ("catalogs: {a: {uri: http://x}}", "catalogs.a.type: is needed"),
        (
            "catalogs: {a: {type: rets, uri: http://x}}",
            "catalogs.a.type: should be 'sql', 'rest', 'glue', 'hive', 'nessie' or 'hadoop', not 'rets', did you mean rest?",
        ),
        ("catalogs: {a: {type: rest}}", "catalogs.a.uri: is needed by a catalog of type rest"),
        ("catalogs: {a: {type: hive}}", "catalogs.a.uri: is needed by a catalog of type hive"),
        ("catalogs: {a: {type: nessie}}", "catalogs.a.uri: is needed by a catalog of type nessie"),
        ("catalogs: {a: {type: sql}}", "catalogs.a.warehouse: is needed by a catalog of type sql"),
        ("catalogs: {a: {type: hadoop}}", "catalogs.a.warehouse: is needed by a catalog of type hadoop"),
        (
            "catalogs: {a: {type: sql, warehouse: s3://b/w}}",
            "catalogs.a.uri: is needed by a catalog of type sql whose warehouse is not a local directory",
        ),
        (
            "catalogs: {a: {type: rest, uri: http://x, ref: main}}",
            "catalogs.a.ref: means nothing to a catalog of type rest, only to nessie",
        ),
        (
            "catalogs: {a: {type: glue, vended-credentials: true}}",
            "catalogs.a.vended-credentials: means nothing to a catalog of type glue, only to rest and nessie",
        ),
        (
            "catalogs: {a: {type: rest, uri: http://x, token: {env: T}, credential: {env: C}}}",
            "catalogs.a.token: cannot be used together with credential: one of them decides",
        ),
        (
            "catalogs: {a: {type: glue, storage: {s3: {access-key-id: x}}}}",
            "catalogs.a.storage.s3.access-key-id: needs secret-access-key beside it",
        ),
        (
            "catalogs: {a: {type: glue, storage: {abfss: {account-key: {env: K}, sas-token: {env: S}}}}}",
            "catalogs.a.storage.abfss.account-key: cannot be used together with sas-token",
        ),
        (
            "{default-catalog: lak, catalogs: {lake: {type: glue}}}",
            "default-catalog: names no catalog of these settings, did you mean lake?",
        ),
        (
            "policy: {small-file-threshold: 200 MB, target-file-size: 100 MB}",
            (
                "policy.small-file-threshold: must not be above target-file-size, or every good file counts as small; "
                "it is 200 MB (file neve.yaml), target-file-size is 100 MB (file neve.yaml)"
            ),
        ),
        (
            "policy: {max-files: 3, min-input-files: 4}",
            (
                "policy.max-files: must not be below min-input-files, or nothing can ever be merged; "
                "it is 3 (file neve.yaml), min-input-files is 4 (file neve.yaml)"
            ),
        ),
    ],
)
def test_refuses_with_the_file_the_key_and_the_reason(load: Load, text: str, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert str(caught.value) == f"Cannot load settings: neve.yaml: {line}"
    assert caught.value.hint == HINT
    assert caught.value.exit_code == 2


def test_reports_everything_that_is_wrong_at_once(load: Load) -> None:
    text = """
    polcy: {}
    policy: {target-file-size: 1 XB, small-file-threshold: 5 MB, max-files: 2, min-input-files: 3}
    catalogs: {a: {type: rest}, b: {type: rets}}
    """
    with pytest.raises(SettingsError) as caught:
        load(text, environ={"NEVE_SPARK__MASTR": "x"}, flags={"log.level": "loud"})
    first, *lines = str(caught.value).splitlines()
    assert first == "Cannot load settings: 7 problems"
    assert [tuple(line.strip().split(": ")[:2]) for line in lines] == [
        ("neve.yaml", "polcy"),
        ("neve.yaml", "policy.target-file-size"),
        ("neve.yaml", "catalogs.b.type"),
        ("variable NEVE_SPARK__MASTR", "no such setting, did you mean NEVE_SPARK__MASTER?"),
        ("flag --log-level", "log.level"),
        ("neve.yaml", "policy.max-files"),
        ("neve.yaml", "catalogs.a.uri"),
    ]


def test_names_both_places_of_a_contradiction(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load(
            "policy: {small-file-threshold: 200 MB}",
            environ={"NEVE_POLICY__TARGET_FILE_SIZE": "100 MB"},
        )
    assert str(caught.value) == (
        "Cannot load settings: neve.yaml: policy.small-file-threshold: must not be above target-file-size, or every good "
        "file counts as small; it is 200 MB (file neve.yaml), target-file-size is 100 MB "
        "(variable NEVE_POLICY__TARGET_FILE_SIZE)"
    )


def test_a_table_can_lift_a_contradiction_with_a_default_and_only_then_is_it_fine(load: Load) -> None:
    loaded = load("policy: {small-file-threshold: 200 MB}")
    assert loaded.policy({"write.target-file-size-bytes": "536870912"})[0].target_file_size_bytes == 536870912
    with pytest.raises(SettingsError) as caught:
        loaded.policy({})
    assert str(caught.value) == (
        "Cannot use this policy: neve.yaml: policy.small-file-threshold: must not be above target-file-size, or every good "
        "file counts as small; it is 200 MB (file neve.yaml), target-file-size is 128 MB (default)"
    )


def test_refuses_a_fragment_ratio_that_makes_fragments_of_good_files(load: Load) -> None:
    with pytest.raises(
        SettingsError, match=r"policy\.fragment-ratio: must be at least target-file-size divided by small-file-threshold"
    ):
        load("policy: {fragment-ratio: 2, small-file-threshold: 10 MB, target-file-size: 128 MB}")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "write.target-file-size-bytes",
            "128 MB",
            "Cannot use table property write.target-file-size-bytes: '128 MB' is not a whole number of bytes",
        ),
        (
            "neve.min-input-files",
            "1",
            "Cannot use table property neve.min-input-files: should be greater than or equal to 2, not '1'",
        ),
        (
            "neve.snapshot-keep",
            "7 moons",
            (
                "Cannot use table property neve.snapshot-keep: unknown unit 'moons' in duration '7 moons'; "
                "write ms, s, min, h, days or weeks, such as 7 days"
            ),
        ),
    ],
)
def test_refuses_a_bad_table_property_by_name(load: Load, name: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load().policy({name: value})
    assert str(caught.value) == message
    assert "override it with --set " in str(caught.value.hint)


def test_the_hint_for_a_bad_table_property_names_an_option_that_every_command_takes(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load().policy({"history.expire.max-snapshot-age-ms": "-1"})
    assert caught.value.hint == "Correct the property, or override it with --set 'policy.snapshot-keep=7 days'."
    overridden = load(flags={"policy.snapshot-keep": "7 days"}).policy({"history.expire.max-snapshot-age-ms": "-1"})[0]
    assert overridden.snapshot_keep_seconds == 7 * 86_400


def test_a_bad_table_property_does_not_matter_where_settings_decide(load: Load) -> None:
    loaded = load(flags={"target-file-size": "1 MB"})
    assert loaded.policy({"write.target-file-size-bytes": "junk"})[0].target_file_size_bytes == 1048576


def test_reads_snapshot_age_in_milliseconds(load: Load) -> None:
    assert load().policy({"history.expire.max-snapshot-age-ms": "432000000"})[0].snapshot_keep_seconds == 432000


def test_warns_of_a_table_property_that_is_not_known(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    load().policy({"neve.target-file-siz": "1", "comment": "x"})
    assert [record.getMessage() for record in caplog.records] == [
        "table property neve.target-file-siz is not known to this release, did you mean neve.target-file-size?"
    ]


def test_notes_of_our_own_operations_are_known(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    load().policy(dict.fromkeys(NOTES, "{}"))
    assert caplog.messages == []


OF_SNAPSHOTS = {"neve.commit-id", "neve.layout", "neve.manifests-by", "neve.run-id"}
"""Names in the summaries of snapshots."""


def test_every_property_that_an_operation_writes_is_a_knob_or_a_declared_note() -> None:
    """A new one is declared in `table/properties.py`, so that no table is warned of it."""
    root = Path(str(neve.__file__)).parent
    deciding = ("table", "policy", "health", "rewrite", "maintenance", "commit", "operations")
    names = {
        node.value
        for package in deciding
        for module in (root / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"neve\.[a-z-]+", node.value)
    }
    known = {name for knob in knobs().values() for name in knob.properties}
    assert names - known - OF_SNAPSHOTS == NOTES
