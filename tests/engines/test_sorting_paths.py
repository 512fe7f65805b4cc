"""Columns of a layout as SQL takes them: a level's own name may have dots."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from neve.spark.tasks.sorting import _path

INNER = StructType([StructField("a.b", LongType()), StructField("c", LongType()), StructField("x`y", LongType())])
SCHEMA = StructType([StructField("id", LongType()), StructField("e.f", LongType()), StructField("s", INNER)])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("id", "`id`"),
        ("e.f", "`e.f`"),
        ("s.c", "`s`.`c`"),
        ("s.a.b", "`s`.`a.b`"),
        ("s.x`y", "`s`.`x``y`"),
        ("no.such", "`no`.`such`"),
    ],
)
def test_each_level_is_quoted_by_itself(name: str, path: str) -> None:
    assert _path(SCHEMA, name) == path
