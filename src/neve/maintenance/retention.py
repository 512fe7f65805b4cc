"""Which snapshots go, which refs, and why each of the others stays. Pure; carried out by `operations.expire_snapshots`.

What somebody still needs is found first and by itself: heads, tags, what runs at work were planned from, and what streaming
writers look for. Age and count decide over the rest only, so that no setting whatever lets a needed snapshot go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from neve.health.not_due import NotDue, Unit
from neve.policy.model import Policy
from neve.table.frozen import Frozen
from neve.table.state import MAIN, Ref, RefKind, Snapshot, TableState, ancestry
from neve.table.units import exact_seconds


class Keep(StrEnum):
    """Why a snapshot stays; the first that applies is told."""

    HEAD = "head"  # a branch ends there
    TAG = "tag"
    RUN = "run"  # a run that was begun and never ended was planned from it, or from one before it
    CONSUMER = "consumer"  # a streaming writer looks for it, or passes it on the way
    COUNT = "count"
    AGE = "age"
    PERIOD_START = "period-start"  # the branch's current snapshot when the time began that age keeps
    LIMIT = "limit"  # it goes with the next run
    UNASKED = "unasked"  # others were asked for by their ids


_KEPT = {
    Keep.HEAD: ("head of a branch", "heads of branches"),
    Keep.TAG: ("tag", "tags"),
    Keep.RUN: ("for runs that have not ended",),
    Keep.CONSUMER: ("for streaming writers",),
    Keep.COUNT: ("by count",),
    Keep.AGE: ("young",),
    Keep.PERIOD_START: ("current when the retention period began",),
    Keep.LIMIT: ("for the next run",),
    Keep.UNASKED: ("not asked for",),
}
"""How snapshots that stay are counted: for one, and for several where that differs."""

BINDING = frozenset({Keep.HEAD, Keep.TAG, Keep.RUN, Keep.CONSUMER})
"""What holds even against those who ask for a snapshot by its id."""


class KeptSnapshot(Frozen):
    """A snapshot that stays."""

    snapshot_id: int
    keep: Keep
    why: str


@dataclass(frozen=True)
class Rules:
    """What a policy says of the past, in milliseconds."""

    keep_ms: int
    min_count: int
    consumers: tuple[str, ...] = ()
    consumer_keep_ms: int = 0
    refs_go: bool = True
    limit: int = 10_000
    since_ms: int | None = None
    """A moment from which on snapshots stay, instead of an age: it does not move on while a run waits, or tries again."""

    @classmethod
    def of(cls, policy: Policy) -> Rules:
        """The rules of a policy."""
        keys = (key.strip() for key in policy.snapshot_consumers.split(","))
        return cls(
            keep_ms=int(policy.snapshot_keep_seconds * 1000),
            min_count=policy.snapshot_min_count,
            consumers=tuple(key for key in keys if key),
            consumer_keep_ms=int(policy.snapshot_consumer_keep_seconds * 1000),
            refs_go=policy.snapshot_refs,
            limit=policy.snapshot_limit,
        )


@dataclass(frozen=True)
class SnapshotHistory:
    """A table's past at one metadata version."""

    metadata_location: str
    properties: Mapping[str, str]
    snapshots: tuple[Snapshot, ...]
    refs: tuple[Ref, ...]
    head: int | None = None
    """The current snapshot. A table of format version 1 may have one and no branch main."""

    @classmethod
    def of(cls, state: TableState) -> SnapshotHistory:
        """The past of a table that was looked at."""
        return cls(state.metadata_location, state.properties, state.snapshots, state.refs, state.snapshot_id)

    @property
    def ids(self) -> frozenset[int]:
        """Of every snapshot."""
        return frozenset(snapshot.snapshot_id for snapshot in self.snapshots)


@dataclass(frozen=True)
class Retention:
    """What is to be done about a history. The plan of an expiry, or of one that would be."""

    expired: tuple[int, ...]
    """Oldest first."""
    refs: tuple[str, ...]
    kept: Mapping[int, KeptSnapshot]

    @property
    def counts(self) -> dict[Keep, int]:
        """How many stay, by the reason."""
        reasons = [kept.keep for kept in self.kept.values()]
        return {keep: reasons.count(keep) for keep in Keep if keep in reasons}


def kept_text(counts: Mapping[Keep, int]) -> str:
    """How many snapshots stay and why, such as `1 head of a branch, 3 young`."""
    return ", ".join(f"{number:,} {_KEPT[keep][0 if number == 1 else -1]}" for keep, number in counts.items())


def retain(
    history: SnapshotHistory,
    rules: Rules,
    *,
    now_ms: int,
    pinned: Mapping[int, str] | None = None,
    only: Collection[int] | None = None,
) -> Retention:
    """Every snapshot is either in `expired` or in `kept`.

    `pinned` are snapshots that runs at work need, and why; one that is gone already is no error. `only` are the snapshots asked
    for by their ids: then age and count do not count, and no ref goes.
    """
    past = _Past(history, rules, now_ms)
    needed = [*past.for_runs(pinned or {}), *past.for_consumers()]
    removed = () if only is not None else past.over({claim.snapshot_id for claim in needed})
    live = [ref for ref in past.refs if ref.name not in removed]
    last = past.by_limits(live) if only is None else past.unasked(only)
    kept: dict[int, KeptSnapshot] = {}
    for claim in (*past.heads(live), *needed, *last):
        kept.setdefault(claim.snapshot_id, claim)
    gone = sorted(past.by_id.keys() - kept.keys(), key=lambda found: age_order(past.by_id[found]))
    for waiting in gone[rules.limit :]:
        kept[waiting] = KeptSnapshot(snapshot_id=waiting, keep=Keep.LIMIT, why=f"past the limit of {rules.limit:,} a run")
    return Retention(tuple(gone[: rules.limit]), removed, kept)


def next_expiry(history: SnapshotHistory, rules: Rules, *, now_ms: int, pinned: Mapping[int, str] | None = None) -> NotDue:
    """Returns when the first snapshot or ref of a history goes, if nothing is committed until then.

    Time only lets more of them go, so the moment is found by bisection over all moments at which an age is reached.
    """
    moments = {at: rule for at, rule in sorted(_ends(history, rules), reverse=True) if at > now_ms}
    times = sorted(moments)

    def goes(at_ms: int) -> bool:
        then = retain(history, rules, now_ms=at_ms, pinned=pinned)
        return bool(then.expired or then.refs)

    place = bisect_left(times, True, key=goes)
    if place == len(times):
        held = retain(history, rules, now_ms=times[-1] if times else now_ms, pinned=pinned).counts
        what = f"snapshots kept: {kept_text(held)}" if held else "the table has no snapshots"
        until = "another snapshot is committed" if set(held) <= {Keep.HEAD} else "commits are added, or what keeps them ends"
        return NotDue(rule="kept", what=what, until=until)
    due_ms = times[place]
    keep_seconds, knob, what = moments[due_ms]
    return NotDue(
        rule=knob,
        what=what,
        measured=round(keep_seconds - (due_ms - 1 - now_ms) / 1000, 3),
        threshold=keep_seconds,
        unit=Unit.SECONDS,
        knob=knob,
        due_ms=due_ms,
    )


def _ends(history: SnapshotHistory, rules: Rules) -> Iterator[tuple[int, tuple[float, str, str]]]:
    """Yields the moments at which an age is reached, each with the age in seconds, the knob and what is measured."""
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in history.snapshots}
    ages = {ref.max_snapshot_age_ms: "max-snapshot-age-ms" for ref in history.refs if ref.max_snapshot_age_ms}
    ages |= {rules.keep_ms: "snapshot-keep"} if rules.since_ms is None else {}
    for age, knob in ages.items():
        yield from ((at + age + 1, (age / 1000, knob, "time since the oldest snapshot was replaced")) for at in times.values())
    for snapshot in history.snapshots if rules.consumers else ():
        what = "time since a streaming writer committed last"
        told = rules.consumer_keep_ms / 1000, "snapshot-consumer-keep", what
        yield snapshot.timestamp_ms + rules.consumer_keep_ms + 1, told
    for ref in history.refs if rules.refs_go else ():
        if ref.max_ref_age_ms is not None and ref.snapshot_id in times:
            told = ref.max_ref_age_ms / 1000, "max-ref-age-ms", f"age of {ref.name}"
            yield times[ref.snapshot_id] + ref.max_ref_age_ms + 1, told


def age_order(snapshot: Snapshot) -> tuple[int, int]:
    """Sorts the oldest first; a table of format version 1 has no sequence numbers."""
    return snapshot.sequence_number, snapshot.timestamp_ms


class _Past:
    """A history with its branches walked once."""

    def __init__(self, history: SnapshotHistory, rules: Rules, now_ms: int) -> None:
        self.rules, self.now_ms = rules, now_ms
        self.keep_ms = rules.keep_ms if rules.since_ms is None else now_ms - rules.since_ms
        self.by_id = {snapshot.snapshot_id: snapshot for snapshot in history.snapshots}
        self.refs = [ref for ref in history.refs if ref.snapshot_id in self.by_id]
        if history.head in self.by_id and all(ref.name != MAIN for ref in history.refs):
            self.refs.append(Ref(name=MAIN, kind=RefKind.BRANCH, snapshot_id=history.head))
        self.chains = {ref.name: [*ancestry(self.by_id, ref.snapshot_id)] for ref in self.refs if ref.kind is RefKind.BRANCH}
        """Each branch's snapshots, newest first, back to where its history was cut."""

    def _age(self, snapshot_id: int) -> int:
        return self.now_ms - self.by_id[snapshot_id].timestamp_ms

    def heads(self, live: Iterable[Ref]) -> Iterator[KeptSnapshot]:
        for ref in sorted(live, key=lambda ref: ref.kind is RefKind.TAG):
            keep = Keep.HEAD if ref.kind is RefKind.BRANCH else Keep.TAG
            yield KeptSnapshot(
                snapshot_id=ref.snapshot_id, keep=keep, why=f"{'head of' if keep is Keep.HEAD else 'tag'} {ref.name}"
            )

    def over(self, needed: Collection[int]) -> tuple[str, ...]:
        """Refs past the age that they give themselves, unless somebody needs where they point."""
        if not self.rules.refs_go:
            return ()
        return tuple(
            ref.name
            for ref in self.refs
            if ref.name != MAIN
            and ref.max_ref_age_ms is not None
            and self._age(ref.snapshot_id) > ref.max_ref_age_ms
            and ref.snapshot_id not in needed
        )

    def for_runs(self, pinned: Mapping[int, str]) -> Iterator[KeptSnapshot]:
        return self._trails(pinned, Keep.RUN)

    def for_consumers(self) -> Iterator[KeptSnapshot]:
        newest: dict[tuple[str, str], int] = {}
        for snapshot in sorted(self.by_id.values(), key=age_order):
            newest |= {
                (key, snapshot.summary[key]): snapshot.snapshot_id for key in self.rules.consumers if key in snapshot.summary
            }
        alive = {
            found: f"{key} {value} committed it last"
            for (key, value), found in newest.items()
            if self._age(found) <= self.rules.consumer_keep_ms
        }
        return self._trails(alive, Keep.CONSUMER)

    def _trails(self, targets: Mapping[int, str], keep: Keep) -> Iterator[KeptSnapshot]:
        """These snapshots, and all on the way to them from a branch's head: whoever looks for one comes that way."""
        for found, why in targets.items():
            if found in self.by_id:
                yield KeptSnapshot(snapshot_id=found, keep=keep, why=why)
        for chain in self.chains.values():
            deepest = max((i for i, snapshot in enumerate(chain) if snapshot.snapshot_id in targets), default=-1)
            for snapshot in chain[: deepest + 1]:
                why = f"on the way to snapshot {chain[deepest].snapshot_id}: {targets[chain[deepest].snapshot_id]}"
                yield KeptSnapshot(snapshot_id=snapshot.snapshot_id, keep=keep, why=why)

    def by_limits(self, live: Iterable[Ref]) -> Iterator[KeptSnapshot]:
        """By age and count, each branch by its own limits where it has any; what is on no branch by age."""
        chains = {ref.name: (ref, self.chains[ref.name]) for ref in live if ref.kind is RefKind.BRANCH}
        for ref, chain in chains.values():
            keep_ms = ref.max_snapshot_age_ms if ref.max_snapshot_age_ms is not None else self.keep_ms
            least = self._min_count(ref)
            young = 1 + max((i for i, s in enumerate(chain) if self._is_young(s, keep_ms)), default=-1)
            for snapshot in chain[:young]:
                # Where clocks went wrong an older one may stand between: it stays, since history must not have holes.
                yield self._young(snapshot, keep_ms, f"on {ref.name}")
            for snapshot in chain[young : young + 1]:
                # However old: without it the first hours of the time that is kept could not be read, nor returned to.
                why = f"what {ref.name} was {exact_seconds(keep_ms / 1000)} ago"
                yield KeptSnapshot(snapshot_id=snapshot.snapshot_id, keep=Keep.PERIOD_START, why=why)
            for snapshot in chain[:least]:
                why = f"among the newest {least} of {ref.name}"
                yield KeptSnapshot(snapshot_id=snapshot.snapshot_id, keep=Keep.COUNT, why=why)
        on_branches = {snapshot.snapshot_id for _, chain in chains.values() for snapshot in chain}
        for snapshot_id in self.by_id.keys() - on_branches:
            if self._is_young(self.by_id[snapshot_id], self.keep_ms):
                yield self._young(self.by_id[snapshot_id], self.keep_ms, "on no branch")

    def _min_count(self, ref: Ref) -> int:
        """How many of a branch's newest snapshots stay, however old they are: at least its head."""
        return max(ref.min_snapshots_to_keep or self.rules.min_count, 1)

    def _is_young(self, snapshot: Snapshot, keep_ms: int) -> bool:
        return self.now_ms - snapshot.timestamp_ms <= keep_ms

    def _young(self, snapshot: Snapshot, keep_ms: int, where: str) -> KeptSnapshot:
        if self._is_young(snapshot, keep_ms):
            why = f"not older than {exact_seconds(keep_ms / 1000)}, {where}"
        else:
            why = f"newer than one that is not older than {exact_seconds(keep_ms / 1000)}, {where}"
        return KeptSnapshot(snapshot_id=snapshot.snapshot_id, keep=Keep.AGE, why=why)

    def unasked(self, only: Collection[int]) -> Iterator[KeptSnapshot]:
        for snapshot_id in self.by_id.keys() - set(only):
            yield KeptSnapshot(snapshot_id=snapshot_id, keep=Keep.UNASKED, why="not asked for")
