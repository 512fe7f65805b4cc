"""The proof: each way in which a kernel could be wrong is one objection, and nothing that is right is objected to."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from neve.rewrite.group import Kernel
from neve.rewrite.proof import Proof, prove
from neve.rewrite.work_order import Counted, Metrics, OutputFile, WorkResult
from neve.table.metrics import ColumnMetrics, to_bytes

KINDS = {1: "long", 2: "string", 3: "double", 4: "binary"}


def result(outputs: Sequence[tuple[int, Mapping[int, Metrics]]], **changes: Any) -> WorkResult:
    files = tuple(
        OutputFile(path=f"/t/new-{i}", size_bytes=1, records=rows, row_groups=1, split_offsets=(4,), metrics=dict(metrics))
        for i, (rows, metrics) in enumerate(outputs)
    )
    plain: dict[str, Any] = {
        "order_id": "o",
        "group_id": 0,
        "inputs_digest": "d",
        "kernel": Kernel.ARROW,
        "outputs": files,
        "rows_read": 10,
        "kept": {},
        "seconds": 0,
        "cpu_seconds": 0,
        "peak_memory_bytes": 0,
    }
    return WorkResult(**plain | changes)


def proof(
    found: WorkResult, inputs: Sequence[Mapping[int, ColumnMetrics]] = (), *, known: Sequence[str] = (), deletes: bool = False
) -> Proof:
    return prove(
        found,
        inputs_digest="d",
        input_records=10,
        input_metrics=inputs,
        kinds=KINDS,
        known_paths=known,
        has_deletes=deletes,
    )


def test_a_rewrite_that_adds_up_is_proved() -> None:
    inputs = [{1: bounds("long", 0, 4, values=5, nulls=1)}, {1: bounds("long", 5, 9, values=5, nulls=0)}]
    outputs = [(10, {1: Metrics.of(bounds("long", 0, 9, values=10, nulls=1))})]
    found = proof(result(outputs, kept={1: Counted(values=10, nulls=1)}), inputs, known=["/t/old"])

    assert found.holds
    assert found.objection is None
    assert {check.name for check in found.checks} == {
        "inputs",
        "rows read",
        "rows dropped",
        "rows written",
        "values by column",
        "nulls by column",
        "nans by column",
        "values against manifests",
        "nulls against manifests",
        "nans against manifests",
        "bounds within inputs",
        "paths are new",
    }


@pytest.mark.parametrize(
    ("rows_out", "changes", "deletes", "objection"),
    [
        (10, {"inputs_digest": "other"}, False, "inputs: the result is of other files (other, expected d)"),
        (10, {"rows_read": 9}, False, "rows read: 9, expected 10"),
        (9, {}, False, "rows written: 9, expected 10"),
        (11, {}, False, "rows written: 11, expected 10"),
        (9, {"rows_dropped": 1}, False, "rows dropped: 1, expected none: no delete is attached to any input"),
        (9, {"rows_dropped": 1}, True, None),
        (10, {"rows_dropped": 1}, True, "rows written: 10, expected 9"),
        (12, {"rows_dropped": -2}, True, "rows dropped: -2"),
        (0, {"rows_dropped": 10}, True, None),
    ],
)
def test_rows_in_minus_rows_deleted_are_rows_out(
    rows_out: int, changes: dict[str, Any], deletes: bool, objection: str | None
) -> None:
    assert proof(result([(rows_out, {})], **changes), deletes=deletes).objection == objection


def test_a_group_without_outputs_is_proved_where_every_row_was_deleted() -> None:
    assert proof(result([], rows_dropped=10, kept={1: Counted(values=0, nulls=0)}), deletes=True).holds
    assert proof(result([]), deletes=True).objection == "rows written: 0, expected 10"


@pytest.mark.parametrize(
    ("written", "counted", "objection"),
    [
        (Metrics(values=10, nulls=2, nans=1), Counted(values=10, nulls=2, nans=1), None),
        (Metrics(values=9, nulls=2), Counted(values=10, nulls=2), "values by column: column 3: 9, expected 10"),
        (Metrics(values=10, nulls=3), Counted(values=10, nulls=2), "nulls by column: column 3: 3, expected 2"),
        (Metrics(values=10, nans=0), Counted(values=10, nans=1), "nans by column: column 3: 0, expected 1"),
        (Metrics(values=10, nulls=2), Counted(values=10), None),
        (Metrics(), Counted(values=10, nulls=2, nans=1), None),
    ],
)
def test_what_was_counted_is_in_the_footers(written: Metrics, counted: Counted, objection: str | None) -> None:
    assert proof(result([(10, {3: written})], kept={3: counted})).objection == objection


def test_a_column_that_no_footer_has_is_missing() -> None:
    found = proof(result([(10, {})], kept={2: Counted(values=10, nulls=0)}))
    assert found.objection == "values by column: column 2: 0, expected 10"


@pytest.mark.parametrize(
    ("counted", "objection"),
    [
        (Counted(values=10, nulls=3, nans=1), None),
        (Counted(values=10, nulls=4), "nulls against manifests: column 3: 4, manifests said 3"),
        (Counted(values=11, nulls=3), "values against manifests: column 3: 11, manifests said 10"),
        (Counted(values=10, nulls=3, nans=0), "nans against manifests: column 3: 0, manifests said 1"),
    ],
)
def test_what_was_counted_is_what_the_manifests_said(counted: Counted, objection: str | None) -> None:
    inputs = [{3: ColumnMetrics(values=6, nulls=1, nans=1)}, {3: ColumnMetrics(values=4, nulls=2, nans=0)}]
    metrics = Metrics(values=counted.values, nulls=counted.nulls, nans=counted.nans)
    assert proof(result([(10, {3: metrics})], kept={3: counted}), inputs).objection == objection


def test_of_a_kernel_that_counts_nothing_what_it_wrote_is_compared_with_the_manifests() -> None:
    inputs = [{3: ColumnMetrics(values=6, nulls=1)}, {3: ColumnMetrics(values=4, nulls=2)}]
    whole = [(6, {3: Metrics(values=6, nulls=2)}), (4, {3: Metrics(values=4, nulls=1)})]
    found = proof(result(whole, kept={}), inputs)
    assert found.holds
    assert "not compared: the" in next(check.detail for check in found.checks if check.name == "values by column")
    assert next(check.detail for check in found.checks if check.name == "nulls against manifests") == "equal"
    lost = [(6, {3: Metrics(values=6, nulls=2)}), (4, {3: Metrics(values=4, nulls=2)})]
    found = proof(result(lost, kept={}), inputs)
    assert found.objection == "nulls against manifests: column 3: 4, manifests said 3"
    assert "manifests may be wrong" in found.hint
    unknown = [(6, {3: Metrics(values=6, nulls=2)}), (4, {})]
    assert proof(result(unknown, kept={}), inputs).holds


def test_manifests_that_lack_a_column_are_not_compared() -> None:
    inputs = [{3: ColumnMetrics(values=6, nulls=1)}, {}]
    assert proof(result([(10, {3: Metrics(values=10, nulls=9)})], kept={3: Counted(values=10, nulls=9)}), inputs).holds


def bounds(kind: str, lower: Any, upper: Any, **counts: int) -> ColumnMetrics:
    return ColumnMetrics(lower=to_bytes(kind, lower), upper=to_bytes(kind, upper), **counts)


@pytest.mark.parametrize(
    ("column", "said", "found", "objection"),
    [
        (1, [(0, 5), (3, 9)], (0, 9), None),
        (1, [(0, 5), (3, 9)], (2, 4), None),
        (1, [(0, 5), (3, 9)], (-1, 9), "column 1 starts below every input"),
        (1, [(0, 5), (3, 9)], (0, 10), "column 1 ends above every input"),
        (3, [(-0.0, 0.0)], (0.0, -0.0), None),
        (3, [(0.0, 0.0)], (-0.0, 0.0), None),
        (3, [(-math.inf, 1.0)], (-math.inf, math.inf), "column 3 ends above every input"),
        (2, [("abc", "abd")], ("abc", "abd"), None),
        (2, [("abc", "abd")], ("abb", "abd"), "column 2 starts below every input"),
        (2, [("abc", "abd")], ("abc", "abe"), "column 2 ends above every input"),
        # Bounds that were cut since: the table's metrics mode keeps fewer characters than it did.
        (2, [("abcdef", "abcxyz")], ("abc", "abd"), None),
        (2, [("abcdef", "abcxyz")], ("abb", "abd"), "column 2 starts below every input"),
        (2, [("abcdef", "abcxyz")], ("abc", "abe"), "column 2 ends above every input"),
        (2, [("a", "\U0010ffff\U0010ffff")], ("a", "\U0010ffff"), None),
        (2, [("süß", "ßüß")], ("sü", "ßý"), None),
        (4, [(b"\x00\x01", b"\xff\xff\x01")], (b"\x00", b"\xff\xff\x01"), None),
        (4, [(b"\x10\x01", b"\x20\x05")], (b"\x10", b"\x21"), None),
        (4, [(b"\x10\x01", b"\x20\x05")], (b"\x10", b"\x22"), "column 4 ends above every input"),
    ],
)
def test_bounds_lie_within_those_of_the_inputs(
    column: int, said: list[tuple[Any, Any]], found: tuple[Any, Any], objection: str | None
) -> None:
    kind = KINDS[column]
    inputs = [{column: bounds(kind, lower, upper, nans=0)} for lower, upper in said]
    written = Metrics.of(bounds(kind, *found))
    expected = None if objection is None else f"bounds within inputs: {objection}"
    assert proof(result([(10, {column: written})]), inputs).objection == expected


@pytest.mark.parametrize("infinity", [math.inf, -math.inf])
def test_the_largest_number_bounds_a_column_of_infinities_as_older_pyarrow_has_it(infinity: float) -> None:
    largest = math.copysign(sys.float_info.max, infinity)
    inputs = [{3: bounds("double", infinity, infinity, values=10, nulls=0, nans=0)}]
    low, high = sorted((infinity, largest))
    assert proof(result([(10, {3: Metrics.of(bounds("double", low, high, values=10, nulls=0, nans=0))})]), inputs).holds
    beyond = sorted((infinity, largest / 2))
    assert not proof(result([(10, {3: Metrics.of(bounds("double", *beyond, values=10, nulls=0, nans=0))})]), inputs).holds


def test_an_input_of_nulls_alone_bounds_nothing_and_excuses_nothing() -> None:
    nulls = ColumnMetrics(values=5, nulls=5, nans=0)
    inputs = [{1: bounds("long", 3, 4, values=5, nulls=0)}, {1: nulls}]
    assert proof(result([(10, {1: Metrics.of(bounds("long", 3, 4))})]), inputs).holds
    objection = proof(result([(10, {1: Metrics.of(bounds("long", 2, 4))})]), inputs).objection
    assert objection == "bounds within inputs: column 1 starts below every input"


def test_an_input_whose_bounds_nobody_knows_says_nothing() -> None:
    inputs = [{1: bounds("long", 3, 4)}, {1: ColumnMetrics(values=5, nulls=0)}]
    assert proof(result([(10, {1: Metrics.of(bounds("long", -9, 99))})]), inputs).holds


def test_a_bound_of_the_narrower_type_compares_with_the_wider() -> None:
    inputs = [{1: ColumnMetrics(lower=(5).to_bytes(4, "little"), upper=(6).to_bytes(4, "little"))}]
    assert proof(result([(10, {1: Metrics.of(bounds("long", 5, 6))})]), inputs).holds


def test_outputs_have_new_paths_each_its_own() -> None:
    assert proof(result([(10, {})]), known=["/t/new-0"]).objection == "paths are new: /t/new-0 is already part of the table"
    one = result([(5, {}), (5, {})])
    twice = one.model_copy(update={"outputs": (one.outputs[0], one.outputs[0])})
    assert proof(one).holds
    assert proof(twice).objection == "paths are new: /t/new-0 was written twice"
