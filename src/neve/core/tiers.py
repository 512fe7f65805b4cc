"""Which tier a partition needs, decided from a few numbers; the triggers are those of seed 003.

full: by interval, off unless set. major: deletes or hidden rows reach the limit, there are small files to merge, or row groups
to re-encode, which can wait. minor: more fragments than the trigger, or fewer once the interval has passed. Called by
`core.strategies`; pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve.core.plan_words import Tier
from neve.core.policy import Policy
from neve.core.units import counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Traits:
    """What the decision looks at."""

    data_files: int
    fragments: int
    small_files: int
    files_with_small_groups: int
    large_files: int
    delete_ratio: float
    duplicate_ratio: float
    seconds_since_compaction: float | None


@dataclass(frozen=True)
class Choice:
    """A tier with its reason, or None with the reason why nothing is done."""

    tier: Tier | None
    reason: str


def choose_tier(traits: Traits, policy: Policy) -> Choice:
    """The highest tier that its trigger calls for."""
    since = traits.seconds_since_compaction
    if policy.full_interval_seconds is not None and (since is None or since >= policy.full_interval_seconds):
        return Choice(Tier.FULL, f"{_age(since)}, the full tier is due every {format_seconds(policy.full_interval_seconds)}")
    if reason := major_reason(traits, policy):
        return Choice(Tier.MAJOR, reason)
    return choose_minor(traits, policy) or Choice(None, "no trigger of any tier is reached")


def choose_minor(traits: Traits, policy: Policy) -> Choice | None:
    """The minor tier, if there are fragments enough, or some and the interval has passed."""
    since = traits.seconds_since_compaction
    if traits.fragments > policy.minor_file_count:
        return Choice(Tier.MINOR, f"{counted(traits.fragments, 'file')} below {format_bytes(policy.fragment_bytes)}")
    if traits.fragments >= 2 and (since is None or since >= policy.minor_interval_seconds):
        return Choice(
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


def _age(seconds: float | None) -> str:
    return "never compacted" if seconds is None else f"last compacted {format_seconds(seconds)} ago"
