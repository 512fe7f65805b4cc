"""Prevention: which table properties would have kept the files from becoming bad, and what only the writer can change. Pure.

Proposed from an inspection and from what the last writes brought; `operations.prevent` sets the properties and takes them
back. A property that a person has set is changed only where the findings speak against it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil
from statistics import median

from neve.health.inspection import Inspection, WorkloadKind
from neve.health.not_due import NotDue, Unit
from neve.health.workload import is_write
from neve.maintenance.record import MaintenanceRecord
from neve.policy.model import Policy
from neve.table.frozen import Frozen
from neve.table.properties import PREVENTION
from neve.table.state import TableState
from neve.table.units import GIB, MIB, TIB, averaged, counted, format_bytes, format_seconds, whole_number

TARGET, CODEC = "write.target-file-size-bytes", "write.parquet.compression-codec"
ROW_GROUP, ROW_LIMIT = "write.parquet.row-group-size-bytes", "write.parquet.row-group-limit"
DISTRIBUTION, FANOUT = "write.distribution-mode", "write.spark.fanout.enabled"

FEW_ROWS = 100_000
"""Row groups of fewer rows are slow to read, unless rows are very wide."""
_WRITES = 20
_SCATTERED = 1.5
"""More files for each partition than this, in a commit that could have made one: several tasks wrote to it."""
_OPEN_FILES = 100
"""A task that fans out keeps a file open for each partition."""
_LONGEST_GAP = 3600.0
_WASTEFUL = ("gzip", "uncompressed")
_ROW_GROUP_BYTES = 128 * MIB


class PropertyChange(Frozen):
    """A property to set; `before` is None where the table does not have it."""

    key: str
    before: str | None
    value: str
    reason: str


class PropertyProposal(Frozen):
    """What `--apply` sets, what the writer should change, and what is strange about the policy itself."""

    changes: tuple[PropertyChange, ...] = ()
    advice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_due: tuple[NotDue, ...] = ()
    """What was measured of the last writes, if no property is to be set."""


class PreventionRecord(MaintenanceRecord):
    """A proposal, where `dry_run`, or what was set or taken back. `left` are properties that others have changed since."""

    proposal: PropertyProposal = PropertyProposal()
    undone: tuple[PropertyChange, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Writes:
    """The median of the last writes; None where their summaries do not tell, or there was none."""

    files: float | None
    bytes: float | None
    partitions: float

    @classmethod
    def of(cls, state: TableState) -> Writes:
        """Of the branch that was read. Compactions are no writes, and neither is what only deletes."""
        writes = (s for s in state.ancestors if is_write(s) and s.count("added-data-files"))
        recent = list(islice(writes, _WRITES))

        def middle(key: str) -> float | None:
            known = [value for s in recent if (value := s.count(key)) is not None]
            return median(known) if known else None

        return cls(middle("added-data-files"), middle("added-files-size"), max(1.0, middle("changed-partition-count") or 1.0))

    def scattered(self, target_bytes: int) -> bool:
        """Whether a commit makes more files than its partitions and its bytes ask for."""
        return self.files is not None and self.files > _SCATTERED * self.needed(target_bytes)

    def needed(self, target_bytes: int) -> float:
        """Files that a commit has to make: one for each of its partitions, or as many as its bytes ask for."""
        return max(self.partitions, ceil((self.bytes or 0) / target_bytes))

    def unmet(self, target_bytes: int) -> NotDue:
        """Why the properties are left as they are."""
        until = "writes make more files, or the policy changes"
        if self.files is None:
            return NotDue(rule="scattered-writes", what="no write in the history says how many files it made", until=until)
        return NotDue(
            rule="scattered-writes",
            what=f"files that a write makes for each that it needs ({self.needed(target_bytes):,.0f})",
            measured=round(self.files / self.needed(target_bytes), 2),
            threshold=_SCATTERED,
            unit=Unit.RATIO,
            comparison="above",
            until=until,
        )


def propose(state: TableState, found: Inspection, policy: Policy, explicit: Collection[str]) -> PropertyProposal:
    """`explicit` are the knobs that a person has set elsewhere than in the properties that are proposed here."""
    target = policy.target_file_size_bytes if "target-file-size" in explicit else _target(state, found.data_bytes or 0)
    writes = Writes.of(state)
    wanted = {
        **_sizes(state.properties, target, policy, explicit),
        **_spread(state, writes, target, found.workload.kind),
    }
    changes = [
        PropertyChange(key=key, before=state.properties.get(key), value=value, reason=reason)
        for key, (value, reason) in wanted.items()
        if state.properties.get(key) != value
    ]
    return PropertyProposal(
        changes=tuple(changes),
        advice=tuple(_advice(state, found, writes, target)),
        warnings=_warnings(policy),
        not_due=() if changes else (writes.unmet(target),),
    )


def _target(state: TableState, data_bytes: int) -> int:
    """What the table says, else by its size: larger tables take larger files, so that there are not too many."""
    if (said := whole_number(state.properties.get(TARGET, ""))) is not None:
        return said
    return 128 * MIB if data_bytes < 100 * GIB else 256 * MIB if data_bytes < 10 * TIB else 512 * MIB


def _sizes(properties: Mapping[str, str], target: int, policy: Policy, explicit: Collection[str]) -> dict[str, tuple[str, str]]:
    wanted = {TARGET: (str(target), f"writers and compactions aim at one size, {format_bytes(target)}")}
    codec = properties.get(CODEC, "").lower()
    if "compression-codec" in explicit and policy.compression_codec:
        wanted[CODEC] = (policy.compression_codec, "as the policy says")
    elif codec in _WASTEFUL:
        wanted[CODEC] = ("zstd", f"smaller than {codec} or faster to read, mostly both")
    if policy.row_group_rows is not None:
        wanted[ROW_LIMIT] = (str(policy.row_group_rows), "rows, as the policy says; PyIceberg obeys it, Spark goes by bytes")
    size = whole_number(properties.get(ROW_GROUP, ""))
    if size is not None and size < policy.row_group_min_bytes:
        wanted[ROW_GROUP] = (
            str(_ROW_GROUP_BYTES),
            f"row groups of {format_bytes(int(size))} cost more in seeks than they skip",
        )
    return wanted


def _spread(state: TableState, writes: Writes, target: int, kind: WorkloadKind) -> dict[str, tuple[str, str]]:
    """How rows come to the tasks that write them."""
    is_partitioned = any(field.transform != "void" for field in state.spec(state.default_spec_id).fields)
    if not writes.scattered(target) or not (is_partitioned or state.default_sort_order_id):
        return {}
    told = f"a write makes {averaged(writes.files or 0, 'file')} for {averaged(writes.partitions, 'partition')}"
    mode = "range" if state.default_sort_order_id else "hash"
    wanted = {DISTRIBUTION: (mode, f"{told}: rows of one partition should come to one task")}
    few = writes.partitions <= _OPEN_FILES
    if is_partitioned and few and mode == "hash" and kind in (WorkloadKind.STREAMING, WorkloadKind.CDC, WorkloadKind.APPEND):
        wanted[FANOUT] = ("true", "so few partitions can be open at a time, which saves sorting each write")
    elif state.properties.get(FANOUT) == "true" and not few:
        wanted[FANOUT] = ("false", f"{writes.partitions:,.0f} open files take a task's memory")
    return wanted


def _advice(state: TableState, found: Inspection, writes: Writes, target: int) -> list[str]:
    told = []
    gap, size = found.workload.median_gap_seconds, writes.bytes
    if gap and size and size < writes.partitions * target / 2 and gap < _LONGEST_GAP:
        commits = ceil(writes.partitions * target / size)
        longer = min(_LONGEST_GAP, gap * commits)
        told.append(
            f"Commit every {format_seconds(longer)} instead of every {format_seconds(gap)}: a commit brings "
            f"{format_bytes(size)} to {averaged(writes.partitions, 'partition')}, and {commits:,} of them would fill "
            "one good file each"
        )
    if writes.scattered(target):
        tasks = max(round(writes.partitions), ceil((size or 0) / target))
        columns = ", ".join(field.name for field in state.spec(state.default_spec_id).fields)
        told.append(
            f"Shuffle by {columns} before the write, where the engine does not do it by {DISTRIBUTION}"
            if columns
            else f"Write with fewer tasks: coalesce({tasks}) before the write gives {counted(tasks, 'file')} "
            f"instead of {writes.files or 0:,.4g}; no property can do that for a table without partitions"
        )
    told += [f"{finding.fix}: {finding.evidence}" for finding in found.health.findings if finding.code == "tiny-partitions"]
    return told


def _warnings(policy: Policy) -> tuple[str, ...]:
    rows = policy.row_group_rows
    if rows is None or rows >= FEW_ROWS:
        return ()
    told = f"row-group-rows is {rows:,}, which means rows: so few make row groups that read slowly"
    return (f"{told}. Leave it out to let sizes decide",)


@dataclass(frozen=True)
class KeptProperty:
    """What a table remembers of a prevention: by property, the value that was set and the one before."""

    values: Mapping[str, tuple[str, str | None]]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> KeptProperty:
        """Nothing where the table remembers nothing, or nothing that can be read."""
        try:
            found = json.loads(properties.get(PREVENTION, "{}"))
            return cls({str(key): (value["set"], value["before"]) for key, value in found.items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls({})

    @property
    def text(self) -> str:
        """The property's value."""
        return json.dumps({key: {"set": value, "before": before} for key, (value, before) in sorted(self.values.items())})

    def with_changes(self, changes: Collection[PropertyChange]) -> KeptProperty:
        """These too. What was there before our first change stays what is gone back to, unless others changed it since."""
        new = {}
        for change in changes:
            known = self.values.get(change.key)
            new[change.key] = (change.value, known[1] if known and known[0] == change.before else change.before)
        return KeptProperty({**self.values, **new})
