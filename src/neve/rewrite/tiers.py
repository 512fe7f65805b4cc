"""Which tier a partition needs, decided from a few numbers, or which triggers are not reached; they are those of seed 003.

full: by interval, off unless set. major: deletes or hidden rows reach the limit, there are small files to merge, or row groups
to re-encode, which can wait. minor: more fragments than the trigger, or fewer once the interval has passed. Called by
`rewrite.strategies`; pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from neve.health.not_due import NotDue, Unit, after_interval
from neve.policy.model import Policy
from neve.rewrite.group import Tier
from neve.rewrite.selection import enough
from neve.table.units import counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Traits:
    """What the decision looks at."""

    data_files: int
    fragments: int
    fragment_bytes: int
    has_lone_fragment: bool
    """Whether one of the fragments is worth rewriting by itself, such as for its deletes."""
    small_files: int
    files_with_small_groups: int
    large_files: int
    delete_files: int
    delete_ratio: float
    rows: int
    duplicate_ratio: float
    seconds_since_compaction: float | None


@dataclass(frozen=True)
class TierChoice:
    """A tier with its reason, or None with the reason why nothing is done."""

    tier: Tier | None
    reason: str


def choose_tier(traits: Traits, policy: Policy) -> TierChoice:
    """The highest tier that its trigger calls for."""
    since = traits.seconds_since_compaction
    if policy.full_interval_seconds is not None and (since is None or since >= policy.full_interval_seconds):
        return TierChoice(
            Tier.FULL, f"{_age(since)}, the full tier is due every {format_seconds(policy.full_interval_seconds)}"
        )
    if reason := major_reason(traits, policy):
        return TierChoice(Tier.MAJOR, reason)
    return choose_minor(traits, policy) or TierChoice(None, "no tier is due")


def choose_minor(traits: Traits, policy: Policy) -> TierChoice | None:
    """The minor tier, if there are fragments enough, or some and the interval has passed."""
    since = traits.seconds_since_compaction
    if traits.fragments > policy.minor_file_count:
        return TierChoice(Tier.MINOR, f"{counted(traits.fragments, 'file')} below {format_bytes(policy.fragment_bytes)}")
    if traits.fragments >= 2 and (since is None or since >= policy.minor_interval_seconds):
        return TierChoice(
            Tier.MINOR, f"{counted(traits.fragments, 'file')} below {format_bytes(policy.fragment_bytes)}, {_age(since)}"
        )
    return None


def major_reason(traits: Traits, policy: Policy) -> str | None:
    """Why the major tier is called for, None if it is not."""
    undersized = traits.small_files - traits.fragments
    if reason := deletes_reason(traits, policy):
        return reason
    if traits.large_files:
        return f"{counted(traits.large_files, 'file')} above {format_bytes(policy.large_bytes or 0)}"
    if undersized and traits.small_files >= policy.min_input_files:
        return f"{counted(traits.small_files, 'file')} below {format_bytes(policy.small_bytes)}"
    since = traits.seconds_since_compaction
    if traits.files_with_small_groups and (since is None or since >= policy.reencode_after_seconds):
        return (
            f"{counted(traits.files_with_small_groups, 'file')} with row groups below "
            f"{format_bytes(policy.row_group_min_bytes)}"
        )
    return None


def deletes_reason(traits: Traits, policy: Policy) -> str | None:
    """Why deletes are worth applying, None if they are not."""
    if traits.delete_ratio >= policy.delete_ratio_limit:
        return f"{traits.delete_ratio:.2f} delete files per data file"
    if traits.duplicate_ratio >= policy.delete_ratio_limit:
        return f"deletes hide {traits.duplicate_ratio:.0%} of the rows"
    return None


MINOR_RULES = ("fragments", "many-fragments", "fragment-bytes")
"""The rules by which the minor tier waits for more files."""


def unmet(traits: Traits, policy: Policy, *, where: str | None, now_ms: int) -> tuple[NotDue, ...]:
    """Returns the triggers of all tiers that the partition `where` does not reach, with what is missing to each."""
    return (
        *_full_unmet(traits, policy, where, now_ms),
        *deletes_unmet(traits, policy, where),
        *_small_unmet(traits, policy, where),
        *row_groups_unmet(traits, policy, where, now_ms),
        *minor_unmet(traits, policy, where, now_ms),
    )


def deletes_unmet(traits: Traits, policy: Policy, where: str | None) -> Iterator[NotDue]:
    """Yields by how much the deletes that there are stay below the limit."""
    limit, knob = policy.delete_ratio_limit, "delete-ratio"
    if 0 < traits.delete_ratio < limit:
        yield NotDue(
            rule="delete-files",
            what="delete files per data file",
            where=where,
            measured=traits.delete_ratio,
            threshold=limit,
            unit=Unit.RATIO,
            knob=knob,
            more=ceil(limit * traits.data_files) - traits.delete_files,
            more_of="delete file",
        )
    if 0 < traits.duplicate_ratio < limit:
        yield NotDue(
            rule="deleted-rows",
            what="share of the rows that deletes hide",
            where=where,
            measured=traits.duplicate_ratio,
            threshold=limit,
            unit=Unit.RATIO,
            knob=knob,
            more=ceil((limit - traits.duplicate_ratio) * max(traits.rows, 1)),
            more_of="deleted row",
        )


def minor_unmet(traits: Traits, policy: Policy, where: str | None, now_ms: int) -> Iterator[NotDue]:
    """Yields how many fragments the minor tier lacks, and when it would take fewer of them."""
    rests_until, found = _rests_until(traits, policy.minor_interval_seconds, now_ms), traits.fragments
    is_worth = traits.has_lone_fragment or bool(enough(0, traits.fragment_bytes, policy))
    least, what = 2 if is_worth else max(2, policy.min_input_files), f"files below {format_bytes(policy.fragment_bytes)}"
    is_large = traits.has_lone_fragment or traits.fragment_bytes >= policy.min_group_bytes
    if rests_until is not None:
        yield NotDue(
            rule="many-fragments",
            what=what,
            where=where,
            measured=found,
            threshold=policy.minor_file_count,
            comparison="above",
            knob="minor-file-count",
            more=max(policy.minor_file_count + 1, least) - found,
        )
    if rests_until is not None and found >= least and is_large:
        yield _interval_unmet("fragments", traits, policy.minor_interval_seconds, "minor-interval", where, rests_until)
    if found < least:
        yield NotDue(
            rule="fragments",
            what=what,
            where=where,
            measured=found,
            threshold=least,
            knob=None if is_worth else "min-input-files",
            more=least - found,
            due_ms=rests_until,
        )
    elif not is_large:
        yield NotDue(
            rule="fragment-bytes",
            what=f"bytes of {what}",
            where=where,
            measured=traits.fragment_bytes,
            threshold=policy.min_group_bytes,
            unit=Unit.BYTES,
            knob="min-group-size",
            more=policy.min_group_bytes - traits.fragment_bytes,
            due_ms=rests_until,
        )


def _full_unmet(traits: Traits, policy: Policy, where: str | None, now_ms: int) -> Iterator[NotDue]:
    interval = policy.full_interval_seconds
    if interval is not None and (due_ms := _rests_until(traits, interval, now_ms)) is not None:
        yield _interval_unmet("full", traits, interval, "full-interval", where, due_ms)


def row_groups_unmet(traits: Traits, policy: Policy, where: str | None, now_ms: int) -> Iterator[NotDue]:
    """Yields when files with small row groups are encoded again."""
    due_ms = _rests_until(traits, policy.reencode_after_seconds, now_ms)
    if traits.files_with_small_groups and due_ms is not None:
        yield _interval_unmet("small-row-groups", traits, policy.reencode_after_seconds, "reencode-after", where, due_ms)


def _small_unmet(traits: Traits, policy: Policy, where: str | None) -> Iterator[NotDue]:
    if traits.small_files > traits.fragments and traits.small_files < policy.min_input_files:
        yield NotDue(
            rule="small-files",
            what=f"files below {format_bytes(policy.small_bytes)}",
            where=where,
            measured=traits.small_files,
            threshold=policy.min_input_files,
            knob="min-input-files",
            more=policy.min_input_files - traits.small_files,
        )


def _interval_unmet(rule: str, traits: Traits, interval_seconds: float, knob: str, where: str | None, due_ms: int) -> NotDue:
    return NotDue(
        rule=rule,
        what="time since the last compaction",
        where=where,
        measured=traits.seconds_since_compaction,
        threshold=interval_seconds,
        unit=Unit.SECONDS,
        knob=knob,
        due_ms=due_ms,
    )


def _rests_until(traits: Traits, interval_seconds: float, now_ms: int) -> int | None:
    """The end of an interval that began with the last compaction; None if it is over."""
    since = traits.seconds_since_compaction
    return None if since is None or since >= interval_seconds else after_interval(since, interval_seconds, now_ms)


def _age(seconds: float | None) -> str:
    return "never compacted" if seconds is None else f"last compacted {format_seconds(seconds)} ago"
