"""Random deletes of every kind against a plain model: what is left, what was dropped, and where each row went."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.rewrite.work_order import WorkResult
from tests.builders.arrow_files import field, struct
from tests.builders.delete_orders import Case, comparable

VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -1, 2**31 - 1],
    "long": [0, -1, 2**63 - 1],
    "float": [0.0, -0.0, math.nan, math.inf, 1.5],
    "double": [0.0, -0.0, math.nan, -math.inf, 1e-300],
    "date": [0, -1, 19000],
    "time": [0, 1, 86_399_999_999],
    "timestamp": [0, -1, 2**52],
    "timestamptz": [0, -1, 2**52],
    "timestamp_ns": [0, 1, 2**62 + 1],
    "timestamptz_ns": [0, -1, 2**62],
    "string": ["", "a", "ab", "é" * 40, "eight by"],
    "binary": [b"", b"\0", b"\0\0", b"x" * 40],
    "uuid": [bytes(16), b"\xff" * 16],
    "fixed[3]": [b"abc", b"\0\0\0"],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99")],
    "decimal(38,10)": [Decimal("0E-10"), Decimal("-1234567890123456789012345678.0000000001")],
}
NESTED, NUMBER = 4, 9


def value(draw: st.DrawFn, kind: str) -> Any:
    return draw(st.sampled_from([None, *VALUES[kind]]))


def row(draw: st.DrawFn, kinds: list[str]) -> dict[str, Any]:
    nested = None if draw(st.booleans()) else {"x": value(draw, kinds[2])}
    return {"a": value(draw, kinds[0]), "b": value(draw, kinds[1]), "s": nested}


def key(of: dict[str, Any], ids: tuple[int, ...], kinds: list[str]) -> tuple[Any, ...]:
    values = {1: of["a"], 2: of["b"], NESTED: (of["s"] or {}).get("x")}
    return tuple(comparable(values[i], kinds[(1, 2, NESTED).index(i)]) for i in ids)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, list[list[dict[str, Any]]], set[tuple[int, int]]]:
    """A case, the rows of its data files, and which of them are gone."""
    kinds = [draw(st.sampled_from(sorted(VALUES))) for _ in range(3)]
    nested = field(3, "s", struct(field(NESTED, "x", kinds[2])))
    case = Case(field(1, "a", kinds[0]), field(2, "b", kinds[1]), nested, field(NUMBER, "n", "long", required=True))
    files: list[list[dict[str, Any]]] = []
    for number in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
        rows = [row(draw, kinds) | {"n": 100 * len(files) + i} for i in range(draw(st.integers(0, 8)))]
        files.append(rows)
        case.data(rows, number)
    gone: set[tuple[int, int]] = set()
    for number in draw(st.lists(st.integers(1, 5), max_size=4)):
        ids = tuple(draw(st.sets(st.sampled_from([1, 2, NESTED]), min_size=1)))
        rows = [row(draw, kinds) | {"n": 0} for _ in range(draw(st.integers(0, 3)))]
        case.equality(rows, ids, number, inline=draw(st.booleans()))
        keys = {key(one, ids, kinds) for one in rows}
        gone |= {(i, p) for i, p, one in numbered(files) if key(one, ids, kinds) in keys and number > sequence(case, i)}
    gone |= deleted_by_position(draw, case, files)
    return case, files, gone


def numbered(files: list[list[dict[str, Any]]]) -> list[tuple[int, int, dict[str, Any]]]:
    return [(i, p, one) for i, rows in enumerate(files) for p, one in enumerate(rows)]


def sequence(case: Case, i: int) -> int:
    number = case.inputs[i].sequence_number
    assert number is not None
    return number


def deleted_by_position(draw: st.DrawFn, case: Case, files: list[list[dict[str, Any]]]) -> set[tuple[int, int]]:
    gone: set[tuple[int, int]] = set()
    for _ in range(draw(st.integers(0, 2))):
        chosen = {i: sorted(draw(st.sets(st.integers(0, 9), max_size=4))) for i in range(len(files))}
        inline = draw(st.booleans())
        if draw(st.booleans()):
            case.vectors({i: rows for i, rows in chosen.items() if rows}, inline=inline)
        else:
            case.position_file({case.inputs[i].path: rows for i, rows in chosen.items()} | {"other": [1]}, inline=inline)
        gone |= {(i, p) for i, rows in chosen.items() for p in rows if p < len(files[i])}
    return gone


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_exactly_the_deleted_rows_are_left_out(
    drawn: tuple[Case, list[list[dict[str, Any]]], set[tuple[int, int]]],
) -> None:
    case, files, gone = drawn
    result, rows = case.run()
    expected = [one["n"] for i, p, one in numbered(files) if (i, p) not in gone]
    assert [one["n"] for one in rows] == expected
    assert (result.rows_read, result.rows_dropped) == (len(numbered(files)), len(gone))
    check_counts(result, files, gone)
    check_positions(case, result, files, gone)


def check_counts(result: WorkResult, files: list[list[dict[str, Any]]], gone: set[tuple[int, int]]) -> None:
    for counted, wanted in ((result.kept, False), (result.dropped, True)):
        rows = [one for i, p, one in numbered(files) if ((i, p) in gone) is wanted]
        if not rows:
            assert all(c.values == 0 for c in counted.values())
            continue
        assert {i: (c.values, c.nulls) for i, c in counted.items()} == {
            1: (len(rows), sum(one["a"] is None for one in rows)),
            2: (len(rows), sum(one["b"] is None for one in rows)),
            NESTED: (len(rows), sum((one["s"] or {}).get("x") is None for one in rows)),
            NUMBER: (len(rows), 0),
        }


def check_positions(case: Case, result: WorkResult, files: list[list[dict[str, Any]]], gone: set[tuple[int, int]]) -> None:
    assert result.positions is not None
    outputs = [case.rows(output.path) for output in result.outputs]
    for i, rows in enumerate(files):
        found = zip(*result.positions.locate(i, np.arange(len(rows))), strict=True)
        for p, (output, place) in enumerate(found):
            assert bool(output < 0) == ((i, p) in gone)
            if output >= 0:
                assert outputs[output][place]["n"] == rows[p]["n"]
