"""Which files are worth rewriting: small rules that each mark files and can say what they mean, composed by tier.

Called by `rewrite.planner`; pure. A rule sees columns and returns a mask, so that a million files cost a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.policy.model import Policy
from neve.rewrite.group import Tier
from neve.table.files import DATA, FileColumns
from neve.table.units import format_bytes

Mask = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Files:
    """What rules look at: the columns, row groups from the best source, and whether deletes may apply to a file."""

    columns: FileColumns
    row_groups: npt.NDArray[np.int64]
    has_deletes: Mask

    @property
    def is_data(self) -> Mask:
        """Rows that are data files."""
        mask: Mask = self.columns.column("content") == DATA
        return mask


@dataclass(frozen=True)
class Rule:
    """A mark on files, and the words for it."""

    code: str
    describe: Callable[[Policy], str]
    marks: Callable[[Files, Policy], Mask]


def _small_groups(files: Files, policy: Policy) -> Mask:
    """By bytes; where the policy fixes the rows of a row group, files that hold half of that or more are as it wants them."""
    sizes, groups = files.columns.column("size_bytes"), np.maximum(files.row_groups, 1)
    mask: Mask = (files.row_groups > 1) & (sizes < policy.row_group_min_bytes * groups)
    if policy.row_group_rows is not None:
        mask &= 2 * files.columns.column("records") < policy.row_group_rows * groups
    return mask


FRAGMENT = Rule(
    "fragment",
    lambda policy: f"below {format_bytes(policy.fragment_bytes)}",
    lambda files, policy: files.columns.column("size_bytes") < policy.fragment_bytes,
)
SMALL = Rule(
    "small",
    lambda policy: f"below {format_bytes(policy.small_bytes)}",
    lambda files, policy: files.columns.column("size_bytes") < policy.small_bytes,
)
LARGE = Rule(
    "large",
    lambda policy: f"above {format_bytes(policy.large_bytes or 0)}",
    lambda files, policy: files.columns.column("size_bytes") > (policy.large_bytes or np.iinfo(np.int64).max),
)
SMALL_GROUPS = Rule(
    "small-row-groups", lambda policy: f"row groups below {format_bytes(policy.row_group_min_bytes)}", _small_groups
)
DELETES = Rule("deletes", lambda _: "deletes may apply", lambda files, _: files.has_deletes)
ANY = Rule("any", lambda _: "every file", lambda files, _: files.is_data)

RULES_OF_TIER: dict[Tier, tuple[Rule, ...]] = {
    Tier.MINOR: (FRAGMENT,),
    Tier.MAJOR: (SMALL, LARGE, SMALL_GROUPS, DELETES),
    Tier.FULL: (ANY,),
}


def candidates(files: Files, tier: Tier, policy: Policy) -> Mask:
    """Data files that any rule of the tier marks."""
    marked = np.zeros(len(files.columns), dtype=bool)
    for rule in RULES_OF_TIER[tier]:
        marked |= rule.marks(files, policy)
    return marked & files.is_data


def alone(files: Files, policy: Policy) -> Mask:
    """Files worth rewriting even by themselves: a single small file is not one of them."""
    return files.is_data & (LARGE.marks(files, policy) | SMALL_GROUPS.marks(files, policy) | DELETES.marks(files, policy))


def enough(files: Column | int, size: Column | int, policy: Policy) -> Mask:
    """Whether so many files with so many bytes are worth a commit: by their number, or since they nearly fill an output."""
    return (np.asarray(files) >= policy.min_input_files) | (4 * np.asarray(size) >= 3 * policy.target_file_size_bytes)


def listed_twice(files: FileColumns) -> dict[int, str]:
    """By partition, the reason why it is left alone: the snapshot lists one of its data files more than once.

    Readers see the rows of such a file as often as it is listed. Iceberg removes all entries of a path together and counts
    them as one, so that no commit can replace the file and keep the rows.
    """
    data = np.flatnonzero(files.column("content") == DATA)
    paths = files.table.column("path").take(pa.array(data)).combine_chunks().dictionary_encode()
    numbers = paths.indices.to_numpy()
    repeated = np.bincount(numbers, minlength=1)[numbers] > 1
    homes = files.column("partition")[data][repeated].tolist()
    names = [paths.dictionary[number].as_py() for number in numbers[repeated].tolist()]
    hint = "write its rows to new files, or remove it and add it once"
    return {home: f"the table lists data file {name} more than once: {hint}" for home, name in zip(homes, names, strict=True)}
