"""Jars without a network: a small program stands in for Ivy, and counts how often it is started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from neve.errors import EnvironmentFaultError
from neve.spark.runtime import jars
from neve.spark.runtime.java import Java

_IVY = """#!{python}
import os, re, sys, time, zipfile
from pathlib import Path
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
root = Path({root!r})
with (root / "starts").open("a") as file:
    file.write("x")
mode = (root / "mode").read_text() if (root / "mode").exists() else ""
if mode == "slow":
    time.sleep(0.5)
if mode == "refused":
    print("\\t\\t:: g#a;1: not found")
    sys.exit(1)
home = Path(arguments["-ivy"]).parent
found = []
module = Path(arguments["-ivy"]).read_text()
for group, name, version in re.findall(r'<dependency org="(.+?)" name="(.+?)" rev="(.+?)"', module):
    jar = home / "cache" / group / name / "jars" / f"{{name}}-{{version}}.jar"
    jar.parent.mkdir(parents=True)
    if mode == "page" or (mode == "page once" and len((root / "starts").read_text()) == 1):
        jar.write_text("<html>Please log in</html>")
    else:
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr("content", name)
    found.append(str(jar))
Path(arguments["-cachepath"]).write_text(os.pathsep.join(found) + "\\n")
"""


class Ivy:
    """The stand-in: `mode` says how it behaves."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        executable = root / "java"
        executable.write_text(_IVY.format(python=sys.executable, root=str(root)), encoding="utf-8")
        executable.chmod(0o755)
        self.java = Java(home=root, executable=executable, version=17, origin="test")

    @property
    def starts(self) -> int:
        file = self.root / "starts"
        return len(file.read_text(encoding="utf-8")) if file.exists() else 0

    def behave(self, mode: str) -> None:
        (self.root / "mode").write_text(mode, encoding="utf-8")


@pytest.fixture
def ivy(tmp_path: Path) -> Ivy:
    return Ivy(tmp_path / "ivy")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def content(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("content").decode()


def test_second_call_starts_no_java(ivy: Ivy, cache: Path) -> None:
    first = jars.resolve(["g:b:2", "g:a:1"], java=ivy.java, cache=cache)
    assert [path.relative_to(cache) for path in first] == [Path("files/g/b-2.jar"), Path("files/g/a-1.jar")]
    assert ivy.starts == 2
    assert jars.resolve(["g:b:2", "g:a:1"], java=ivy.java, cache=cache) == first
    assert jars.resolve(["g:a:1"], java=ivy.java, cache=cache) == first[1:]
    assert ivy.starts == 2


def test_a_class_path_is_one_wish_in_any_order(ivy: Ivy, cache: Path) -> None:
    first = jars.resolve(["g:b:2", "g:a:1"], java=ivy.java, cache=cache, transitive=True)
    assert sorted(path.name for path in first) == ["a-1.jar", "b-2.jar"]
    assert jars.resolve(["g:a:1", "g:b:2"], java=ivy.java, cache=cache, transitive=True) == first
    assert ivy.starts == 1
    jars.resolve(["g:a:1", "g:b:2"], java=ivy.java, cache=cache, transitive=True, exclusions=["x:y"])
    assert ivy.starts == 2


def test_missing_and_cut_off_files_are_fetched_again(ivy: Ivy, cache: Path) -> None:
    (path,) = jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    path.unlink()
    assert content(jars.resolve(["g:a:1"], java=ivy.java, cache=cache)[0]) == "a"
    path.write_bytes(path.read_bytes()[:20])
    assert content(jars.resolve(["g:a:1"], java=ivy.java, cache=cache)[0]) == "a"
    assert ivy.starts == 3


def test_changed_content_is_found_when_asked_for(ivy: Ivy, cache: Path) -> None:
    (path,) = jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    path.write_bytes(b"0" * path.stat().st_size)
    jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    assert ivy.starts == 1
    jars.resolve(["g:a:1"], java=ivy.java, cache=cache, check_content=True)
    assert ivy.starts == 2
    assert content(path) == "a"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"files": [{}]}', '{"files": null}'])
def test_a_damaged_record_is_made_again(ivy: Ivy, cache: Path, damage: str) -> None:
    jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    (record,) = (cache / "records").iterdir()
    record.write_text(damage, encoding="utf-8")
    assert content(jars.resolve(["g:a:1"], java=ivy.java, cache=cache)[0]) == "a"
    assert json.loads(record.read_text(encoding="utf-8"))["coordinates"] == ["g:a:1"]


def test_a_broken_download_is_tried_once_more(ivy: Ivy, cache: Path) -> None:
    ivy.behave("page once")
    assert content(jars.resolve(["g:a:1"], java=ivy.java, cache=cache)[0]) == "a"
    assert ivy.starts == 2


def test_a_login_page_instead_of_a_jar_is_an_error(ivy: Ivy, cache: Path) -> None:
    ivy.behave("page")
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot use a-1\.jar: what the repository sent is not a jar$"):
        jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    assert ivy.starts == 2


def test_a_failure_names_the_coordinate_and_the_cure_and_does_not_stick(ivy: Ivy, cache: Path) -> None:
    ivy.behave("refused")
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot fetch g:a:1: the repository does not have it$") as caught:
        jars.resolve(["g:a:1"], java=ivy.java, cache=cache)
    assert caught.value.hint is not None
    assert "NEVE_JARS" in caught.value.hint
    ivy.behave("")
    assert content(jars.resolve(["g:a:1"], java=ivy.java, cache=cache)[0]) == "a"
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "files", "records"]


def test_two_processes_at_once_fetch_once(ivy: Ivy, cache: Path) -> None:
    ivy.behave("slow")
    source = (
        "from pathlib import Path\nfrom neve.spark.runtime import jars\nfrom neve.spark.runtime.java import Java\n"
        f"home = Path({str(ivy.root)!r})\n"
        f"print(jars.resolve(['g:a:1'], java=Java(home, home / 'java', 17, 'test'), cache=Path({str(cache)!r}))[0])"
    )
    both = [subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=60)[0].strip() for process in both]
    assert printed == [str(cache / "files" / "g" / "a-1.jar")] * 2
    assert ivy.starts == 1


def test_a_cache_that_cannot_be_written_is_said_so(ivy: Ivy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot keep jars in \S+/file/cache: Not a directory$") as caught:
        jars.resolve(["g:a:1"], java=ivy.java, cache=tmp_path / "file" / "cache")
    assert caught.value.hint == "Set NEVE_JARS_CACHE to a directory that can be written."


def test_neve_jars_are_taken_as_they_are(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jar", tmp_path / "two.jar"
    one.touch()
    two.touch()
    assert jars.given_jars({"NEVE_JARS": f"{one}{os.pathsep}{two}"}) == (one, two)
    assert jars.given_jars({}) == ()


def test_a_missing_jar_of_neve_jars_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jar"
    with pytest.raises(
        EnvironmentFaultError, match=f"^Cannot use jar {re.escape(str(missing))}: there is no such file$"
    ) as caught:
        jars.given_jars({"NEVE_JARS": str(missing)})
    assert caught.value.hint == "It is named in NEVE_JARS; correct or remove it."


def test_the_cache_can_be_moved(tmp_path: Path) -> None:
    assert jars.default_cache({"NEVE_JARS_CACHE": str(tmp_path)}) == tmp_path
    assert jars.default_cache({}).parts[-2:] == ("neve", "jars")
