"""What earlier runs know of a table. Pure; filled from the state store by `operations.inspect`, used by the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neve.table.files import Partition


@dataclass(frozen=True)
class Memory:
    """Row groups by file and the last compaction by partition."""

    row_groups: Mapping[str, int] = field(default_factory=dict)
    compacted: Mapping[Partition, int] = field(default_factory=dict)
