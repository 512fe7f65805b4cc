"""A made-up past for a table of metadata: which commit added which file, and into which day.

Called by `neve.samples.metadata`. Pure arithmetic: nothing is kept per file, so a million files cost nothing here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from neve.samples import entries
from neve.samples.seeding import seeded

END_DAY = 20_180  # days since the epoch: the last commits fall on 2025-04-01
DAYS = 90
DAY_MS = 86_400_000

UNMERGED_COMMITS = 20
"""The newest commits still have manifests of their own, as between two merges on a busy table."""

_COUNTED = ("data-files", "records", "files-size", "delete-files", "position-deletes", "equality-deletes")


@dataclass
class Commit:
    """One snapshot, and the counts that its summary tells."""

    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    added: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    @cached_property
    def day(self) -> int:
        """Days since the epoch."""
        return self.timestamp_ms // DAY_MS

    @cached_property
    def as_existing(self) -> bytes:
        """How an entry says that this commit added its file, once a merge has moved it."""
        return entries.encode_origin(entries.EXISTING, self.snapshot_id, self.sequence_number)

    @cached_property
    def as_added(self) -> bytes:
        """The same in this commit's own manifest, from which the sequence number is inherited."""
        return entries.encode_origin(entries.ADDED, self.snapshot_id, None)

    def count(self, **amounts: int) -> None:
        """Adds to the summary's counts."""
        for key, amount in amounts.items():
            self.added[key.replace("_", "-")] += amount


@dataclass(frozen=True)
class Part:
    """The files of one manifest; `owner` is the commit whose own it is, None for a merged one."""

    files: range
    owner: Commit | None


@dataclass
class SampleHistory:
    """Commits spread over three months, each a little larger than the one before, as traffic grows."""

    seed: int
    files: int
    length: int

    @cached_property
    def commits(self) -> list[Commit]:
        """Oldest first."""
        rng = seeded(self.seed, "history")
        start = (END_DAY - DAYS) * DAY_MS
        step = DAYS * DAY_MS // self.length
        return [Commit(rng.getrandbits(62), n + 1, start + n * step + step // 2) for n in range(self.length)]

    @cached_property
    def hot_day(self) -> int:
        """The day that a backfill goes to."""
        return self.commits[self.length // 2].day

    def first_file(self, commit: int) -> int:
        """The number of the first file of the n-th commit."""
        return self.files * commit**2 // self.length**2

    def parts(self, entries_per_manifest: int) -> Iterator[Part]:
        """How the files lie in manifests, oldest first."""
        merged = max(0, self.length - UNMERGED_COMMITS)
        end = self.first_file(merged)
        for start in range(0, end, entries_per_manifest):
            yield Part(range(start, min(start + entries_per_manifest, end)), None)
        for n in range(merged, self.length):
            files = range(self.first_file(n), self.first_file(n + 1))
            if files:
                yield Part(files, self.commits[n])

    def files_by_commit(self, files: range) -> Iterator[tuple[Commit, int]]:
        """Each file with the commit that added it."""
        position = 0
        for file in files:
            while file >= self.first_file(position + 1):
                position += 1
            yield self.commits[position], file

    def day_of(self, commit: Commit, rng: random.Random) -> int:
        """Mostly the commit's own day; a few rows come late, and every tenth file of the later half is backfill."""
        draw = rng.random()
        if draw < 0.1 and commit.day >= self.hot_day:
            return self.hot_day
        return commit.day - rng.randint(1, 10) if draw > 0.94 else commit.day
