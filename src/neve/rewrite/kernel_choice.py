"""Which kernel a group gets: the cheapest that is right for it, with the reason. Called by `rewrite.planner`; pure, over
columns.

Physical schemas stand in footers, not in metadata: `copy` here means "copy, else arrow", and the task that reads the footers
has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.policy.model import Policy
from neve.rewrite.group import Kernel, Tier
from neve.table.units import KIB, MIB

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class GroupTraits:
    """What the choice looks at, one row per group; row groups are 0 where they are not known of every file. `ordered` groups
    follow the plan's layout, those with `inputs_sorted` do so file by file already."""

    tier: Column
    all_parquet: Column
    has_deletes: Column
    splits: Column
    files: Column
    bytes: Column
    row_groups: Column
    ordered: Column
    inputs_sorted: Column
    changes_spec: Column
    columns: int
    is_remote: bool


MIN_CHUNK_BYTES = 32 * KIB
MAX_CHUNKS = 20_000
"""Measured: 250 files of 200 columns copied into one read 15 times slower than re-encoded."""

REMOTE_ROW_GROUP_BYTES = 4 * MIB
"""In an object store a row group takes a reader two requests, one after the other. Measured with 20 ms each: 100 files of a
megabyte, copied into ten, took twice as long to read as before; re-encoded, half as long."""

SORT_IN_TASK_BYTES = 512 * MIB
"""Some 20 seconds of one core; beyond this it is better to share the work among many than to save Spark's shuffle."""

_RULES = (
    (Kernel.SPARK, "not every file is Parquet"),
    (Kernel.SPARK, "rows go to partitions of the current spec"),
    (Kernel.ARROW, "its files are sorted already, and are merged"),
    (Kernel.SPARK, "so large that many tasks bring it into order"),
    (Kernel.ARROW, "small enough to be brought into order in one task"),
    (Kernel.ARROW, "deletes may apply to its files"),
    (Kernel.ARROW, "files are cut, not only joined"),
    (Kernel.ARROW, "column chunks would be too small or too many to read well"),
    (Kernel.COPY, "fragments are joined as they are; their row groups are re-encoded later"),
    (Kernel.COPY, "row groups are large enough to keep"),
    (Kernel.ARROW, "row groups are too small to keep, or unknown"),
)
_SPARK_ALONE, _SHARED, _OPEN_FROM = 2, 3, 7
"""Rules before the last say what is right, those after it what is cheap: a pinned kernel overrules only these, unless it is
`spark`, which is always right, or `arrow` where the order of many rows is shared out. Rules before the first are for `spark`
alone."""

REASONS = (*(reason for _, reason in _RULES), "asked for")
BLOOM_FILTERS = "the table has bloom filters, which only Iceberg's writer makes"
_NONE_DECLINED: Mapping[Kernel, str] = MappingProxyType({})


@dataclass(frozen=True)
class Chosen:
    """Each group's kernel (a position in `Kernel`) and reason (a position in `reasons`); every kernel declined a group that is
    `refused`."""

    kernel: Column
    reason: Column
    reasons: tuple[str, ...]
    refused: Column


def choose_kernels(
    groups: GroupTraits,
    policy: Policy,
    pinned: Kernel | None = None,
    *,
    declined: Mapping[Kernel, str] = _NONE_DECLINED,
) -> Chosen:
    """The kernel of each group; one that is in `declined` gives way to the next that is right."""
    everywhere = np.ones(len(groups.tier), dtype=bool)
    chunks = np.maximum(groups.row_groups, groups.files) * groups.columns
    conditions = [
        ~groups.all_parquet,
        groups.changes_spec,
        groups.ordered & groups.inputs_sorted,
        groups.ordered & (groups.bytes > SORT_IN_TASK_BYTES),
        groups.ordered,
        groups.has_deletes,
        groups.splits,
        (chunks > MAX_CHUNKS) | (groups.bytes < MIN_CHUNK_BYTES * chunks),
        (groups.tier == list(Tier).index(Tier.MINOR))
        & (not groups.is_remote or groups.bytes >= REMOTE_ROW_GROUP_BYTES * np.maximum(groups.row_groups, groups.files)),
        (groups.row_groups > 0) & (groups.bytes >= policy.row_group_min_bytes * groups.row_groups),
        everywhere,
    ]
    reason = np.argmax(np.array(conditions), axis=0) if len(groups.tier) else np.zeros(0, dtype=np.int64)
    kernel = np.array([list(Kernel).index(name) for name, _ in _RULES])[reason]
    if pinned is not None:
        fixed = (reason < _OPEN_FROM) & (pinned is not Kernel.SPARK) & ~((reason == _SHARED) & (pinned is Kernel.ARROW))
        kernel = np.where(fixed, kernel, list(Kernel).index(pinned))
        reason = np.where(fixed, reason, len(_RULES))
    return _with_substitutes(kernel, reason, declined)


def _with_substitutes(kernel: Column, reason: Column, declined: Mapping[Kernel, str]) -> Chosen:
    substitute = next((name for name in (Kernel.ARROW, Kernel.SPARK) if name not in declined), None)
    spark_alone, refused = reason < _SPARK_ALONE, np.zeros(len(kernel), dtype=bool)
    chosen = kernel.copy()
    for number, (name, _) in enumerate(declined.items()):
        concerned = kernel == list(Kernel).index(name)
        reason = np.where(concerned, len(REASONS) + number, reason)
        lost = concerned & (spark_alone | (substitute is None))
        refused |= lost
        if substitute is not None:
            chosen[concerned & ~lost] = list(Kernel).index(substitute)
    return Chosen(chosen, reason, (*REASONS, *declined.values()), refused)
