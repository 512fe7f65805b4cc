"""Which manifests are worth rewriting, what queries gain, and that a rewrite is never asked for twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.maintenance.manifests import ORDER, ManifestPlan, Motive, plan_manifests
from neve.policy.model import Policy
from neve.table.state import Manifest, PartitionField, PartitionRange, PartitionSpec, Snapshot, TableState
from neve.table.units import KIB, MIB
from tests.builders.tables import BY_DAY, make_table

POLICY = Policy()
STATE = make_table(snapshot_id=1)
PLAIN = make_table(snapshot_id=1, specs=(PartitionSpec(spec_id=0, fields=()),))


def days(first: int | None, last: int | None) -> PartitionRange:
    return PartitionRange(
        lower=None if first is None else first.to_bytes(4, "little", signed=True).hex(),
        upper=None if last is None else last.to_bytes(4, "little", signed=True).hex(),
    )


def manifest(number: int, first: int | None = 0, last: int | None = 0, *, size: int = 10 * KIB, **changes: Any) -> Manifest:
    plain: dict[str, Any] = {
        "path": f"m{number}",
        "length_bytes": size,
        "holds_deletes": False,
        "spec_id": 0,
        "sequence_number": number,
        "added_snapshot_id": number,
        "live_files": 5,
        "ranges": (days(first, last),),
    }
    return Manifest(**plain | changes)


def plan(manifests: Sequence[Manifest], state: TableState = STATE, **words: Any) -> ManifestPlan:
    return plan_manifests(state, manifests, words.pop("policy", POLICY), **words)


def test_small_manifests_become_as_many_as_the_target_asks_for() -> None:
    found = plan([manifest(i, i, i) for i in range(12)])
    (group,) = found.groups
    assert (group.motive, len(group.paths), group.outputs, group.bytes, group.files) == (Motive.MERGE, 12, 1, 120 * KIB, 60)
    assert (found.before.whole, found.after.whole, found.before.one, found.after.one) == (12, 1, 1.0, 1.0)
    assert (found.before.seconds, found.after.seconds) == (0.246, 0.026)


def test_fewer_than_would_spare_enough_are_left_alone() -> None:
    found = plan([manifest(i, i, i) for i in range(10)])
    assert (found.groups, found.after) == ((), found.before)
    assert found.reason == "a rewrite would spare no query 10 manifests (manifest-min-count); the table has 10"
    assert [str(rule) for rule in found.not_due] == [
        "data manifests that a merge spares every query: 9, due from 10 (manifest-min-count), with 1 more small manifest",
        (
            "data manifests that sorting them spares a query for one day: 0, due from 10 (manifest-min-count), with 10 more "
            "overlapping manifests"
        ),
    ]
    assert len(plan([manifest(i, i, i) for i in range(11)]).groups) == 1
    assert len(plan([manifest(i, i, i) for i in range(5)], policy=Policy.model_validate({"manifest-min-count": 4})).groups) == 1


def test_manifests_of_half_the_target_and_more_stay() -> None:
    large = [manifest(i, i, i, size=4 * MIB) for i in range(50)]
    assert plan(large).groups == ()
    assert plan(large).not_due[0].measured == 0
    (group,) = plan([*large, *(manifest(100 + i, i, i, size=4 * MIB - 1) for i in range(30))]).groups
    assert (len(group.paths), group.outputs) == (30, 15)


def test_manifests_that_all_hold_all_days_are_sorted_though_none_is_small() -> None:
    found = plan([manifest(i, 0, 99, size=8 * MIB) for i in range(40)])
    (group,) = found.groups
    assert (group.motive, len(group.paths), group.outputs) == (Motive.CLUSTER, 40, 40)
    assert (found.before.one, found.after.one) == (40.0, 1.4)  # 39 cuts fall into 100 days
    assert (found.before.whole, found.after.whole) == (40, 40)


def test_a_rewrite_that_spares_a_query_less_than_half_is_left_alone() -> None:
    found = plan([manifest(i, 0, 1, size=8 * MIB) for i in range(40)])
    assert found.groups == ()  # 20.5 of 40 would still be opened
    left = next(rule for rule in found.not_due if rule.rule == "manifest-depth-left")
    assert (left.measured, left.threshold, left.comparison) == (0.512, 0.5, "up to")
    assert len(plan([manifest(i, 0, 2, size=8 * MIB) for i in range(40)]).groups) == 1


def test_what_one_rewrite_has_sorted_is_not_sorted_again_but_in_another_order_it_is() -> None:
    two = PartitionSpec(
        spec_id=0, fields=(*BY_DAY.fields, PartitionField(name="b", transform="bucket[4]", source_id=3, field_id=1001))
    )
    ours = Snapshot(
        snapshot_id=7, parent_id=None, sequence_number=1, timestamp_ms=0, operation="replace", summary={ORDER: "day, b"}
    )
    state = make_table(snapshot_id=7, snapshots=(ours,), specs=(two,))
    wide = [manifest(i, size=8 * MIB, added_snapshot_id=7, ranges=(days(0, i), days(0, 3))) for i in range(60)]
    assert plan(wide, state).groups == ()
    assert [group.motive for group in plan(wide, state, by=["b"]).groups] == [Motive.CLUSTER]
    mostly_new = [m.model_copy(update={"added_snapshot_id": 8}) if i > 25 else m for i, m in enumerate(wide)]
    assert [group.motive for group in plan(mostly_new, state).groups] == [Motive.CLUSTER]


def test_specs_and_deletes_are_kept_apart() -> None:
    state = make_table(snapshot_id=1, specs=(BY_DAY, PartitionSpec(spec_id=1, fields=BY_DAY.fields)), default_spec_id=1)
    kinds = [(0, False), (1, False), (1, True)]
    many = [
        manifest(20 * k + i, i, i, spec_id=spec_id, holds_deletes=deletes)
        for k, (spec_id, deletes) in enumerate(kinds)
        for i in range(12)
    ]
    assert [(g.spec_id, g.holds_deletes, len(g.paths)) for g in plan(many, state).groups] == [(*kind, 12) for kind in kinds]


def test_a_manifest_that_tells_no_range_is_opened_by_every_query() -> None:
    found = plan([*(manifest(i, i, i) for i in range(4)), manifest(9, None, None), manifest(10, ranges=())])
    assert found.before.one == 3.0


def test_a_table_without_partitions_has_no_query_of_one() -> None:
    found = plan([manifest(i, ranges=()) for i in range(12)], PLAIN)
    assert ([g.motive for g in found.groups], found.by, found.before.one) == ([Motive.MERGE], (), None)


def test_a_run_takes_no_more_than_its_limit_the_smallest_first() -> None:
    many = [manifest(i, i, i, size=(i + 1) * KIB) for i in range(40)]
    (group,) = plan(many, limit=15).groups
    assert group.paths == tuple(f"m{i}" for i in range(15))


def test_tables_of_the_first_format_version_are_told_to_upgrade() -> None:
    found = plan([manifest(i) for i in range(50)], make_table(snapshot_id=1, format_version=1))
    assert (found.groups, found.reason) == (
        (),
        "manifests of format version 1 have to be copied to be committed; upgrade the table to version 2 first",
    )


@pytest.mark.parametrize(("by", "why"), [(["city"], "city is no partition field"), (["day", "day"], "a field is named twice")])
def test_an_order_that_cannot_be_is_refused(by: list[str], why: str) -> None:
    with pytest.raises(BadRequestError, match=rf"Cannot sort manifests of c\.db\.t by .*: {why}") as caught:
        plan([], by=by)
    assert caught.value.hint == "Its partition fields are day."


def carried_out(found: ManifestPlan, manifests: Sequence[Manifest]) -> list[Manifest]:
    """The list after an ideal rewrite: outputs of equal size, next to each other by day."""
    after = [m for m in manifests if m.path not in found.replaced]
    for number, group in enumerate(found.groups):
        gone = [m for m in manifests if m.path in group.paths]
        ends = sorted(d for m in gone for d in _days_of(m))
        for i in range(group.outputs):
            part = ends[len(ends) * i // group.outputs : len(ends) * (i + 1) // group.outputs] or ends[:1]
            first, last = (part[0], part[-1]) if part else (None, None)
            size = group.bytes // group.outputs
            after.append(
                manifest(
                    10**6 + 1000 * number + i, first, last, size=size, holds_deletes=group.holds_deletes, added_snapshot_id=99
                )
            )
    return after


def _days_of(m: Manifest) -> list[int]:
    return [
        int.from_bytes(bytes.fromhex(bound), "little", signed=True) for bound in (m.ranges[0].lower, m.ranges[0].upper) if bound
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-40, 40), st.integers(0, 40), st.integers(KIB, 20 * MIB), st.booleans()), min_size=1, max_size=60
    ),
    st.integers(1, 20),
)
def test_after_a_rewrite_there_is_nothing_more_to_do_and_nobody_opens_more(
    drawn: list[tuple[int, int, int, bool]], spared: int
) -> None:
    policy = Policy.model_validate({"manifest-min-count": spared})
    manifests = [manifest(i, a, a + width, size=size, holds_deletes=d) for i, (a, width, size, d) in enumerate(drawn)]
    found = plan(manifests, policy=policy)
    after = carried_out(found, manifests)
    assert len(after) == found.after.whole
    assert not found.groups or found.after.whole < found.before.whole or any(g.motive is Motive.CLUSTER for g in found.groups)
    ours = Snapshot(
        snapshot_id=99, parent_id=None, sequence_number=1, timestamp_ms=0, operation="replace", summary={ORDER: "day"}
    )
    state = make_table(snapshot_id=99, snapshots=(ours,)) if found.groups else STATE
    assert plan(after, state, policy=policy).groups == ()
