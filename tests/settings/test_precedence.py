from __future__ import annotations

import pytest

from neve.errors import SettingsError
from neve.settings import shipped_profiles
from neve.settings.environment import variable_name
from neve.table.units import MIB
from tests.builders.settings_files import Load

FILE = """
policy: {target-file-size: 200 MB}
profiles:
  night: {policy: {target-file-size: 300 MB}}
"""
TABLE = {"neve.target-file-size": "150 MB", "write.target-file-size-bytes": str(100 * MIB)}


@pytest.mark.parametrize(
    ("file", "profile", "environ", "flags", "table", "size", "origin"),
    [
        (None, None, {}, {}, {}, 128, "default"),
        (
            None,
            None,
            {},
            {},
            {"write.target-file-size-bytes": str(100 * MIB)},
            100,
            "table property write.target-file-size-bytes",
        ),
        (None, None, {}, {}, TABLE, 150, "table property neve.target-file-size"),
        (FILE, None, {}, {}, TABLE, 200, "file neve.yaml"),
        (FILE, "night", {}, {}, TABLE, 300, "profile night in neve.yaml"),
        (FILE, "night", {"NEVE_POLICY__TARGET_FILE_SIZE": "400MB"}, {}, TABLE, 400, "variable NEVE_POLICY__TARGET_FILE_SIZE"),
        (
            FILE,
            "night",
            {"NEVE_POLICY__TARGET_FILE_SIZE": "400MB"},
            {"policy.target-file-size": "500 MB"},
            TABLE,
            500,
            "flag --target-file-size",
        ),
    ],
)
def test_flag_beats_environment_beats_profile_beats_file_beats_table_beats_default(
    load: Load,
    file: str | None,
    profile: str | None,
    environ: dict[str, str],
    flags: dict[str, object],
    table: dict[str, str],
    size: int,
    origin: str,
) -> None:
    loaded = load(file, profile=profile, environ=environ, flags=flags)
    policy, origins = loaded.policy(table)
    assert policy.target_file_size_bytes == size * MIB
    assert str(origins["target-file-size"]) == origin
    rows = {row.key: row for row in loaded.explain(table)}
    assert (rows["policy.target-file-size"].value, rows["policy.target-file-size"].origin) == (f"{size} MB", origin)


@pytest.mark.parametrize(("name", "interval", "files"), [("dev", 5, 3), ("staging", 75, 15), ("prod", 100, 20)])
def test_ships_profiles_for_dev_staging_and_prod(load: Load, name: str, interval: int, files: int) -> None:
    policy, origins = load(profile=name).policy()
    assert (policy.check_interval_writes, policy.min_input_files) == (interval, files)
    assert str(origins["check-interval"]) == f"profile {name}"
    assert list(shipped_profiles()) == ["dev", "staging", "prod"]


def test_a_profile_of_the_same_name_is_laid_over_the_shipped_one(load: Load) -> None:
    policy, origins = load("profiles: {prod: {policy: {min-input-files: 50}}}", profile="prod").policy()
    assert (policy.check_interval_writes, policy.min_input_files) == (100, 50)
    assert str(origins["check-interval"]) == "profile prod"
    assert str(origins["min-input-files"]) == "profile prod in neve.yaml"


def test_the_profile_is_chosen_by_flag_then_variable_then_file(load: Load) -> None:
    text = "profile: dev"
    assert load(text).policy()[0].min_input_files == 3
    assert load(text, environ={"NEVE_PROFILE": "staging"}).policy()[0].min_input_files == 15
    loaded = load(text, environ={"NEVE_PROFILE": "staging"}, profile="prod")
    assert loaded.policy()[0].min_input_files == 20
    assert (loaded.settings.profile, loaded.origin("profile")) == ("prod", "flag --profile")


@pytest.mark.parametrize(
    ("environ", "profile", "message"),
    [
        ({}, "prd", "flag --profile: profile: no such profile 'prd', did you mean prod\\?"),
        (
            {"NEVE_PROFILE": "xyz"},
            None,
            "variable NEVE_PROFILE: profile: no such profile 'xyz'; there are dev, staging, prod, night",
        ),
    ],
)
def test_refuses_an_unknown_profile(load: Load, environ: dict[str, str], profile: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=f"^Cannot load settings: {message}$"):
        load(FILE, environ=environ, profile=profile)


def test_catalogs_are_merged_key_by_key(load: Load) -> None:
    text = """
    catalogs: {lake: {type: rest, uri: http://dev, scope: all, properties: {a: 1, b: 2}}}
    profiles: {prod: {catalogs: {lake: {uri: http://prod, properties: {b: 3}}}}}
    """
    loaded = load(text, profile="prod", environ={"NEVE_CATALOGS__LAKE__SCOPE": "some"})
    lake = loaded.settings.catalogs["lake"]
    assert (lake.uri, lake.scope, lake.properties) == ("http://prod", "some", {"a": "1", "b": "3"})
    assert loaded.origin("catalogs.lake.properties.b") == "profile prod in neve.yaml"


def test_null_takes_back_what_lower_layers_said(load: Load) -> None:
    text = """
    policy: {target-file-size: 200 MB}
    spark: {conf: {spark.x: 1}}
    profiles: {plain: {policy: {target-file-size: null}, spark: {conf: {spark.x: null}}}}
    """
    loaded = load(text, profile="plain")
    assert loaded.policy()[0].target_file_size_bytes == 128 * MIB
    assert loaded.settings.spark.conf == {}


def test_reads_variables_of_every_kind(load: Load) -> None:
    environ = {
        "NEVE_DEFAULT_CATALOG": "My-Lake",
        "NEVE_CATALOGS__MY_LAKE__URI": "http://x",
        "NEVE_CATALOGS__OTHER__TYPE": "glue",
        "NEVE_CATALOGS__OTHER__STORAGE__S3__PATH_STYLE_ACCESS": "true",
        "NEVE_SPARK__JARS": "a.jar, b.jar",
        "NEVE_SPARK__CONF": '{"spark.sql.shuffle.partitions": 8}',
        "NEVE_CACHE__TTL": "2 days",
        "NEVE_LOG__LEVEL": "INFO",
        "NEVE_POLICY__ADVISE": "no",
        "NEVE_CACHE__DIRECTORY": "",
    }
    loaded = load("catalogs: {My-Lake: {type: rest}}", environ=environ)
    settings = loaded.settings
    assert settings.catalogs["My-Lake"].uri == "http://x"
    assert settings.catalogs["other"].storage.s3.path_style_access is True
    assert settings.spark.jars == ("a.jar", "b.jar")
    assert settings.spark.conf == {"spark.sql.shuffle.partitions": "8"}
    assert settings.cache.ttl_seconds == 172800
    assert settings.log.level == "info"
    assert loaded.policy()[0].advise is False
    assert settings.cache.directory is None


@pytest.mark.parametrize(
    "name",
    [
        "NEVE_DEBUG",
        "NEVE_JARS",
        "NEVE_JARS_CACHE",
        "NEVE_MAVEN_MIRROR",
        "NEVE_REQUIRE_STACK",
        "NEVE_TEST_X",
        "NEVE_STACK_X",
        "NEVE_BENCH_X",
    ],
)
def test_leaves_variables_alone_that_are_no_settings(load: Load, name: str) -> None:
    assert load(environ={name: "1", "PATH": "/bin"}).settings.spark.master == "local[*]"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NEVE_POLICY__TARGET_FILE_SIZ", ", did you mean NEVE_POLICY__TARGET_FILE_SIZE?"),
        ("NEVE_POLICY_TARGET_FILE_SIZE", ", did you mean NEVE_POLICY__TARGET_FILE_SIZE?"),
        ("NEVE_PROFIL", ", did you mean NEVE_PROFILE?"),
        ("NEVE_CATALOGS__LAKE__UR", ", did you mean NEVE_CATALOGS__LAKE__URI?"),
        ("NEVE_CONFG", ", did you mean NEVE_CONFIG?"),
        ("NEVE_ZZZ", ""),
        ("NEVE_SPARK", ""),
        ("NEVE_SPARK__CONF__SPARK_UI_PORT", ""),
    ],
)
def test_refuses_an_unknown_variable_with_the_nearest_valid_one(load: Load, name: str, near: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load("catalogs: {lake: {type: glue}}", environ={name: "1"})
    message = str(caught.value)
    if near:
        assert message == f"Cannot load settings: variable {name}: no such setting{near}"
    else:
        assert message.startswith(f"Cannot load settings: variable {name}: no such setting")


def test_reads_flags_by_any_dotted_key(load: Load) -> None:
    flags: dict[str, object] = {
        "spark.conf.spark.sql.shuffle.partitions": "8",
        "spark.jars": "a.jar,b.jar",
        "catalogs.my.lake.uri": "http://flag",
        "log.level": "debug",
        "cache.directory": None,
        "min-input-files": 7,
    }
    loaded = load('catalogs: {"my.lake": {type: rest}}', flags=flags)
    assert loaded.settings.spark.conf == {"spark.sql.shuffle.partitions": "8"}
    assert loaded.settings.spark.jars == ("a.jar", "b.jar")
    assert loaded.settings.catalogs["my.lake"].uri == "http://flag"
    assert loaded.origin("log.level") == "flag --log-level"
    assert loaded.origin("spark.jars") == "flag --set spark.jars"
    assert loaded.origin("policy.min-input-files") == "flag --min-input-files"
    assert loaded.origin("cache.directory") == "default"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "policy.target-size",
            "flag --set policy.target-size: policy.target-size: unknown key, did you mean target-file-size?",
        ),
        ("spark.master.x", "flag --set spark.master.x: spark.master: is a single value, and has no key x"),
        ("spark", "flag --set spark: spark: should be a section with keys such as master, driver-memory, executor-memory"),
        ("target-file-size", "flag --target-file-size: policy.target-file-size: should be greater than 0, not '0'"),
    ],
)
def test_refuses_a_flag_that_names_nothing(load: Load, key: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={key: "0"})
    assert str(caught.value) == f"Cannot load settings: {message}"


def test_the_origin_of_an_unknown_key_is_an_error(load: Load) -> None:
    with pytest.raises(
        SettingsError, match=r"Cannot tell the origin of spark\.mastr: no such value, did you mean spark\.master\?"
    ):
        load().origin("spark.mastr")


@pytest.mark.parametrize(
    ("key", "name", "text", "value"),
    [
        ("snapshot-keep", "history.expire.max-snapshot-age-ms", "86400000", 86400.0),
        ("snapshot-keep", "neve.snapshot-keep", "1 day", 86400.0),
        ("snapshot-min-count", "history.expire.min-snapshots-to-keep", "9", 9),
    ],
)
def test_a_table_that_says_how_long_it_is_kept_yields_to_a_flag_alone(
    load: Load, key: str, name: str, text: str, value: float
) -> None:
    field = {"snapshot-keep": "snapshot_keep_seconds", "snapshot-min-count": "snapshot_min_count"}[key]
    for loaded in (load(f"policy: {{{key}: 2}}"), load(environ={variable_name(("policy", key)): "2"}), load()):
        policy, origins = loaded.policy({name: text})
        assert (getattr(policy, field), str(origins[key])) == (value, f"table property {name}")
    policy, origins = load(flags={key: "3"}).policy({name: text})
    assert (getattr(policy, field), str(origins[key])) == (3, f"flag --{key}")
    assert getattr(load(f"policy: {{{key}: 2}}").policy({})[0], field) == 2
