"""Rows in a layout's order: within a file, from one file to the next, merged or sorted, in memory or by way of the disk."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from neve.kernels.arrow import ArrowInput, RefusedError, WriteOptions, refusal
from neve.kernels.arrow.merging import Rows, can_read_at_once, merge
from neve.kernels.arrow.model import UnsortedError
from neve.kernels.arrow.sorting import Ordering
from neve.kernels.orders import OrderFailedError, run_order
from neve.kernels.streams import BytesSource
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import InputFile, WorkOrder, WriteSettings
from neve.storage.files import Storage
from neve.table.layout import Layout, LayoutKind, SortField
from neve.table.units import GIB, KIB, MIB
from tests.builders.arrow_files import field, given, list_of, parquet, read, run, schema, struct
from tests.builders.random_schemas import PRIMITIVES, counted, plain

Row = dict[str, Any]
PAIRS = schema(field(1, "a", "long"), field(2, "b", "string"))
BY_A_THEN_B = Layout.parse("sort(a desc nulls-first, b)")
FIELDS = [SortField(name="x", descending=descending, nulls_first=first) for descending in (0, 1) for first in (0, 1)]


def compare(one: Any, other: Any) -> int:
    """Iceberg's order of two values that are there."""
    one, other = (value.encode() if isinstance(value, str) else value for value in (one, other))
    nans = [isinstance(value, float) and math.isnan(value) for value in (one, other)]
    return nans[0] - nans[1] if any(nans) else (one > other) - (one < other)


def in_order(rows: Sequence[Row], layout: Layout) -> list[Row]:
    """Sorted by Python, one comparison at a time."""

    def compare_rows(one: Row, other: Row) -> int:
        for by in layout.fields:
            values = one[by.name], other[by.name]
            if None in values:
                found = (values[1] is None) - (values[0] is None)
                found = found if by.nulls_first else -found
            else:
                found = compare(*values) * (-1 if by.descending else 1)
            if found:
                return found
        return 0

    return sorted(rows, key=cmp_to_key(compare_rows))


def test_the_reference_puts_nulls_where_they_belong() -> None:
    rows: list[dict[str, Any]] = [{"x": 1}, {"x": None}, {"x": 2}]
    found = [[row["x"] for row in in_order(rows, Layout(kind=LayoutKind.SORT, fields=(by,)))] for by in FIELDS]
    assert found == [[1, 2, None], [None, 1, 2], [2, 1, None], [None, 2, 1]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], Layout, list[list[Row]]]:
    """A schema with columns to sort by and one that only comes along, a layout, and the rows of a few files."""
    kinds = [draw(st.sampled_from(sorted(PRIMITIVES))) for _ in range(draw(st.integers(1, 3)))]
    # Few different values, so that many rows tie.
    values = [draw(st.lists(PRIMITIVES[kind], min_size=1, max_size=4)) for kind in kinds]
    required = [draw(st.booleans()) for _ in kinds]
    columns = {
        f"k{i}": st.sampled_from(some) if must else st.none() | st.sampled_from(some)
        for i, (some, must) in enumerate(zip(values, required, strict=True))
    }
    columns["more"] = st.none() | st.lists(st.text("ab", max_size=2), max_size=2)
    of = schema(
        *(field(i + 1, f"k{i}", kind, required=required[i]) for i, kind in enumerate(kinds)),
        field(20, "more", list_of(21, "string")),
    )
    fields = tuple(
        SortField(name=f"k{i}", descending=draw(st.booleans()), nulls_first=draw(st.booleans()))
        for i in draw(st.permutations(range(len(kinds))))
    )
    rows = st.lists(st.fixed_dictionaries(columns), max_size=15)
    return of, Layout(kind=LayoutKind.SORT, fields=fields), draw(st.lists(rows, min_size=1, max_size=4))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@hypothesis_given(tables(), st.data())
def test_rows_that_are_left_come_out_sorted_ties_as_they_were_and_every_count_is_right(table: Any, data: st.DataObject) -> None:
    of, layout, parts = table
    assume(refusal(of, WriteOptions()) is None)
    if merges := data.draw(st.booleans()):
        parts = [in_order(rows, layout) for rows in parts]
    deleted = [sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else [] for rows in parts]
    encoded = [parquet(rows, of, row_group_size=data.draw(st.integers(1, 6))) for rows in parts]
    options = data.draw(
        st.builds(
            WriteOptions,
            row_group_rows=st.none() | st.integers(1, 7),
            target_bytes=st.sampled_from([400, 10**9]),
            memory_bytes=st.sampled_from([512, 4 * KIB, 512 * MIB]),
        )
    )
    inputs = [given(e, d) for e, d in zip(encoded, deleted, strict=True)]
    result, files = run(inputs, of, options, layout=layout, inputs_sorted=merges)

    kept = [row for rows, gone in zip(parts, deleted, strict=True) for i, row in enumerate(rows) if i not in gone]
    dropped = [row for rows, gone in zip(parts, deleted, strict=True) for i, row in enumerate(rows) if i in gone]
    assert plain([row for file in files for row in read(file)]) == plain(in_order(kept, layout))
    assert (result.rows_read, result.rows_dropped, result.positions) == (sum(map(len, parts)), len(dropped), None)
    assert (result.kept, result.dropped) == (counted(of, kept), counted(of, dropped))


NUMBERS = schema(field(1, "x", "int"), field(2, "at", "int"))
STREAMS = st.lists(st.lists(st.none() | st.integers(0, 5), max_size=30), min_size=1, max_size=6)


def streamed(streams: Sequence[Sequence[int | None]], rows: int) -> Iterator[tuple[str, Iterator[Rows]]]:
    """Streams of values, each with its place among all, so many at a time."""
    at = 0
    for number, values in enumerate(streams):
        columns = [pa.array(values, pa.int32()), pa.array(range(at, at + len(values)), pa.int32())]
        parts = [Rows([c.slice(i, rows) for c in columns], 1.0) for i in range(0, len(values), rows)]
        yield f"stream {number}", iter(parts)
        at += len(values)


def merged(streams: Sequence[Sequence[int | None]], by: SortField, rows: int, buffer_bytes: int) -> list[tuple[Any, int]]:
    ordering = Ordering(Layout(kind=LayoutKind.SORT, fields=(by,)), NUMBERS)
    parts = [part.columns for part in merge(streamed(streams, rows), ordering, buffer_bytes)]
    return [pair for values, places in parts for pair in zip(values.to_pylist(), places.to_pylist(), strict=True)]


@settings(max_examples=150, deadline=None)
@hypothesis_given(STREAMS, st.sampled_from(FIELDS), st.integers(1, 8), st.sampled_from([0, 60, 300, 10_000]))
def test_a_merge_is_a_stable_sort_whatever_is_buffered(streams: Any, by: SortField, rows: int, buffer_bytes: int) -> None:
    layout = Layout(kind=LayoutKind.SORT, fields=(by,))
    of_streams = [[row["x"] for row in in_order([{"x": x} for x in values], layout)] for values in streams]
    everything = [{"x": x, "at": at} for at, x in enumerate(x for values in of_streams for x in values)]
    assert merged(of_streams, by, rows, buffer_bytes) == [(row["x"], row["at"]) for row in in_order(everything, layout)]


@pytest.mark.parametrize("different", [3, 700, 10**6])
def test_long_streams_are_merged_round_by_round(different: int) -> None:
    rng = np.random.default_rng(different)
    # The last one has few rows for its range, so that the others reach only a little way into it.
    streams = [sorted(rng.integers(0, different, count).tolist()) for count in (3000, 2500, 3000, 300)]
    found = merged(streams, FIELDS[0], 250, 16_000)
    values = np.array([value for values in streams for value in values])
    assert [at for _, at in found] == np.argsort(values, kind="stable").tolist()


@settings(max_examples=150, deadline=None)
@hypothesis_given(STREAMS, st.sampled_from(FIELDS), st.integers(1, 8), st.sampled_from([0, 60, 300]))
def test_what_a_merge_gives_away_is_sorted_even_if_its_streams_are_not(
    streams: Any, by: SortField, rows: int, buffer_bytes: int
) -> None:
    ordering = Ordering(layout := Layout(kind=LayoutKind.SORT, fields=(by,)), NUMBERS)
    found: list[tuple[Any, int]] = []
    try:
        for part in merge(streamed(streams, rows), ordering, buffer_bytes):
            found += zip(*(column.to_pylist() for column in part.columns), strict=True)
    except UnsortedError:
        pass
    else:
        assert sorted(place for _, place in found) == list(range(sum(map(len, streams))))
    values = [{"x": x} for x, _ in found]
    assert values == in_order(values, layout)
    assert len({place for _, place in found}) == len(found)


def test_a_stream_that_goes_back_is_named() -> None:
    with pytest.raises(UnsortedError, match="Cannot merge stream 1: it is not sorted, although the table says so"):
        merged([[1, 3, 5, 7], [2, 4, 0, 6]], FIELDS[0], 2, 20)


class Sized(BytesSource):
    """A file that is never read."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(b"")
        self.size_bytes = size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "files", "expected"), [(GIB, 5, True), (GIB, 6, False), (512 * KIB, 128, True), (512 * KIB, 129, False)]
)
def test_files_are_merged_only_if_each_fits_its_memory_or_has_some_for_each_column(
    size_bytes: int, files: int, expected: bool
) -> None:
    assert can_read_at_once([ArrowInput(Sized(size_bytes), 1)] * files, leaves=12, memory_bytes=512 * MIB) is expected


def pairs(count: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        {"a": None if rng.random() < 0.05 else int(rng.integers(-500, 500)), "b": f"k{rng.integers(0, 40)}"}
        for _ in range(count)
    ]


@pytest.mark.parametrize("memory_bytes", [64 * KIB, 512 * MIB])
@pytest.mark.parametrize("inputs_sorted", [False, True])
def test_hundreds_of_files_become_files_whose_ranges_follow_one_another(
    tmp_path: Path, memory_bytes: int, inputs_sorted: bool
) -> None:
    parts = [pairs(60, seed) for seed in range(200)]
    if inputs_sorted:
        parts = [in_order(rows, BY_A_THEN_B) for rows in parts]
    options = WriteOptions(memory_bytes=memory_bytes, target_bytes=3 * KIB, row_group_bytes=2 * KIB)
    _, files = run(
        [given(parquet(rows, PAIRS)) for rows in parts], PAIRS, options, layout=BY_A_THEN_B, inputs_sorted=inputs_sorted
    )
    assert len(files) > 3
    last: tuple[Any, ...] | None = None
    found: list[tuple[Any, ...]] = []
    for number, file in enumerate(files):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(file)
        rows = duckdb.sql(f"SELECT a, b FROM read_parquet('{path}', file_row_number=true) ORDER BY file_row_number").fetchall()
        ordered = duckdb.sql(f"SELECT a, b FROM read_parquet('{path}') ORDER BY a DESC NULLS FIRST, b").fetchall()
        assert rows == ordered
        touching = [row for row in (last, rows[0]) if row is not None]
        assert touching == sorted(touching, key=lambda row: (row[0] is not None, -(row[0] or 0), row[1]))
        last = rows[-1]
        found += rows
    expected = [(row["a"], row["b"]) for rows in parts for row in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_lineage_follows_its_rows() -> None:
    rows = [pairs(300, 1), pairs(300, 2)]
    inputs = [
        given(parquet(rows[0], PAIRS), [5, 7], first_row_id=1000, sequence_number=4),
        given(parquet(rows[1], PAIRS), first_row_id=5000, sequence_number=9),
    ]
    for memory_bytes in (4 * KIB, 512 * MIB):
        options = WriteOptions(row_lineage=True, memory_bytes=memory_bytes)
        _, files = run(inputs, PAIRS, options, layout=BY_A_THEN_B)
        expected = [
            {**row, "_row_id": first + i, "_last_updated_sequence_number": number}
            for part, first, number in ((rows[0], 1000, 4), (rows[1], 5000, 9))
            for i, row in enumerate(part)
            if first + i not in (1005, 1007)
        ]
        assert [row for file in files for row in read(file)] == in_order(expected, BY_A_THEN_B)


def test_columns_in_structs_transforms_and_values_that_a_file_lacks_decide_as_the_table_has_them() -> None:
    older = schema(field(1, "id", "int"), field(2, "place", struct(field(3, "city", "string"))))
    newer = schema(
        field(1, "id", "long"),
        field(2, "where", struct(field(3, "town", "string"))),
        field(4, "n", "int", **{"initial-default": 5}),
    )
    first = [{"id": i, "place": {"city": city} if city else None} for i, city in enumerate(["abx", "b", None, "aba"])]
    second = [{"id": 10 + i, "where": {"town": "abz"}, "n": n} for i, n in enumerate([9, 5, 1])]
    layout = Layout.parse("sort(truncate[2](where.town) desc nulls-last, n)")
    _, files = run([given(parquet(first, older)), given(parquet(second, newer))], newer, layout=layout)
    assert [row["id"] for row in read(files[0])] == [1, 12, 0, 3, 11, 10, 2]


def widths(files: Sequence[bytes], column: str) -> list[float]:
    """The share of all values that each file spans."""
    found = [[row[column] for row in read(file)] for file in files]
    span = max(map(max, found)) - min(map(min, found))
    return [(max(values) - min(values)) / span for values in found]


GRID = schema(field(1, "x", "long"), field(2, "y", "double"))


@pytest.mark.parametrize("kind", ["z-order", "hilbert"])
@pytest.mark.parametrize("memory_bytes", [64 * KIB, 512 * MIB])
def test_along_a_curve_files_are_narrow_in_every_column_though_none_held_them_all(kind: str, memory_bytes: int) -> None:
    rng = np.random.default_rng(3)
    rows = [{"x": int(x), "y": float(y)} for x, y in zip(rng.integers(0, 10**9, 16_000), rng.random(16_000), strict=True)]
    # By x, so that a sample of the first inputs alone would be of no use.
    rows.sort(key=lambda row: row["x"])
    inputs = [given(parquet(rows[i : i + 2000], GRID)) for i in range(0, 16_000, 2000)]
    options = WriteOptions(memory_bytes=memory_bytes, target_bytes=16 * KIB, row_group_bytes=16 * KIB)
    _, files = run(inputs, GRID, options, layout=Layout.parse(f"{kind}(x, y)"))
    assert sorted((row for file in files for row in read(file)), key=lambda row: row["x"]) == rows
    assert len(files) > 8
    for column in ("x", "y"):
        assert np.mean(widths(files, column)) < {"hilbert": 0.5, "z-order": 0.6}[kind]  # which jumps


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("sort(nothing)", "Cannot order rows by nothing: the table has no such column outside of lists and maps"),
        ("sort(tags.element)", "Cannot order rows by tags.element: the table has no such column outside of lists and maps"),
        ("sort(bucket[4](a))", r"Cannot sort with the arrow kernel: it has no transform bucket\[4\] of a column of type long"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_read(layout: str, reason: str) -> None:
    of = schema(field(1, "a", "long"), field(2, "tags", list_of(3, "string")))
    with pytest.raises(RefusedError, match=reason):
        run([], of, layout=Layout.parse(layout))


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_reason_to_refuse_and_rows_that_fit_the_memory_need_none() -> None:
    inputs = [given(parquet(pairs(500, seed), PAIRS)) for seed in range(4)]
    with files_of_at_most(0):
        _, files = run(inputs, PAIRS, WriteOptions(), layout=BY_A_THEN_B)
        assert len(read(files[0])) == 2000
        with pytest.raises(RefusedError, match=r"sorting needs more local disk than there is \(File too large\)"):
            run(inputs, PAIRS, WriteOptions(memory_bytes=4 * KIB), layout=BY_A_THEN_B)


def test_runs_go_where_spark_wants_them_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'gone'},{tmp_path}")
    inputs = [given(parquet(pairs(500, seed), PAIRS)) for seed in range(4)]
    _, files = run(inputs, PAIRS, WriteOptions(memory_bytes=4 * KIB), layout=BY_A_THEN_B)
    assert len(read(files[0])) == 2000
    assert list(tmp_path.iterdir()) == []


def order_of(directory: Path, parts: Sequence[Sequence[Row]], **changes: Any) -> WorkOrder:
    inputs = []
    for number, rows in enumerate(parts):
        path = directory / f"in-{number}.parquet"
        path.write_bytes(parquet(rows, PAIRS))
        inputs.append(InputFile(path=str(path), size_bytes=path.stat().st_size, records=len(rows)))
    plain_order: dict[str, Any] = {
        "order_id": "o",
        "group_id": 1,
        "kernels": (Kernel.COPY, Kernel.ARROW),
        "inputs": tuple(inputs),
        "table_schema": PAIRS,
        "output_prefix": str(directory / "out" / "neve-1"),
        "write": WriteSettings(min_chunk_bytes=0),
        "layout": BY_A_THEN_B.model_copy(update={"order_id": 3}),
    }
    return WorkOrder(**plain_order | changes)


@pytest.mark.parametrize("inputs_sorted", [False, True])
def test_an_order_with_a_layout_is_not_copied_and_its_outputs_are_recorded_as_sorted(
    tmp_path: Path, inputs_sorted: bool
) -> None:
    parts = [in_order(pairs(200, seed), BY_A_THEN_B) for seed in (1, 2)]
    result = run_order(order_of(tmp_path, parts, inputs_sorted=inputs_sorted), Storage({}))
    assert result.refusals == ("copy: rows are to be ordered by sort(a desc nulls-first, b asc nulls-first)",)
    assert (result.kernel, result.positions, result.rows_read) == (Kernel.ARROW, None, 400)
    assert [output.sort_order_id for output in result.outputs] == [3]
    assert pq.read_table(result.outputs[0].path).to_pylist() == in_order([row for rows in parts for row in rows], BY_A_THEN_B)


def test_an_input_that_is_not_sorted_is_sorted_after_all_and_the_result_says_so(tmp_path: Path) -> None:
    # Small groups of rows, so that the end of the first file is not in memory when its beginning is merged.
    parts = [in_order(pairs(3000, seed), BY_A_THEN_B) for seed in (1, 2)]
    parts[1] = parts[1][1500:] + parts[1][:1500]
    order = order_of(tmp_path, parts, inputs_sorted=True, write=WriteSettings(memory_bytes=512 * KIB), kernels=(Kernel.ARROW,))
    result = run_order(order, Storage({}))
    assert result.refusals == (f"arrow: Cannot merge {order.inputs[1].path}: it is not sorted, although the table says so",)
    found = [row for output in result.outputs for row in pq.read_table(output.path).to_pylist()]
    assert found == in_order([row for rows in parts for row in rows], BY_A_THEN_B)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [Path(output.path).name for output in result.outputs]


def test_an_order_that_no_kernel_can_sort_fails_with_every_reason(tmp_path: Path) -> None:
    order = order_of(tmp_path, [pairs(3, 1)], layout=Layout.parse("sort(bucket[4](a))"))
    with pytest.raises(OrderFailedError, match=r"copy: rows are to be ordered by .*; arrow: .* no transform bucket\[4\]"):
        run_order(order, Storage({}))
