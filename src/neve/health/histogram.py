"""File sizes in bars that mean something: the edges are powers of four around the policy's own limits."""

from __future__ import annotations

import numpy as np

from neve.health.inspection import SizeBucket
from neve.policy.model import Policy
from neve.table.files import DATA, FileColumns
from neve.table.units import KIB


def size_histogram(files: FileColumns, policy: Policy) -> tuple[SizeBucket, ...]:
    """Data files by size, from the smallest present to the largest or the target, whichever is further."""
    target = policy.target_file_size_bytes
    around = {target // 4**k for k in range(1, 6) if target // 4**k > 64 * KIB} | {target, 2 * target, 8 * target}
    edges = sorted({64 * KIB} | around)
    sizes = files.column("size_bytes")[files.column("content") == DATA]
    slots = np.searchsorted(np.array(edges), sizes, side="right")
    counts = np.bincount(slots, minlength=len(edges) + 1)
    totals = np.bincount(slots, weights=sizes, minlength=len(edges) + 1)
    used = np.flatnonzero(counts)
    if not len(used):
        return ()
    return tuple(
        SizeBucket(
            low_bytes=0 if i == 0 else edges[i - 1],
            high_bytes=edges[i] if i < len(edges) else None,
            files=int(counts[i]),
            bytes=int(totals[i]),
        )
        for i in range(used[0], max(used[-1], edges.index(target)) + 1)
    )
