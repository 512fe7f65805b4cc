"""Names as Spark SQL takes them and prints them."""

from __future__ import annotations

import pytest

from neve.spark.quoting import parts_of, quoted


@pytest.mark.parametrize(
    ("printed", "parts"),
    [
        ("db", ("db",)),
        ("n1.n2", ("n1", "n2")),
        ("`db.x`", ("db.x",)),
        ("n1.`a.b`.n2", ("n1", "a.b", "n2")),
        ("`.dot`", (".dot",)),
        ("`it``s`.`a b`", ("it`s", "a b")),
        ("`a``.``b`", ("a`.`b",)),
        ("`two\nlines`", ("two\nlines",)),
    ],
)
def test_the_parts_of_a_name_are_those_that_spark_printed(printed: str, parts: tuple[str, ...]) -> None:
    assert parts_of(printed) == parts
    assert parts_of(quoted(*parts)) == parts
