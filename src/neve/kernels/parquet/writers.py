"""Which programs' Parquet files may be copied, and whose name the result may carry.

Used by `agreement`. Readers treat old files by the `created_by` of their footer: statistics of binary columns before
parquet-mr 1.8 (PARQUET-251), pages that must be read in order (PARQUET-246), chunks longer than they claim before 1.2.9
(PARQUET-816), statistics of all unsigned types before parquet-mr 1.10, compressed v2 pages marked as plain by parquet-cpp
before it was called parquet-cpp-arrow (ARROW-10353). From the versions below on, no reader treats a file by its writer's
version, so that any of their names is true of all their row groups.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KNOWN_WRITERS = {
    "parquet-mr": (1, 10, 0),
    "parquet-mr-trino": (400, 0, 0),
    "parquet-cpp-arrow": (3, 0, 0),
    "parquet-rs": (40, 0, 0),
    "DuckDB": (1, 0, 0),
}
"""The oldest version to trust. Java and Arrow: after the last workaround above. The others: no reader has a workaround for
them; the bound leaves out the years in which their own statistics were still being mended."""

_CREATED_BY = re.compile(
    r"(?P<name>\S+) version v?(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<patch>\d+))?(?P<rest>.*)", re.DOTALL
)


class ParquetWriter(NamedTuple):
    """A program and its version; the smaller stands for the greater, never the other way round."""

    rank: int
    version: tuple[int, int, int]
    created_by: str

    @property
    def name(self) -> str:
        """The program, without its version."""
        return list(KNOWN_WRITERS)[self.rank]


def writer_of(created_by: str) -> ParquetWriter | None:
    """Who wrote a file, or None when its files are not to be copied."""
    match = _CREATED_BY.fullmatch(created_by)
    if match is None or match["name"] not in KNOWN_WRITERS:
        return None
    version = (int(match["major"]), int(match["minor"] or 0), int(match["patch"] or 0))
    if version < KNOWN_WRITERS[match["name"]]:
        return None
    return ParquetWriter(list(KNOWN_WRITERS).index(match["name"]), version, created_by)
