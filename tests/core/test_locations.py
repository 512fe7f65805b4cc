"""Locations are compared by what they mean: spellings come together, and different files never do by accident of a prefix."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.table.location import Location, Spellings

PLAIN = Spellings.of()

NAMES = st.text("ab_%.=", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
KEYS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/t/f", ("s3", "lake", "/t/f")),
        ("s3a://lake/t/f", ("s3", "lake", "/t/f")),
        ("S3N://Lake//t///f/", ("s3", "lake", "/t/f")),
        ("/t/f", ("", "", "/t/f")),
        ("file:/t/f", ("file", "", "/t/f")),
        ("file:///t/f", ("file", "", "/t/f")),
        ("hdfs://nn:8020/t/f", ("hdfs", "nn:8020", "/t/f")),
        ("abfss://c@a.dfs.core.windows.net/t", ("abfss", "c@a.dfs.core.windows.net", "/t")),
        ("s3://lake", ("s3", "lake", "")),
        ("/t/./x/../f", ("", "", "/t/f")),
        ("/t/a%20b c#?d:e/ü\n", ("", "", "/t/a%20b c#?d:e/ü\n")),
        ("/t/s3://x", ("", "", "/t/s3:/x")),
    ],
)
def test_a_location_is_scheme_authority_and_key(location: str, expected: tuple[str, str, str]) -> None:
    assert PLAIN.parse(location) == Location(*expected)


def test_percent_signs_stand_for_themselves() -> None:
    assert PLAIN.parse("/t/a%20b") != PLAIN.parse("/t/a b")
    assert PLAIN.parse("/t/a%2Fb") != PLAIN.parse("/t/a/b")


def test_names_that_are_said_to_be_equal_have_one_representative_over_chains() -> None:
    spellings = Spellings.of(["wasb=abfs", "abfs=abfss"], ["nn1=nn", "NN:8020=nn"])
    found = {
        spellings.parse(f"{scheme}://{host}/t") for scheme in ("wasb", "abfs", "abfss") for host in ("nn1", "nn", "nn:8020")
    }
    assert len(found) == 1
    assert Spellings.of(["a=b", "b=a", "a=a"]).parse("a://x/t") == Spellings.of(["a=b"]).parse("b://x/t")


@pytest.mark.parametrize("pair", ["s3", "=s3", "s3=", "a=b=c"])
def test_half_a_pair_is_refused(pair: str) -> None:
    with pytest.raises(BadRequestError, match=rf"^Cannot read the equal scheme '{pair}': no NAME=NAME$"):
        Spellings.of([pair])


def test_a_prefix_ends_with_a_slash() -> None:
    table = PLAIN.parse("s3://lake/t/")
    assert table.holds(PLAIN.parse("s3a://lake/t/data/f"))
    for other in ("s3://lake/t_2/data/f", "s3://lake/t", "s3://lake/t/", "s3://pond/t/data/f", "gs://lake/t/data/f"):
        assert not table.holds(PLAIN.parse(other))


def test_what_a_location_does_not_say_can_be_anything() -> None:
    assert PLAIN.parse("/wh/t").holds(PLAIN.parse("hdfs://nn/wh/t/f"))
    assert PLAIN.parse("hdfs:///wh/t").holds(PLAIN.parse("hdfs://nn/wh/t/f"))
    assert PLAIN.parse("file:/wh/t").holds(PLAIN.parse("/wh/t/f"))
    assert not PLAIN.parse("hdfs://nn/wh/t").holds(PLAIN.parse("hdfs://nn2/wh/t/f"))


@settings(deadline=None)
@given(KEYS, KEYS)
def test_overlap_is_mutual_and_means_that_one_is_the_beginning_of_the_other(one: str, other: str) -> None:
    mine, theirs = PLAIN.parse(f"s3://b{one}"), PLAIN.parse(f"s3a://b{other}")
    expected = mine.key == theirs.key or mine.holds(theirs) or theirs.holds(mine)
    assert mine.overlaps(theirs) == theirs.overlaps(mine) == expected
    parts, others = mine.key.split("/"), theirs.key.split("/")
    assert expected == (parts[: len(others)] == others or others[: len(parts)] == parts)


@settings(deadline=None)
@given(KEYS, st.sampled_from(["", "file://", "s3://b", "s3a://b", "hdfs://nn:1"]), st.data())
def test_doubled_slashes_change_nothing_and_parsing_twice_neither(key: str, home: str, data: st.DataObject) -> None:
    plain = PLAIN.parse(home + key)
    doubled = "".join(part * (data.draw(st.integers(1, 3)) if part == "/" else 1) for part in key)
    assert PLAIN.parse(home + doubled) == plain
    assert PLAIN.parse(plain.key).key == plain.key == key
