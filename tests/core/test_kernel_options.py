"""Every option that shapes output files against every kernel: who declines, who takes over, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

from neve.errors import BadRequestError
from neve.policy.model import Policy, knobs
from neve.rewrite.group import Kernel
from neve.rewrite.kernel_options import NotApplied, RewriteOption, declines, not_applied, unsupported
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.rewrite.record import GroupState
from neve.rewrite.run_summary import record_of
from neve.table.units import MIB
from tests.builders.files import make_files
from tests.builders.planned_tables import NOW, state_of
from tests.builders.run_records import make_group

CODEC = {"compression-codec": "snappy"}
ROWS = {"row-group-rows": 1_000_000}
LZO = {"compression-codec": "lzo"}
ORC = {"write.format.default": "orc"}
BLOOM = {"write.parquet.bloom-filter-enabled.column.id": "true"}


@pytest.mark.parametrize(
    ("knob", "properties", "expected"),
    [
        (CODEC, {}, {Kernel.COPY: "copy keeps the codec of its input files"}),
        (
            LZO,
            {},
            {Kernel.COPY: "copy keeps the codec of its input files", Kernel.ARROW: "pyarrow does not write lzo"},
        ),
        (
            CODEC,
            ORC,
            {
                Kernel.COPY: "copy keeps the codec of its input files",
                Kernel.SPARK: "the table writes orc, and this option sets the codec of Parquet files",
            },
        ),
        (
            ROWS,
            {},
            {
                Kernel.COPY: "copy keeps the row groups of its input files",
                Kernel.SPARK: "Iceberg's writer limits row groups by bytes, not by rows",
            },
        ),
    ],
)
def test_each_kernel_names_the_options_it_cannot_apply(
    knob: dict[str, Any], properties: dict[str, str], expected: dict[Kernel, str]
) -> None:
    (option,) = knob
    assert unsupported(Policy.model_validate(knob), option, properties) == expected


def options_of(policy: dict[str, Any], *, explicit: bool, properties: dict[str, str] | None = None) -> list[RewriteOption]:
    whole = Policy.model_validate(policy)
    origin = "flag --{}" if explicit else "file neve.yaml"
    return [
        RewriteOption(
            option=key,
            value=str(value),
            origin=origin.format(key),
            explicit=explicit,
            unsupported=unsupported(whole, key, properties or {}),
        )
        for key, value in policy.items()
        if key in knobs()
    ]


def planned(
    policy: dict[str, Any],
    *,
    explicit: bool = True,
    kernel: Kernel | None = None,
    properties: dict[str, str] | None = None,
    rows: list[dict[str, Any]] | None = None,
    **knobs: Any,
) -> Plan:
    """Twenty files of a megabyte that `copy` would join."""
    state = state_of(make_files(rows or [{"size_bytes": MIB, "row_groups": 1}] * 20))
    state = state.model_copy(update={"properties": properties or {}})
    options = tuple(options_of(policy, explicit=explicit, properties=properties))
    whole = Policy.model_validate(policy | {key.replace("_", "-"): value for key, value in knobs.items()})
    return plan(state, whole, now_ms=NOW, request=Request(kernel=kernel, options=options))


def chosen(found: Plan) -> tuple[Kernel, str]:
    (group,) = found.groups
    return group.kernel, group.kernel_reason


def test_without_options_the_fragments_are_copied() -> None:
    assert chosen(planned({}))[0] is Kernel.COPY


@pytest.mark.parametrize(
    ("policy", "kernel", "reason"),
    [
        (CODEC, Kernel.ARROW, "compression-codec snappy was given, and copy keeps the codec of its input files"),
        (ROWS, Kernel.ARROW, "row-group-rows 1000000 was given, and copy keeps the row groups of its input files"),
        (CODEC | ROWS, Kernel.ARROW, "compression-codec snappy was given, and copy keeps the codec of its input files"),
        (LZO, Kernel.SPARK, "compression-codec lzo was given, and copy keeps the codec of its input files"),
    ],
)
def test_an_explicit_option_goes_to_a_kernel_that_applies_it(policy: dict[str, Any], kernel: Kernel, reason: str) -> None:
    found = planned(policy)
    assert chosen(found) == (kernel, reason)
    assert found.not_applied == ()


@pytest.mark.parametrize(
    ("policy", "kernel", "message"),
    [
        (CODEC, Kernel.COPY, "compression-codec snappy was given, and copy keeps the codec of its input files"),
        (ROWS, Kernel.SPARK, "row-group-rows 1000000 was given, and Iceberg's writer limits row groups by bytes, not by rows"),
        (LZO, Kernel.ARROW, "compression-codec lzo was given, and pyarrow does not write lzo"),
    ],
)
def test_a_pinned_kernel_that_cannot_apply_an_explicit_option_is_refused(
    policy: dict[str, Any], kernel: Kernel, message: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        planned(policy, kernel=kernel)
    assert str(refused.value) == f"Cannot rewrite c.db.t with kernel {kernel}: {message}"
    assert refused.value.hint == "Leave out the option, or --kernel."


@pytest.mark.parametrize(
    ("policy", "kernel"), [(CODEC, Kernel.ARROW), (CODEC, Kernel.SPARK), (ROWS, Kernel.ARROW), (CODEC | ROWS, Kernel.ARROW)]
)
def test_a_pinned_kernel_that_applies_the_options_is_used(policy: dict[str, Any], kernel: Kernel) -> None:
    assert chosen(planned(policy, kernel=kernel)) == (kernel, "asked for")


def test_a_configured_option_changes_no_kernel_and_is_reported_as_not_applied() -> None:
    found = planned(CODEC | ROWS, explicit=False)
    assert chosen(found)[0] is Kernel.COPY
    assert found.not_applied == (
        NotApplied(
            option="compression-codec",
            value="snappy",
            origin="file neve.yaml",
            kernel=Kernel.COPY,
            groups=1,
            reason="copy keeps the codec of its input files",
        ),
        NotApplied(
            option="row-group-rows",
            value="1000000",
            origin="file neve.yaml",
            kernel=Kernel.COPY,
            groups=1,
            reason="copy keeps the row groups of its input files",
        ),
    )


def test_a_pinned_kernel_with_a_configured_option_runs_and_reports_it() -> None:
    found = planned(ROWS, explicit=False, kernel=Kernel.SPARK)
    assert chosen(found) == (Kernel.SPARK, "asked for")
    assert [(one.kernel, one.reason) for one in found.not_applied] == [
        (Kernel.SPARK, "Iceberg's writer limits row groups by bytes, not by rows")
    ]


def test_a_group_that_no_kernel_can_rewrite_with_the_explicit_option_is_left_alone_with_the_reason() -> None:
    found = planned(ROWS, rows=[{"size_bytes": MIB, "format": "orc"}] * 20)
    (skipped,) = found.skipped
    assert (len(found.groups), skipped.code) == (0, "unsupported-option")
    assert skipped.reason == "row-group-rows 1000000 was given, and Iceberg's writer limits row groups by bytes, not by rows"


def test_a_large_sort_goes_to_one_task_where_spark_cannot_apply_the_option() -> None:
    rows = [{"size_bytes": 50 * MIB, "row_groups": 1}] * 20
    found = planned(ROWS, rows=rows, cluster_by="a")
    assert {group.kernel for group in found.groups} == {Kernel.ARROW}


def test_bloom_filters_are_left_to_icebergs_writer_whatever_kernel_is_pinned() -> None:
    big = [{"size_bytes": 8 * MIB, "row_groups": 8}] * 20
    for pinned in (None, Kernel.ARROW):
        found = planned({}, rows=big, properties=BLOOM, kernel=pinned)
        assert chosen(found) == (Kernel.SPARK, "the table has bloom filters, which only Iceberg's writer makes")


def test_bloom_filters_survive_a_copy() -> None:
    assert chosen(planned({}, properties=BLOOM))[0] is Kernel.COPY


def test_files_that_are_cut_are_never_copied_since_the_target_size_would_be_ignored() -> None:
    cut = planned({}, rows=[{"size_bytes": 1024 * MIB, "row_groups": 8}], kernel=Kernel.COPY, max_file_size="256 MB")
    assert chosen(cut) == (Kernel.ARROW, "files are cut, not only joined")


def test_only_explicit_options_decline() -> None:
    assert declines(options_of(CODEC | ROWS, explicit=False)) == {}
    assert set(declines(options_of(CODEC | ROWS, explicit=True))) == {Kernel.COPY, Kernel.SPARK}


def test_only_kernels_that_have_groups_are_reported() -> None:
    assert not_applied(options_of(ROWS, explicit=False), {Kernel.ARROW: 3}) == ()
    (one,) = not_applied(options_of(ROWS, explicit=False), {Kernel.ARROW: 3, Kernel.SPARK: 2})
    assert (one.kernel, one.groups) == (Kernel.SPARK, 2)


def test_the_record_goes_by_the_kernels_that_did_the_work_and_not_by_those_that_were_planned() -> None:
    found = planned(ROWS, explicit=False)
    by_spark = {0: make_group(0, kernel=Kernel.SPARK, state=GroupState.FAILED)}
    record = record_of(found, by_spark, [], run_id="r", started_ms=1, finished_ms=2)
    assert [(one.kernel, one.groups) for one in found.not_applied] == [(Kernel.COPY, 1)]
    assert [(one.kernel, one.groups) for one in record.not_applied] == [(Kernel.SPARK, 1)]
