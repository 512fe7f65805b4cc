from __future__ import annotations

from pathlib import Path

import pytest

from neve.errors import SettingsError
from neve.settings import load_settings
from neve.settings.files import parse_file
from tests.builders.settings_files import Load


@pytest.mark.parametrize("name", ["neve.yaml", "neve.yml", "neve.json"])
def test_finds_a_file_in_the_working_directory(place: Path, name: str) -> None:
    (place / name).write_text('{"spark": {"master": "local[3]"}}')
    loaded = load_settings(environ={})
    assert loaded.settings.spark.master == "local[3]"
    assert loaded.origin("spark.master") == f"file {name}"
    assert loaded.file == Path(name)


def test_a_variable_names_the_file_and_a_flag_names_another(place: Path) -> None:
    for name in ("neve", "variable", "flag"):
        (place / f"{name}.yaml").write_text(f"spark: {{master: {name}}}")
    environ = {"NEVE_CONFIG": "variable.yaml"}
    assert load_settings(environ=environ).settings.spark.master == "variable"
    assert load_settings(file=Path("flag.yaml"), environ=environ).settings.spark.master == "flag"


def test_works_without_a_file() -> None:
    loaded = load_settings(environ={})
    assert loaded.file is None
    assert loaded.settings.spark.master == "local[*]"


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "policy:\ncatalogs:\n"])
def test_an_empty_file_or_section_sets_nothing(load: Load, text: str) -> None:
    assert load(text).settings == load_settings(environ={}).settings


def test_reads_json_with_comments_but_leaves_urls_alone(load: Load) -> None:
    text = """{
      // the lake
      "catalogs": {"lake": {"type": "rest", /* there */ "uri": "http://host//x", "scope": "a\\"//b"}} // end
    }"""
    lake = load(text, name="neve.json").settings.catalogs["lake"]
    assert lake.uri == "http://host//x"
    assert lake.scope == 'a"//b'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("neve.yaml", "policy: [1", r"Cannot read settings neve\.yaml, line 1: expected ',' or '\]'"),
        ("neve.yaml", "a: 1\nb:\n\t- c", r"Cannot read settings neve\.yaml, line 3: "),
        ("neve.yaml", "- a", r"Cannot read settings neve\.yaml: it holds no keys"),
        ("neve.yaml", "just words", r"Cannot read settings neve\.yaml: it holds no keys"),
        ("neve.yaml", "log:\n  level: info\n  level: error", r"neve\.yaml, line 3: key 'level' is given twice"),
        ("neve.json", '{"log": {},\n// x\n "log": {}}', r"Cannot read settings neve\.json: key 'log' is given twice"),
        ("neve.json", '{"a": 1,\n// comment\n"b" 2}', r"Cannot read settings neve\.json, line 3: Expecting ':'"),
    ],
)
def test_says_where_a_file_cannot_be_read(load: Load, name: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(text, name=name)


def test_says_that_a_file_is_missing_or_no_text(place: Path) -> None:
    with pytest.raises(SettingsError, match=r"^Cannot read settings gone\.yaml: No such file or directory$"):
        parse_file(Path("gone.yaml"))
    with pytest.raises(SettingsError, match="Is a directory"):
        parse_file(Path())
    (place / "neve.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(SettingsError, match="it is not UTF-8 text"):
        parse_file(Path("neve.yaml"))


def test_yaml_anchors_and_merges_still_work(load: Load) -> None:
    text = """
    catalogs:
      a: &shared {type: rest, uri: http://a, scope: all}
      b: {<<: *shared, uri: http://b}
    """
    catalogs = load(text).settings.catalogs
    assert (catalogs["b"].uri, catalogs["b"].scope) == ("http://b", "all")
