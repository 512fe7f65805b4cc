"""Which class archive fits, when it is whole, and how it is kept; no JVM is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neve.context import class_archives
from neve.context.class_archives import Recording
from neve.errors import EnvironmentFaultError
from neve.spark.runtime import archive_store, class_archive, class_path
from neve.spark.runtime.class_archive import BASE, CLASSES, RECORD, Archive, Wanted, find
from neve.spark.runtime.java import Java
from neve.spark.runtime.session import SparkOptions

_CONTENT = (0xF00BABA8).to_bytes(4, sys.byteorder) + b"classes" * 100


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    home = tmp_path / "jdk"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n', encoding="utf-8")
    jar = tmp_path / "iceberg-spark-runtime.jar"
    jar.write_text("jar", encoding="utf-8")
    return Wanted(Java(home, home / "bin" / "java", 17, "test"), "4.1.4", (jar,))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archives"


def make(root: Path, wanted: Wanted, *, content: bytes = _CONTENT, base: bool = False) -> Path:
    with archive_store.locked(root, wait=True), archive_store.staging(root) as directory:
        (directory / CLASSES).write_bytes(content)
        if base:
            (root / wanted.key).mkdir()
            (root / wanted.key / BASE).write_bytes(b"base")
        return archive_store.publish(root, wanted, directory)


def again(wanted: Wanted) -> Wanted:
    """The same question, asked by another process."""
    return replace(wanted)


def test_an_archive_is_found_by_the_class_path_that_it_was_made_for(root: Path, wanted: Wanted) -> None:
    assert find(wanted, root) is None
    place = make(root, wanted)
    assert find(again(wanted), root) == Archive(place / CLASSES, None)
    assert find(replace(wanted, spark_version="4.1.5"), root) is None
    assert find(replace(wanted, entries=()), root) is None
    assert find(replace(wanted, java=replace(wanted.java, version=11)), root) is None


def test_a_changed_jar_or_java_wants_another_archive(root: Path, wanted: Wanted) -> None:
    make(root, wanted)
    (jar,) = wanted.entries
    stamp = jar.stat().st_mtime_ns
    os.utime(jar, ns=(stamp, stamp + 1))
    assert find(again(wanted), root) is None
    os.utime(jar, ns=(stamp, stamp))
    assert find(again(wanted), root) is not None
    (wanted.java.home / "release").write_text('JAVA_VERSION="17.0.2"\n', encoding="utf-8")
    assert find(again(wanted), root) is None


def test_a_missing_jar_means_no_archive_and_no_error(root: Path, wanted: Wanted) -> None:
    make(root, wanted)
    wanted.entries[0].unlink()
    assert find(again(wanted), root) is None


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "gone", "no record", "bad record", "odd record"])
def test_a_damaged_archive_is_not_used_and_made_again(root: Path, wanted: Wanted, damage: str) -> None:
    place = make(root, wanted)
    classes, record = place / CLASSES, place / RECORD
    if damage == "truncated":
        classes.write_bytes(_CONTENT[:-1])
    elif damage == "flipped":
        classes.write_bytes(_CONTENT[:50] + bytes([_CONTENT[50] ^ 1]) + _CONTENT[51:])
    elif damage == "emptied":
        classes.write_bytes(b"")
    elif damage == "gone":
        classes.unlink()
    elif damage == "no record":
        record.unlink()
    else:
        record.write_text("{" if damage == "bad record" else json.dumps({"files": {}}), encoding="utf-8")
    assert find(wanted, root) is None
    assert not archive_store.is_made(root, wanted)
    make(root, wanted)
    assert find(wanted, root) is not None


def test_a_java_without_a_base_archive_gets_both(root: Path, wanted: Wanted) -> None:
    assert not archive_store.has_base(wanted.java)
    place = make(root, wanted, base=True)
    found = find(wanted, root)
    assert found is not None
    assert found.options == (
        f"-XX:SharedArchiveFile={place}/base.jsa:{place}/classes.jsa",
        "-Xshare:auto",
        class_archive.QUIET,
        *class_archive.IN_PLACE,
    )
    (place / BASE).write_bytes(b"xxxx")
    assert find(wanted, root) is None


def test_a_path_that_java_would_split_is_not_used(tmp_path: Path, wanted: Wanted) -> None:
    for name in ("a:b", "a b"):
        make(tmp_path / name, wanted)
        assert find(wanted, tmp_path / name) is None


def test_a_cache_that_is_no_directory_means_no_archive(tmp_path: Path, wanted: Wanted) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert find(wanted, tmp_path / "file" / "archives") is None
    assert not archive_store.can_write(tmp_path / "file" / "archives")
    assert archive_store.can_write(tmp_path / "new" / "archives")


def test_what_java_did_not_write_is_not_published(root: Path, wanted: Wanted) -> None:
    for content in (b"", b"something else"):
        with pytest.raises(EnvironmentFaultError, match=r"^Cannot make a class archive: Java did not write one$"):
            make(root, wanted, content=content)
    assert [path.name for path in root.iterdir()] == [".lock"]


def test_the_least_recently_used_are_removed(root: Path, wanted: Wanted) -> None:
    made = [replace(wanted, spark_version=f"4.1.{number}") for number in range(archive_store.KEPT + 1)]
    for number, one in enumerate(made[:-1]):
        os.utime(make(root, one) / RECORD, (number, number))
    assert find(made[0], root) is not None  # used just now
    make(root, made[-1])
    assert [find(one, root) is not None for one in made] == [True, False, True, True, True]


def test_what_a_killed_recording_left_is_removed(root: Path, wanted: Wanted) -> None:
    (root / ".new-left").mkdir(parents=True)
    make(root, wanted)
    assert {path.name for path in root.iterdir()} == {".lock", wanted.key}


def test_a_failed_recording_is_not_repeated_for_a_while(root: Path, wanted: Wanted) -> None:
    root.mkdir()
    archive_store.note_failure(root, wanted, "why")
    assert archive_store.has_failed(root, wanted)
    old = time.time() - archive_store.RETRY_SECONDS - 1
    os.utime(root / f"{wanted.key}.failed", (old, old))
    assert not archive_store.has_failed(root, wanted)
    make(root, wanted)
    assert not (root / f"{wanted.key}.failed").exists()


def test_two_processes_do_not_record_at_once(root: Path) -> None:
    source = (
        "import sys; from pathlib import Path; from neve.spark.runtime.archive_store import locked\n"
        "with locked(Path(sys.argv[1]), wait=False) as ours: print(ours)"
    )
    command = [sys.executable, "-c", source, str(root)]
    with archive_store.locked(root, wait=True):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_only_an_empty_directory_may_be_on_the_class_path(tmp_path: Path, wanted: Wanted) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    with_conf = replace(wanted, entries=(conf, *wanted.entries))
    assert with_conf.obstacle is None
    (conf / "core-site.xml").write_text("", encoding="utf-8")
    assert with_conf.obstacle == f"the directory {conf} is on the class path"
    assert replace(wanted, java=replace(wanted.java, version=11)).obstacle == "Java 11 has no dynamic archives"


@pytest.mark.parametrize(
    ("options", "named"),
    [("-XX:SharedArchiveFile=x", True), ("-Dx -Xshare:off", True), ("-XX:ArchiveClassesAtExit=x", True), ("-Xss2m", False)],
)
def test_users_options_about_sharing_win(options: str, named: bool) -> None:
    assert class_archive.names_archive(options) is named


@pytest.mark.parametrize(
    ("master", "conf", "environ", "held"),
    [
        ("local[*]", {}, {}, True),
        ("local", {"spark.driver.extraClassPath": "/x.jar"}, {}, True),
        ("local-cluster[2,1,1024]", {}, {}, False),
        ("spark://host:7077", {}, {}, False),
        ("local[2]", {"spark.jars": "/x.jar"}, {}, False),
        ("local[2]", {"spark.jars.packages": "a:b:1"}, {}, False),
        ("local[2]", {}, {"PYSPARK_SUBMIT_ARGS": "--packages a:b:1 pyspark-shell"}, False),
        ("local[2]", {}, {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}, True),
    ],
)
def test_jars_go_on_the_class_path_where_nobody_names_others(
    tmp_path: Path, master: str, conf: dict[str, str], environ: dict[str, str], held: bool
) -> None:
    assert class_path.holds_jars(master, conf, tmp_path, environ) is held


def test_jars_in_the_defaults_of_spark_count(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.write_text("spark.driver.memory 1g\n#spark.jars x\n", encoding="utf-8")
    assert class_path.holds_jars("local", {}, tmp_path, {})
    defaults.write_text("spark.jars.packages a:b:1\n", encoding="utf-8")
    assert not class_path.holds_jars("local", {}, tmp_path, {})


def test_the_class_path_is_in_the_order_of_the_launcher(tmp_path: Path) -> None:
    for name in ("jars/b.jar", "jars/a.jar", "conf/x", "own.jar", "dist.jar", "ours.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    conf = {"spark.driver.extraClassPath": f"{tmp_path}/own.jar:{tmp_path}/gone.jar"}
    environ = {"SPARK_DIST_CLASSPATH": f"{tmp_path}/dist.jar"}
    entries = class_path.entries(tmp_path, [tmp_path / "ours.jar"], conf, environ)
    assert [str(path.relative_to(tmp_path)) for path in entries] == [
        "own.jar",
        "conf",
        "jars/a.jar",
        "jars/b.jar",
        "dist.jar",
        "ours.jar",
    ]


def test_an_entry_is_on_the_class_path_once(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_text("", encoding="utf-8")
    conf = {"spark.driver.extraClassPath": f"{tmp_path}/a.jar:{tmp_path}/a.jar"}
    entries = class_path.entries(tmp_path, [tmp_path / "a.jar"], conf, {})
    assert class_path.argument_file(entries) == f'-cp "{tmp_path}/a.jar"\n'
    assert class_path.argument_file([Path('/a "b"\\c')]) == '-cp "/a \\"b\\"\\\\c"\n'


def test_a_recording_is_the_same_after_a_command_line() -> None:
    recording = Recording(("/a.jar",), "/jdk", "/x.jar", background=True)
    assert Recording.parse(recording.text) == recording


@pytest.mark.parametrize("case", ["made", "failed", "obstacle", "missing"])
def test_a_background_recording_starts_only_where_it_can_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: Wanted, case: str
) -> None:
    started: list[Any] = []
    monkeypatch.setenv("NEVE_JARS_CACHE", str(tmp_path))
    recording = Recording((), None, "", background=False)
    monkeypatch.setattr(class_archives, "wanted_for", lambda *_: (wanted, recording))
    monkeypatch.setattr(class_archives, "_detach", started.append)
    if case == "made":
        make(tmp_path / "archives", wanted)
    elif case == "failed":
        (tmp_path / "archives").mkdir()
        archive_store.note_failure(tmp_path / "archives", wanted, "why")
    options = SparkOptions(master="yarn" if case == "obstacle" else "local[*]")
    assert class_archives.make_in_background(options, ()) is (case == "missing")
    assert len(started) == (case == "missing")
    assert all(Recording.parse(command[-1]).background for command in started)
