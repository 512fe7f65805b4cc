"""Workloads as files in `bench/workloads`: how a table is partitioned, written and queried. Read by `bench/simulate.py`.

The files were fixed before any strategy was tuned on them. Unknown keys are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from neve.table.units import Bytes, Seconds

FOLDER = Path(__file__).parent.parent / "workloads"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )


class ColumnShape(_Part):
    """A column of which files have bounds. Values of a uniform one are the whole numbers below `values`, in no order."""

    name: str
    kind: Literal["time", "uniform"]
    values: int = 0


class Late(_Part):
    """A share of a commit's bytes that belongs to earlier days: so many files, each of one of the last `days`."""

    share: float = Field(gt=0, lt=1)
    days: int = Field(gt=0)
    files: int = Field(gt=0)


class Deletes(_Part):
    """What comes with rows that replace older ones: an equality delete beside each file, or vectors of older files.

    `replaced` is the share of new rows that have an older version, `touched` the share of files that get a vector.
    """

    kind: Literal["equality", "vector"]
    replaced: float = Field(ge=0, le=1)
    touched: float = Field(1.0, gt=0, le=1)
    row_bytes: float = Field(gt=0)


class Start(_Part):
    """Files that the table begins with, written over the time before: `age` ago until now."""

    files: int = Field(gt=0)
    file_size: Bytes
    spread: float = Field(0.0, ge=0)
    row_bytes: float = Field(gt=0)
    age: Seconds


class Write(_Part):
    """Commits that come again and again; sizes are log-normal around the median, and smaller at night."""

    every: Seconds = Field(gt=0)
    at: Seconds = 0.0
    files: int = Field(gt=0)
    file_size: Bytes
    spread: float = Field(0.0, ge=0)
    night: float = Field(1.0, gt=0, le=1)
    row_bytes: float = Field(gt=0)
    late: tuple[Late, ...] = ()
    deletes: Deletes | None = None


class Query(_Part):
    """A query that is asked so often. `window` before now, or before `ago`, chooses by time; `equal` by one value of each
    column, `range` by a stretch of a column's values. `read` is the share of a file's bytes that its columns make up."""

    name: str
    per_day: float = Field(gt=0)
    window: Seconds | None = None
    ago: Seconds = 0.0
    read: float = Field(gt=0, le=1)
    equal: tuple[str, ...] = ()
    range: dict[str, float] = {}


class Workload(_Part):
    """One table and everything that happens to it."""

    name: str
    words: str
    partitioning: Literal["day", "hour", "bucket", "none"]
    buckets: int = 1
    bucket_column: str | None = None
    format_version: int = 2
    columns: tuple[ColumnShape, ...]
    properties: dict[str, str] = {}
    policy: dict[str, object] = {}
    start: tuple[Start, ...] = ()
    writes: tuple[Write, ...]
    queries: tuple[Query, ...]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known = {column.name for column in self.columns}
        named = {name for query in self.queries for name in (*query.equal, *query.range)} | {
            self.bucket_column or self.time.name
        }
        if unknown := named - known:
            raise ValueError(f"{', '.join(sorted(unknown))} is no column of {self.name}")
        if (self.partitioning == "bucket") != (self.bucket_column is not None):
            raise ValueError("bucket-column goes with partitioning by bucket, and only with that")
        return self

    @property
    def time(self) -> ColumnShape:
        """The column that windows are about."""
        return next(column for column in self.columns if column.kind == "time")


def workload(name: str) -> Workload:
    """A workload by its name."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        raise SystemExit(f"Cannot simulate {name!r}: no such workload; there are {', '.join(names())}")
    return Workload.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def names() -> list[str]:
    """All workloads."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
