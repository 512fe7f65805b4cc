"""One parser for locations: it loses nothing, everybody who opens a file agrees with it, and no two files become one."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import neve
from neve.catalogs.embedded import local_path as warehouse_path
from neve.catalogs.file_io import LiteralFileIO
from neve.catalogs.storage import scheme
from neve.errors import BadRequestError
from neve.maintenance.quarantine import is_trash, original_path, trash_path
from neve.spark.maintenance.listing import _as_root_spells
from neve.storage.files import key_of, kind_of, local_path, refusal
from neve.storage.s3_objects import place_of
from neve.table.location import Location, Spellings, address, cut_by_java, home_of, inner_path, refuse_cut

PLAIN = Spellings.of()
ODD = st.text(st.sampled_from(list("ab.#?%20 +:&=*[]{}\\\n'\"@~ü€")), min_size=1, max_size=8)
NAMES = ODD.filter(lambda name: name not in (".", ".."))
PARTS = st.lists(NAMES, min_size=1, max_size=4)
PATHS = PARTS.map(lambda parts: "/" + "/".join(parts))
LOCAL = st.sampled_from(["", "file:", "file://", "file://localhost", "FILE:"])
BUCKETS = st.sampled_from(["b", "b.c", "my-bucket"])
S3 = st.sampled_from(["s3", "s3a", "s3n", "S3"])
ANYTHING = st.one_of(
    st.text(max_size=30),
    st.builds(lambda home, path: home + path, st.sampled_from(["", "file:", "file://h", "s3://b", "hdfs://nn:1", "x:"]), PATHS),
)


@given(ANYTHING)
@example("file:///a#b")
@example("s3://b")
@example("a:b/c")
@example("")
def test_taking_a_location_apart_loses_nothing(location: str) -> None:
    found = address(location)
    assert found.home + found.path == location == found.spelled
    assert found.home == home_of(location)
    assert found.scheme == found.scheme.lower()
    assert not found.path or not found.scheme or found.path.startswith("/")
    assert address(found.spelled) == found


@given(LOCAL, PATHS)
@example("file://", "/a#b")
@example("file:", "/a?b%20c")
@example("", "/C:/x")
def test_every_reader_of_a_disk_opens_the_same_path(home: str, path: str) -> None:
    location = home + path
    assert local_path(location) == path
    assert LiteralFileIO.parse_location(location) == ("file", "", path)
    assert kind_of(location) == scheme(location) == "file"
    assert PLAIN.parse(location).key == path
    assert refusal({}, [location]) is None


@given(S3, BUCKETS, PATHS)
@example("s3", "b", "/a#b/c?d")
def test_every_reader_of_a_bucket_opens_the_same_object(name: str, bucket: str, path: str) -> None:
    location = f"{name}://{bucket}{path}"
    assert key_of(location) == f"{bucket}{path}"
    assert LiteralFileIO.parse_location(location)[1:] == (bucket, f"{bucket}{path}")
    assert place_of(location) == (bucket, path[1:])
    assert kind_of(location) == scheme(location) == "s3"
    assert PLAIN.parse(location) == Location("s3", bucket, path)


@given(PATHS, st.lists(LOCAL, min_size=2, max_size=2), st.data())
def test_spellings_of_one_local_file_are_equal(path: str, homes: list[str], data: st.DataObject) -> None:
    doubled = "".join(part * (data.draw(st.integers(1, 3)) if part == "/" else 1) for part in path[1:])
    dotted = "/" + doubled.replace("/", data.draw(st.sampled_from(["/", "/./", "/x/../"])))
    assert address(homes[0] + path).identity == address(homes[1] + dotted).identity
    assert local_path(homes[1] + dotted) == path


@given(S3, S3, BUCKETS, PATHS)
def test_spellings_of_one_object_are_equal(one: str, other: str, bucket: str, path: str) -> None:
    assert address(f"{one}://{bucket}{path}").identity == address(f"{other}://{bucket}{path}").identity


@given(LOCAL, LOCAL, st.text("ab./#?%", max_size=8), st.text("ab./#?%", max_size=8))
def test_two_files_on_disk_are_never_equal(one: str, other: str, first: str, second: str) -> None:
    """The disk itself decides what is one file, by paths that have been normalized as Hadoop does."""
    files = [posixpath.normpath(f"/x/{path}") for path in (first, second)]
    assume(files[0] != files[1])
    assert address(f"{one}/x/{first}").identity != address(f"{other}/x/{second}").identity


@given(S3, S3, st.text("ab./#?%", max_size=8), st.text("ab./#?%", max_size=8))
def test_two_objects_are_never_equal(one: str, other: str, first: str, second: str) -> None:
    assume(first != second)
    assert address(f"{one}://b/{first}").identity != address(f"{other}://b/{second}").identity
    assert address(f"{one}://b/{first}").identity != address(f"{other}://c/{first}").identity


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("file:///a#b/f", "file:///a/f"),
        ("/a?b", "/a"),
        ("/a%20b", "/a b"),
        ("/a+b", "/a b"),
        ("s3://b/a//c", "s3://b/a/c"),
        ("s3://b/a/./c", "s3://b/a/c"),
        ("s3://b/a/../c", "s3://b/c"),
        ("s3://b/a/", "s3://b/a"),
        ("file://host/x", "/x"),
        ("s3:/b/x", "/b/x"),
        ("s3://B/x", "s3://b/x"),
    ],
)
def test_these_are_two_files(location: str, other: str) -> None:
    assert address(location).identity != address(other).identity


def test_a_file_of_another_host_is_not_opened() -> None:
    assert local_path("file://localhost/x") == "/x"
    with pytest.raises(BadRequestError, match=r"^Cannot open file://host/x: it is not a file of this machine$"):
        local_path("file://host/x")


def test_arrow_cannot_name_keys_with_doubled_slashes() -> None:
    with pytest.raises(BadRequestError, match="doubled slashes"):
        key_of("s3://b/a//c")
    assert refusal({}, ["s3://b/a/c", "s3a://b/a//c"]) == "Arrow cannot name keys with doubled slashes"
    assert refusal({}, ["s3:/a/c"]) == "it names no bucket"
    assert refusal({}, ["/a//c"]) is None


@given(st.one_of(LOCAL, st.just("s3://b")), PATHS, PARTS)
def test_the_trash_of_a_table_is_in_its_location_however_paths_are_spelled(home: str, place: str, parts: list[str]) -> None:
    below = "/".join(parts)
    path = f"{home}{place}/{below}"
    for location in (home + place, f"{home}{place}/", *([place] if home != "s3://b" else ["s3a://b" + place])):
        assert inner_path(location, path) == below
        trash = trash_path(path, "run", location)
        assert trash == f"{home}{place}/.neve-trash/run/{below}"
        assert is_trash(trash)
        assert original_path(trash) == path


@given(PATHS, PATHS)
def test_the_trash_of_a_file_elsewhere_is_in_its_own_directory(place: str, path: str) -> None:
    assume(not path.startswith(f"{place}/"))
    trash = trash_path(path, "run", place)
    directory, _, name = path.rpartition("/")
    assert trash == f"{directory}/.neve-trash/run/{name}"
    assert inner_path("s3://b" + place, f"s3://c{place}/f") is None


@given(PATHS, PARTS, st.sampled_from([("", "file:"), ("", "hdfs://nn"), ("s3a://b", "s3://b"), ("file://", "file:")]))
@example("/l", ["l", "x"], ("hdfs:", "hdfs://l"))
def test_a_listing_is_spelled_as_its_root(root: str, parts: list[str], homes: tuple[str, str]) -> None:
    below = "/".join(parts)
    assert _as_root_spells(f"{homes[1]}{root}/{below}", homes[0] + root) == f"{homes[0]}{root}/{below}"


def test_a_listing_by_hadoop_has_no_dots() -> None:
    assert _as_root_spells("file:/a/b/f", "/a/x/..//b") == "/a/x/..//b/f"
    assert _as_root_spells("file:/other/f", "/a") == "file:/other/f"


@settings(max_examples=300)
@given(st.sampled_from(["s3://b", "s3a://b", "gs://b", "abfss://c@h", "file:", "", "hdfs://nn", "FILE://"]), PATHS)
def test_iceberg_cuts_object_stores_alone(home: str, path: str) -> None:
    cut, location = cut_by_java(home + path), home + path
    if home in ("file:", "", "hdfs://nn", "FILE://") or not re.search("[#?]", path):
        assert cut is None
        refuse_cut("t", location)
    else:
        assert cut == home + re.split("[#?]", path)[0]
        with pytest.raises(BadRequestError, match=r"(?s)^Cannot work on t: its location .* has a `#` or a `\?`"):
            refuse_cut("t", location)


@pytest.mark.parametrize("name", ["we#ird", "we?ird", "we%20ird", "we ird", "weiürd", "we\\ird"])
@pytest.mark.parametrize("home", ["", "file:", "file://"])
def test_a_warehouse_is_found_where_it_is(tmp_path: Path, name: str, home: str) -> None:
    assert warehouse_path(f"{home}{tmp_path / name}") == tmp_path / name


_OTHER_PARSER = re.compile(r'urlparse|urlsplit|"://" in|split\("://"|partition\("://"\)|(prefix|with)\(\(?"(file|s3[an]?):')
_URLS = {
    "catalogs/hive.py": 2,
    "catalogs/storage.py": 1,
    "outage.py": 2,
    "service/notify/webhook.py": 3,
    "settings/databases.py": 3,
    "spark/runtime/ivy.py": 2,
    "state/location.py": 1,
}
"""Where real URLs are parsed: metastores, Azure, servers that are down, webhooks, databases, a jar repository."""


def test_nobody_else_takes_locations_apart() -> None:
    sources = Path(neve.__file__).parent
    files = {str(file.relative_to(sources)): file.read_text() for file in sources.rglob("*.py")}
    assert {name: len(_OTHER_PARSER.findall(text)) for name, text in files.items() if _OTHER_PARSER.search(text)} == _URLS
