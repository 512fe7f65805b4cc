"""Random nested schemas, rows, row groups and deletes: what comes out is what went in without the deleted rows."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from neve.kernels.arrow import Counts, WriteOptions, refusal
from neve.kernels.arrow.schema import leaves
from neve.table.metrics import from_bytes
from tests.builders.arrow_files import field, given, list_of, parquet, read, run, schema, struct
from tests.builders.random_schemas import counted, entries, plain, tables


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@hypothesis_given(tables(), st.data())
def test_content_is_the_inputs_without_the_deleted_rows_and_every_count_is_right(table: Any, data: st.DataObject) -> None:
    of, parts = table
    assume(refusal(of, WriteOptions()) is None)
    deleted = [sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else [] for rows in parts]
    row_groups = data.draw(st.integers(1, 8))
    options = data.draw(
        st.builds(
            WriteOptions,
            row_group_rows=st.none() | st.integers(1, 5),
            target_bytes=st.sampled_from([400, 10**9]),
            delta_integers=st.booleans(),
        )
    )
    encoded = [parquet(rows, of, row_group_size=row_groups, use_dictionary=data.draw(st.booleans())) for rows in parts]
    result, files = run([given(e, d) for e, d in zip(encoded, deleted, strict=True)], of, options)

    kept = [[row for i, row in enumerate(rows) if i not in gone] for rows, gone in zip(parts, deleted, strict=True)]
    expected = [row for rows in kept for row in rows]
    dropped = [row for rows, gone in zip(parts, deleted, strict=True) for i, row in enumerate(rows) if i in gone]
    contents = [read(file) for file in files]
    assert plain([row for rows in contents for row in rows]) == plain(expected)
    assert (result.rows_read, result.rows_dropped) == (sum(map(len, parts)), len(dropped))
    assert result.kept == counted(of, expected)
    assert result.dropped == counted(of, dropped)
    assert [len(rows) for rows in contents] == [output.rows for output in result.outputs]
    for output, rows in zip(result.outputs, contents, strict=True):
        metrics = {i: Counts(c.values or 0, c.nulls or 0, c.nans) for i, c in output.metrics.items()}
        assert metrics == counted(of, rows)
        check_bounds(of, output.metrics, rows)
    assert result.positions is not None
    for index, (rows, gone) in enumerate(zip(parts, deleted, strict=True)):
        files_at, rows_at = result.positions.locate(index, np.arange(len(rows)))
        for i, (file, at) in enumerate(zip(files_at, rows_at, strict=True)):
            assert (file == -1) == (i in gone)
            if file >= 0:
                assert plain(contents[file][at]) == plain(rows[i])


def raw(kind: str, value: Any) -> Any:
    """A Python value as Iceberg orders it."""
    if kind == "date":
        return (value - date(1970, 1, 1)).days
    if kind == "time":
        return timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        ) // timedelta(microseconds=1)
    if kind == "timestamp":
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    if kind.startswith("decimal"):
        # Decimal's own arithmetic would round to 28 digits.
        sign, digits, exponent = value.as_tuple()
        return int("".join(map(str, digits))) * 10 ** (exponent + int(kind.rstrip(")").split(",")[1])) * (-1) ** sign
    return value.encode() if isinstance(value, str) else value


def check_bounds(of: dict[str, Any], metrics: Any, rows: list[dict[str, Any]]) -> None:
    """The exact least and greatest value, recomputed from what plain pyarrow read back."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        for number, value in entries(of, row):
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                found.setdefault(number, []).append(value)
    for leaf in leaves(of):
        column = metrics[leaf.field_id]
        values = [raw(leaf.kind, value) for value in found.get(leaf.field_id, [])]
        if leaf.repeated or not values:
            assert (column.lower, column.upper) == (None, None)
        else:
            assert from_bytes(leaf.kind, column.lower) == min(values)
            assert from_bytes(leaf.kind, column.upper) == max(values)


@pytest.mark.parametrize("seed", range(3))
def test_another_engine_reads_the_same_rows(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    of = schema(
        field(1, "id", "long", required=True),
        field(2, "kind", "string"),
        field(3, "price", "decimal(9, 2)"),
        field(4, "score", "double"),
        field(5, "tags", list_of(6, "string")),
        field(7, "place", struct(field(8, "x", "float"), field(9, "y", "int"))),
        field(10, "at", "timestamp"),
    )
    rows = [
        {
            "id": i,
            "kind": None if rng.random() < 0.1 else f"k{rng.integers(0, 5)}",
            "price": Decimal(int(rng.integers(-(10**8), 10**8))).scaleb(-2),
            "score": float(rng.choice([math.nan, math.inf, -0.0, rng.random()])),
            "tags": None if rng.random() < 0.2 else [f"t{j}" for j in range(rng.integers(0, 3))],
            "place": None if rng.random() < 0.2 else {"x": 1.5, "y": None if rng.random() < 0.2 else int(rng.integers(9))},
            "at": datetime(2024, 1, 1) + timedelta(microseconds=int(rng.integers(10**12))),  # noqa: DTZ001
        }
        for i in range(2000)
    ]
    deleted = sorted(rng.choice(1000, 100, replace=False).tolist())
    inputs = [parquet(rows[:1000], of, row_group_size=300), parquet(rows[1000:], of)]
    _, files = run([given(inputs[0], deleted), given(inputs[1])], of, WriteOptions(row_group_rows=700))
    for name, data in {"a.parquet": inputs[0], "b.parquet": inputs[1], "out.parquet": files[0]}.items():
        (tmp_path / name).write_bytes(data)
    before = (
        f"SELECT * FROM read_parquet(['{tmp_path}/a.parquet', '{tmp_path}/b.parquet']) WHERE NOT list_contains({deleted}, id)"
    )
    after = f"SELECT * FROM read_parquet('{tmp_path}/out.parquet')"
    assert duckdb.sql(f"SELECT count(*) FROM ({after})").fetchall() == [(1900,)]
    assert duckdb.sql(f"({before} EXCEPT ALL {after}) UNION ALL ({after} EXCEPT ALL {before})").fetchall() == []
