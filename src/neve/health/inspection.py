"""What a look at a table tells: the value that `neve inspect` prints as text, JSON or a page.

Built by `operations.inspect` from a `TableState`; every surface renders this and computes nothing. Fields that need a deeper
look than was taken are None.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from neve.health.not_due import NotDue
from neve.health.skipping import Clustering
from neve.table.depth import Depth
from neve.table.frozen import Frozen
from neve.table.state import MAIN, Ref, SortOrder

SCHEMA_VERSION: Literal[1] = 1


class Finding(Frozen):
    """One thing that hurts: how many of the 100 points it can take, how bad it is, the evidence, and the cure.

    `severity` counts only what can be cured now. What the policy leaves alone is in `not_due`, with its thresholds.
    """

    code: str
    title: str
    weight: float = Field(ge=0, le=100)
    severity: float = Field(ge=0, le=1)
    evidence: str
    fix: str
    operation: str | None = None
    """The command that has work to do because of this, such as `compact`; None if there is none now."""
    not_due: tuple[NotDue, ...] = ()

    @property
    def points(self) -> float:
        """What it takes off the score."""
        return self.weight * self.severity


class Health(Frozen):
    """100 minus the points of the findings, worst first."""

    score: int = Field(ge=0, le=100)
    findings: tuple[Finding, ...]


class SizeBucket(Frozen):
    """One bar of the histogram of data file sizes; `high_bytes` None means no upper end."""

    low_bytes: int
    high_bytes: int | None
    files: int
    bytes: int


class DeleteCounts(Frozen):
    """Deletes by kind: files (vectors are counted one by one, not by Puffin file) and the rows they name."""

    position_files: int = 0
    position_rows: int = 0
    equality_files: int = 0
    equality_rows: int = 0
    vectors: int = 0
    vector_rows: int = 0

    @property
    def files(self) -> int:
        """Delete files and vectors of all kinds."""
        return self.position_files + self.equality_files + self.vectors

    @property
    def rows(self) -> int:
        """Rows named by deletes: at most so many rows are hidden."""
        return self.position_rows + self.equality_rows + self.vector_rows


class RowGroups(Frozen):
    """How data files are cut into row groups, and where the numbers come from."""

    files_known: int
    row_groups: int
    average_bytes: float
    source: Literal["records", "split-offsets", "footers", "mixed"]
    sources: tuple[Literal["records", "footers", "split-offsets"], ...] = ()
    """Each that told of some file, the best first."""
    files_with_small_groups: int


class PartitionHealth(Frozen):
    """One partition, scored as 002 asks: file count 0.3, delete files 0.3, hours since compaction 0.2, small files 0.2."""

    partition: str
    spec_id: int
    data_files: int
    delete_files: int
    bytes: int
    rows: int
    small_files: int
    fragments: int
    delete_ratio: float
    last_write_ms: int | None
    last_compaction_ms: int | None
    score: float


class WorkloadKind(StrEnum):
    """How the table is written."""

    STREAMING = "streaming"  # small appends, minutes apart or less
    CDC = "cdc"  # row-level deletes keep coming
    APPEND = "append"  # appends, some hours apart
    BATCH = "batch"  # overwrites, or large loads once a day or less
    COLD = "cold"  # no write for a week
    EMPTY = "empty"  # never written


class Workload(Frozen):
    """Writer cadence from the history of the inspected branch, our own commits left out."""

    kind: WorkloadKind
    evidence: str
    commits: int
    window_seconds: float
    median_gap_seconds: float | None
    last_write_ms: int | None
    operations: dict[str, int] = {}
    """The commits by what they did: `append`, `update` (rows written and others marked as deleted), `overwrite`, `delete`."""


class ManifestCounts(Frozen):
    """The manifest list in numbers."""

    data_manifests: int
    delete_manifests: int
    bytes: int
    average_files: float


class Inspection(Frozen):
    """A look at one table."""

    schema_version: Literal[1] = SCHEMA_VERSION
    table: str
    uuid: str
    format_version: int
    location: str
    depth: Depth
    inspected_at_ms: int
    metadata_from_cache: bool = False
    """Whether nothing was read from storage: the catalog answered, and manifest lists and manifests came from the cache."""
    branch: str = MAIN
    """The branch whose head was looked at."""
    snapshot_id: int | None
    partitioning: str
    specs: int
    columns: int
    sort_order: SortOrder | None
    sorted_files: int | None
    target_file_size_bytes: int
    small_file_threshold_bytes: int
    data_files: int | None
    data_bytes: int | None
    rows: int | None
    average_file_bytes: float | None
    small_files: int | None
    small_file_share: float | None
    fragments: int | None
    histogram: tuple[SizeBucket, ...] | None
    formats: dict[str, int] | None
    deletes: DeleteCounts | None
    duplicate_ratio: float | None
    row_groups: RowGroups | None
    partition_count: int | None
    partitions: tuple[PartitionHealth, ...] | None
    manifests: ManifestCounts | None
    snapshots: int
    oldest_snapshot_ms: int | None
    refs: tuple[Ref, ...]
    metadata_bytes: int | None
    metadata_log_entries: int
    statistics_files: int
    workload: Workload
    clustering: Clustering | None = None
    """How well the table's layout is kept; None where it has none, or the files were not looked at."""
    health: Health
