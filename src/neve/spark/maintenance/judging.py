"""The rules of `table.location` and `maintenance.orphans` as Spark's expressions, without a trip of every file through Python.

Used by `spark.maintenance.listing` and `spark.maintenance.orphans`; both must come to what the rules themselves say of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from neve.maintenance.orphans import CHECKPOINT, OrphanRules, Verdict
from neve.table.location import CUT, DOTS, DOUBLED, HOME, Location, Spellings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OTHER_FORMAT = r"/(_delta_log|\.hoodie)(/|\z)"
# In Python's expressions `$` also stands before a last line feed, and `.` for anything but one; in Java's for more or less.
_METADATA = r"\.metadata\.json(\.gz)?\n?\z"
_BY_NAME = r"/(version-hint\.text|partition-stats-[^/\n]*|[^/\n]*\.stats)\n?\z"
_DOTTED = r"/\.\.?(/|\z)"
_SPECIAL = ("/_", "/.", ".metadata.json", "version-hint", "stats")
_SPECIAL_DIRECTORIES = ("/offsets/", "/commits/", "/sources/", "/state/", "/chk-", "/savepoint-")
"""One of these is in every path that one of the patterns matches."""


def located(paths: DataFrame, spellings: Spellings, usual: str = "") -> DataFrame:
    """The column `path` with scheme, authority and key beside it: `Spellings.parse`. `usual` is the home that most have."""
    from pyspark.sql import functions as f

    path = f.col("path")
    # Most paths have nothing to be mended, and a pattern takes long to find that out. The guard comes first in each column and
    # asks the path itself, so that Spark looks once: it puts what a column is made from in the place of every mention of it.
    plain = path.startswith(f"{usual}/") & ~path.contains("/.") & ~path.endswith("/")
    plain = plain & (f.locate("//", path, len(usual) + 1) == 0 if usual else ~path.contains("//"))
    home = spellings.parse(f"{usual}/")
    rest = path.substr(len(usual) + 1, 2**31 - 1) if usual else path
    fast = {"scheme": f.lit(home.scheme), "authority": f.lit(home.authority), "key": rest}
    slow = _parsed(path, spellings)
    return paths.select("*", *(f.when(plain, fast[name]).otherwise(slow[name]).alias(name) for name in fast))


def key_of(path: Column) -> Column:
    """The key of a path, whatever its scheme and authority are."""
    from pyspark.sql import functions as f

    bare = f.regexp_replace(f.regexp_replace(path, f"^{HOME}", ""), DOUBLED, "/")
    mended = bare
    for pattern, plain in (*DOTS, (r"/+(?![\s\S])", "")):
        mended = f.regexp_replace(mended, pattern, plain)
    return f.when(path.contains("/.") | path.endswith("/"), mended).otherwise(bare)


def as_read(paths: DataFrame) -> DataFrame:
    """Every path of the column `path`, and beside it what Iceberg opens instead where it cuts the path: both are in use."""
    from pyspark.sql import functions as f

    path = f.col("path")
    is_cut = (path.contains("#") | path.contains("?")) & path.rlike(f"^{CUT}$")
    both = f.array(path, f.regexp_extract(path, f"^{CUT}$", 1))
    return paths.select(f.explode(f.when(is_cut, both).otherwise(f.array(path))).alias("path"))


def _parsed(path: Column, spellings: Spellings) -> dict[str, Column]:
    """Of any path, by patterns."""
    from pyspark.sql import functions as f

    said = [f.when(path.startswith("/"), "").otherwise(f.lower(f.regexp_extract(path, f"^{HOME}", n))) for n in (1, 2)]
    scheme, authority = _representative(said[0], spellings.schemes), _representative(said[1], spellings.authorities)
    return {"scheme": scheme, "authority": authority, "key": key_of(path)}


def _representative(name: Column, stands_for: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as f

    found = name
    for one, other in stands_for.items():
        found = f.when(name == one, other).otherwise(found)
    return found


def is_inside(rules: OrphanRules) -> Column:
    """Whether a located row is in the place that is looked at: `Location.holds`."""
    from pyspark.sql import functions as f

    return reduce(and_, [is_below(f.col("key"), rules.root), *in_same_store(rules.root)])


def is_below(key: Column, root: Location) -> Column:
    """Whether a key lies below a place: after a slash, so that `/t` does not hold `/t_2`."""
    return key.startswith(f"{root.key}/")


def in_same_store(root: Location) -> list[Column]:
    """Conditions for a located row to be in the store of a place: `Location.may_be_home_of`. None if it names no store."""
    from pyspark.sql import functions as f

    scheme = f.when(f.col("scheme") == "", "file").otherwise(f.col("scheme"))
    given = [(scheme, root.scheme), (f.col("authority"), root.authority)]
    return [column == name for column, name in given if name]


def verdicts(rules: OrphanRules) -> Column:
    """`OrphanRules.judge` of a row inside with a location, `path` and `modified_ms`; work that goes on is not known here."""
    from pyspark.sql import functions as f

    modified, key = f.col("modified_ms"), f.col("key")
    below = key.substr(len(rules.root.key) + 1, 2**31 - 1)
    old = (modified > 0) & (modified < rules.cutoff_ms)
    by_age = f.when(old, Verdict.CANDIDATE.value).otherwise(Verdict.FRESH.value)
    cases: list[tuple[Any, Verdict]] = [
        (below.rlike(_OTHER_FORMAT), Verdict.OTHER_FORMAT),
        (f.col("path").endswith("/") | below.rlike(_hidden(rules.hidden)), Verdict.PROTECTED),
        (below.rlike(CHECKPOINT.replace(r"\Z", r"\z")), Verdict.CHECKPOINT),
        (below.rlike(_METADATA), Verdict.METADATA),
        (below.rlike(_BY_NAME), Verdict.PROTECTED),
        (f.col("path").rlike(_DOTTED), Verdict.PROTECTED),
    ]
    by_name = by_age
    for condition, verdict in reversed(cases):
        by_name = f.when(condition, verdict.value).otherwise(by_name)
    # Texts are looked for much faster than patterns.
    parts = (*_SPECIAL, *_SPECIAL_DIRECTORIES)
    special = reduce(lambda one, other: one | other, (f.col("path").contains(part) for part in parts))
    special = special | f.col("path").endswith("/") | f.col("path").endswith("/metadata")
    return f.when(special, by_name).otherwise(by_age)


def _hidden(partitions: tuple[str, ...]) -> str:
    shown = "|".join(re.escape(name) for name in partitions)
    return rf"/(_neve|\.neve|{f'(?!{shown})' if shown else ''}[_.])"
