"""A plan as text: the line that says it all, groups, kernels, and who is left alone."""

from __future__ import annotations

import pytest

from neve.policy.model import Policy
from neve.render.plan import money, plan_line, plan_text, price_line
from neve.rewrite.group import Kernel, Price, RunKind
from neve.rewrite.kernel_options import NotApplied
from neve.rewrite.plan import Plan, Skipped
from neve.rewrite.planner import Request, plan
from neve.table.units import MIB
from tests.builders.files import make_files
from tests.builders.plan_text import shown
from tests.builders.planned_tables import NOW, bounded, state_of
from tests.builders.table_states import make_state

NOT_APPLIED = (
    NotApplied(
        option="compression-codec",
        value="snappy",
        origin="preset nimtable",
        kernel=Kernel.COPY,
        groups=2,
        reason="copy keeps the codec of its input files",
    ),
)


def make_plan(*, name: str = "day=1") -> Plan:
    """Twenty crumbs in one partition, six in another, one in each of two more."""
    homes = [0] * 20 + [1] * 6 + [2, 3]
    rows = [{"partition": home, "size_bytes": MIB} for home in homes]
    return plan(state_of(make_files(rows, partitions=[name, "day=2", "day=3", "day=4"])), Policy(), now_ms=NOW)


def test_the_first_lines_say_what_would_be_done_and_what_it_takes() -> None:
    lines = shown(plan_text(make_plan()))
    assert lines[0] == "c.db.t"
    assert lines[1] == "26 files (26 MB) → 2 files in 2 groups by copy"
    assert lines[2] == "about 0.191 s of one core, 56 storage requests, cost below 0.0001"
    assert lines[3] == "snapshot 3 · target 128 MB"


def test_a_strategy_a_layout_and_the_gain_are_told_where_they_matter() -> None:
    rows = [{"partition": 0, "size_bytes": 40 * MIB} for _ in range(9)]
    files = state_of(make_files(rows, partitions=["day=1"]))
    policy = {"strategy": "cost-optimized", "cluster-by": "a", "reads-per-day": 1000}
    lines = shown(plan_text(plan(files, Policy.model_validate(policy), now_ms=NOW)), width=120)
    assert lines[4].startswith("strategy cost-optimized · layout sort(a asc nulls-first) · saves readers about ")
    sorted_only = shown(plan_text(plan(files, Policy.model_validate({"cluster-by": "a"}), now_ms=NOW)))
    assert sorted_only[4] == "layout sort(a asc nulls-first)"


def clustering_plan(target: int) -> Plan:
    """Forty files of 40 MB, each with all values of the column `a`."""
    files = make_files([{"size_bytes": 40 * MIB, "row_groups": 1} for _ in range(40)])
    policy = Policy.model_validate({"strategy": "dimensional", "cluster-by": "a", "target-file-size": target})
    return plan(state_of(bounded(files, [(0, 1000)] * 40)), policy, now_ms=NOW, request=Request(kind=RunKind.CLUSTER))


def test_a_clustering_plan_says_so_and_shows_depth_and_reads_now_and_predicted() -> None:
    lines = shown(plan_text(clustering_plan(40 * MIB)))
    assert lines[1] == "Cluster 40 files (1.56 GB) → 40 files in 1 group by spark"
    at = lines.index("Clustering by sort(a asc nulls-first)")
    assert lines[at + 1 : at + 5] == [
        "                                   now   predicted",
        "  files over a row's values         40         1.0",
        "  bytes read for one value of a   100%        2.5%",
        "",
    ]


def test_a_clustering_plan_that_lets_queries_skip_too_little_is_not_advised() -> None:
    lines = shown(plan_text(clustering_plan(1600 * MIB)), width=110)
    at = lines.index("Clustering by sort(a asc nulls-first)")
    assert lines[at + 3 : at + 6] == [
        "  bytes read for one value of a   100%        100%",
        "  Not advised. Bytes that a query for one value reads after a run, as a share of what it reads now: 1, due up",
        "  to 0.75, once the table has more files of the target size, or they overlap more",
    ]


def test_groups_stand_with_their_reasons_and_kernels_with_theirs() -> None:
    assert shown(plan_text(make_plan()))[5:] == [
        "2 groups, neediest first",
        "  partition  tier    files   size  kernel  reason",
        "  day=1      minor  20 → 1  20 MB  copy    20 files below 16 MB",
        "  day=2      minor   6 → 1   6 MB  copy    6 files below 16 MB, never compacted",
        "",
        "Kernels",
        "  copy, 2 groups  fragments are joined as they are; their row groups are",
        "                  re-encoded later",
        "",
        "2 partitions left alone",
        "  2  no tier is due",
        "",
        "When it is due, by the closest partition",
        "  checked                     now  due                       when",
        "  files below 16 MB in day=3    1  from 5 (min-input-files)  with 4 more files",
    ]


def test_options_that_a_kernel_does_not_apply_are_listed_with_origin_and_reason() -> None:
    lines = shown(plan_text(make_plan().model_copy(update={"not_applied": NOT_APPLIED})), width=140)
    at = lines.index("Options not applied")
    assert lines[at + 1] == (
        "  compression-codec snappy  copy keeps the codec of its input files (2 groups); set by preset nimtable"
    )
    assert "Options not applied" not in shown(plan_text(make_plan()))


def test_a_reason_that_would_squeeze_the_names_goes_below_them() -> None:
    lines = shown(plan_text(make_plan(name="day=2025-01-17/region=eu-central-1/kind=a")))
    at = lines.index("  day=2025-01-17/region=eu-central-1/kind=a  minor  20 → 1  20 MB  copy")
    assert lines[at + 1] == "  20 files below 16 MB"


def test_only_so_many_groups_are_shown() -> None:
    lines = shown(plan_text(make_plan(), groups=1))
    assert "1 of 2 groups, neediest first" in lines
    assert not [line for line in lines if line.startswith("  day=2 ")]


def test_an_empty_plan_says_why_in_one_line() -> None:
    lonely = plan(state_of(make_files([{"size_bytes": MIB}])), Policy(), now_ms=NOW)
    assert shown(plan_text(lonely))[1:] == [
        "Nothing to do: no tier is due",
        "snapshot 3 · target 128 MB",
        "",
        "When it is due",
        "  checked            now  due                       when",
        "  files below 16 MB    1  from 5 (min-input-files)  with 4 more files",
    ]
    empty = plan(make_state(snapshot_id=None, snapshots=(), files=make_files([])), Policy(), now_ms=NOW)
    assert plan_line(empty) == "Nothing to do: the table has no data"
    assert shown(plan_text(empty))[2].startswith("no snapshot yet · target ")
    assert shown(plan_text(empty))[-1] == "  the table has no data            once rows are written"


def test_rare_reasons_are_summed_up() -> None:
    reasons = ["common"] * 5 + [f"rare {i}" for i in range(8)]
    skipped = tuple(
        Skipped(partition=f"p={i}", spec_id=0, files=1, code="good", reason=reason) for i, reason in enumerate(reasons)
    )
    lines = shown(plan_text(make_plan().model_copy(update={"skipped": skipped})))
    at = lines.index("13 partitions left alone")
    assert lines[at + 1] == "  5  common"
    assert lines[-1] == "  3  3 other reasons (--json has them all)"


def test_names_from_the_table_are_shown_and_not_obeyed() -> None:
    lines = shown(plan_text(make_plan(name="day=\x1b[31m")), width=120)
    assert "  day=\\x1b[31m  minor  20 → 1  20 MB  copy    20 files below 16 MB" in lines


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0.00"), (0.00001, "below 0.0001"), (0.00026, "0.00026"), (0.5, "0.5"), (1234.5, "1,234.50")]
)
def test_money_is_never_nothing_for_something(value: float, told: str) -> None:
    assert money(value) == told


def test_a_price_is_one_line() -> None:
    price = Price(core_seconds=400, requests=1, money=2)
    assert price_line(price) == "about 6.67 min of one core, 1 storage request, cost 2.00"
