"""Laws of expiry, over histories with branches, tags, forks, skewed clocks and any settings whatever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from neve.maintenance.retention import Rules, SnapshotHistory, next_expiry, retain
from neve.table.state import MAIN, Ref, RefKind, Snapshot

NOW = 10_000
AGES = st.none() | st.integers(0, NOW)
COUNTS = st.none() | st.integers(1, 5)


@st.composite
def histories(draw: st.DrawFn) -> SnapshotHistory:
    """A tree of snapshots, by a clock that may go back; every ref points at one of them."""
    snapshots = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        parent = draw(st.none() | st.integers(1, number - 1)) if number > 1 else None
        summary = {"job": draw(st.sampled_from("ab"))} if draw(st.booleans()) else {}
        stamp = draw(st.integers(0, NOW + 10))
        found = Snapshot(
            snapshot_id=number,
            parent_id=parent,
            sequence_number=number,
            timestamp_ms=stamp,
            operation="append",
            summary=summary,
        )
        snapshots.append(found)
    heads = st.integers(1, len(snapshots))
    refs = [Ref(name=MAIN, kind=RefKind.BRANCH, snapshot_id=draw(heads), max_ref_age_ms=draw(AGES))]
    for i in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(RefKind))
        limits = {"min_snapshots_to_keep": draw(COUNTS), "max_snapshot_age_ms": draw(AGES), "max_ref_age_ms": draw(AGES)}
        refs.append(Ref(name=f"ref{i}", kind=kind, snapshot_id=draw(heads), **limits))
    return SnapshotHistory("m", {}, tuple(snapshots), tuple(refs), head=refs[0].snapshot_id)


RULES = st.builds(
    Rules,
    keep_ms=st.integers(0, NOW),
    min_count=st.integers(1, 5),
    consumers=st.sampled_from([(), ("job",)]),
    consumer_keep_ms=st.integers(0, 2 * NOW),
    refs_go=st.booleans(),
    limit=st.integers(1, 20),
)
PINNED = st.dictionaries(st.integers(1, 14), st.just("a run"), max_size=2)


@settings(deadline=None)
@given(histories(), RULES, PINNED, st.none() | st.sets(st.integers(1, 12)))
def test_everything_either_goes_or_stays_and_what_is_needed_stays(
    history: SnapshotHistory, rules: Rules, pinned: dict[int, str], only: set[int] | None
) -> None:
    found = retain(history, rules, now_ms=NOW, pinned=pinned, only=only)
    gone = set(found.expired)
    assert len(gone) == len(found.expired) <= rules.limit
    assert gone | found.kept.keys() == history.ids
    assert not gone & found.kept.keys()
    live = [ref for ref in history.refs if ref.name not in found.refs]
    assert MAIN in {ref.name for ref in live}
    assert not gone & {ref.snapshot_id for ref in live}
    assert not gone & pinned.keys()
    assert all(ref.max_ref_age_ms is not None for ref in history.refs if ref.name in found.refs)
    assert rules.refs_go or not found.refs
    assert only is None or (gone <= only and not found.refs)


@settings(deadline=None)
@given(histories(), RULES, PINNED)
def test_what_is_young_or_among_the_newest_of_a_branch_stays(
    history: SnapshotHistory, rules: Rules, pinned: dict[int, str]
) -> None:
    found = retain(history, rules, now_ms=NOW, pinned=pinned)
    by_id = {s.snapshot_id: s for s in history.snapshots}
    for ref in history.refs:
        if ref.kind is not RefKind.BRANCH or ref.name in found.refs:
            continue
        least, age = ref.min_snapshots_to_keep or rules.min_count, ref.max_snapshot_age_ms
        at, depth = by_id.get(ref.snapshot_id), 0
        while at is not None:
            young = NOW - at.timestamp_ms <= (rules.keep_ms if age is None else age)
            assert not (young or depth < least) or at.snapshot_id in found.kept
            at, depth = by_id.get(at.parent_id or 0), depth + 1


@settings(deadline=None)
@given(histories(), RULES)
def test_a_streaming_writer_reaches_its_last_commit_from_the_head(history: SnapshotHistory, rules: Rules) -> None:
    found = retain(history, replace(rules, consumers=("job",), consumer_keep_ms=2 * NOW), now_ms=NOW)
    by_id = {s.snapshot_id: s for s in history.snapshots}
    for job in "ab":
        last = max((s.snapshot_id for s in history.snapshots if s.summary.get("job") == job), default=None)
        way, at = list[int](), by_id.get(history.head or 0)
        while at is not None and at.snapshot_id != last:
            way.append(at.snapshot_id)
            at = by_id.get(at.parent_id or 0)
        assert last is None or last in found.kept
        assert at is None or found.kept.keys() >= set(way)


@settings(deadline=None)
@given(histories(), RULES, PINNED)
def test_a_second_run_has_nothing_to_do(history: SnapshotHistory, rules: Rules, pinned: dict[int, str]) -> None:
    found = retain(history, replace(rules, limit=20), now_ms=NOW, pinned=pinned)
    after = replace(
        history,
        snapshots=tuple(s for s in history.snapshots if s.snapshot_id not in found.expired),
        refs=tuple(ref for ref in history.refs if ref.name not in found.refs),
    )
    again = retain(after, replace(rules, limit=20), now_ms=NOW, pinned=pinned)
    assert (again.expired, again.refs) == ((), ())


@settings(deadline=None)
@given(histories(), RULES, st.integers(0, NOW))
def test_a_longer_time_never_lets_more_go(history: SnapshotHistory, rules: Rules, more: int) -> None:
    generous = replace(rules, limit=20, keep_ms=rules.keep_ms + more)
    assert set(retain(history, generous, now_ms=NOW).expired) <= set(
        retain(history, replace(rules, limit=20), now_ms=NOW).expired
    )


@settings(deadline=None)
@given(histories(), RULES, PINNED)
def test_the_next_expiry_is_when_it_is_said_to_be(history: SnapshotHistory, rules: Rules, pinned: dict[int, str]) -> None:
    found = retain(history, rules, now_ms=NOW, pinned=pinned)
    if found.expired or found.refs:
        return
    rule = next_expiry(history, rules, now_ms=NOW, pinned=pinned)
    at = 100 * NOW if rule.due_ms is None else rule.due_ms
    before, then = (retain(history, rules, now_ms=now, pinned=pinned) for now in (at - 1, at))
    assert (before.expired, before.refs) == ((), ())
    assert bool(then.expired or then.refs) == (rule.due_ms is not None)
