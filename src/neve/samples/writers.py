"""A sample that several writers had their hands in: same table, same columns, different physical files.

Registered in `neve.samples.registry`. Spark marks a column of a DataFrame that cannot be null as required in the file even if
the table allows nulls; pyiceberg follows the table. A rewrite that copies bytes must not mix the two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from neve.samples.seeding import seeded
from neve.samples.target import Target, append

COMMITS = 4
ROWS = 60


def write_mixed_writers(target: Target, name: str, *, seed: int, scale: float) -> None:
    """In turn: Spark with nullable columns, Spark with required ones, pyiceberg."""
    rows = max(3, round(ROWS * scale))
    _create(target, name)
    for commit in range(COMMITS):
        first = commit * 1_000_000
        _by_spark(target, name, _rows(seed, first, rows), required="")
        _by_spark(target, name, _rows(seed, first + 100_000, rows), required=" not null")
        append(
            target.load(name),
            [dict(zip(("id", "kind", "ts", "amount"), row, strict=True)) for row in _rows(seed, first + 200_000, rows)],
        )


def _create(target: Target, name: str) -> None:
    target.session(f"build sample {name!r}").sql(
        f"CREATE TABLE {target.spark_name(name)} (id BIGINT, kind STRING, ts TIMESTAMP, amount DOUBLE) USING iceberg "
        "TBLPROPERTIES ('format-version' = '2', 'write.distribution-mode' = 'none')"
    )


def _rows(seed: int, first: int, count: int) -> list[tuple[Any, ...]]:
    rng = seeded(seed, f"mixed {first}")
    start = datetime(2025, 1, 17, tzinfo=UTC)
    return [
        (first + n, rng.choice(("a", "b", "c")), start + timedelta(seconds=rng.randrange(86_400)), rng.randrange(1000) / 8)
        for n in range(count)
    ]


def _by_spark(target: Target, name: str, rows: list[tuple[Any, ...]], *, required: str) -> None:
    schema = f"id bigint{required}, kind string{required}, ts timestamp{required}, amount double"
    frame = target.session(f"build sample {name!r}").createDataFrame(rows, schema)
    frame.coalesce(1).writeTo(target.spark_name(name)).append()
