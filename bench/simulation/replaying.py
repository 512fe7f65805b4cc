"""Holds the simulator against recorded runs: the same files, the same plan, and then as many files and about as many bytes.

Called by `bench/simulate.py validate` and `learn`. Nothing of what came out is given to the simulator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.simulation.recording import RECORDED
from bench.simulation.rewriting import Calibration, Fit, Inputs, carry_out
from bench.simulation.table import NUMBERS, Array, Table, files_of, number_of
from bench.simulation.workloads import Workload
from neve.rewrite.group import Kernel
from neve.rewrite.groups import KERNELS
from neve.rewrite.plan import Plan
from neve.table.files import DATA, FileColumns
from neve.table.state import PartitionSpec, Snapshot

BYTES_OFF = 0.10
"""How far the bytes may be off."""


@dataclass(frozen=True)
class Recording:
    """One recorded run."""

    name: str
    specs: tuple[PartitionSpec, ...]
    before: FileColumns
    dead: Array
    raw: float
    plan: Plan
    after: FileColumns

    @classmethod
    def read(cls, path: Path) -> Recording:
        """From its file."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            name=found["case"],
            specs=tuple(PartitionSpec.model_validate(spec) for spec in found["specs"]),
            before=FileColumns.from_json(found["before"]),
            dead=np.array(found["dead"]),
            raw=found["raw"],
            plan=Plan.model_validate(found["plan"]),
            after=FileColumns.from_json(found["after"]),
        )

    @property
    def kernel(self) -> Kernel:
        """Of all its groups."""
        (code,) = set(self.plan.groups.kernel.tolist())
        return KERNELS[code]

    @property
    def is_ordered(self) -> bool:
        """Whether its groups were brought into an order."""
        return bool(self.plan.groups.ordered.all())


def recordings(folder: Path = RECORDED) -> list[Recording]:
    """All that there are."""
    return [Recording.read(path) for path in sorted(folder.glob("*.json"))]


@dataclass(frozen=True)
class Compared:
    """A recording and what the simulator makes of it."""

    name: str
    kernel: str
    files_before: int
    files: int
    files_simulated: int
    bytes: int
    bytes_simulated: int
    deletes: int
    deletes_simulated: int

    @property
    def off(self) -> float:
        """How far the simulated bytes are off."""
        return self.bytes_simulated / self.bytes - 1

    @property
    def holds(self) -> bool:
        """Whether the simulator may be believed here."""
        exact = (self.files, self.deletes) == (self.files_simulated, self.deletes_simulated)
        return exact and abs(self.off) <= BYTES_OFF


def compare(recording: Recording, learned: Calibration) -> Compared:
    """Replays one."""
    table = _table(recording)
    carry_out(table, recording.plan, recording.specs, learned, now_ms=recording.plan.planned_at_ms)
    data, simulated = recording.after.column("content") == DATA, table.files["content"] == DATA
    return Compared(
        name=recording.name,
        kernel=str(recording.kernel),
        files_before=int((recording.before.column("content") == DATA).sum()),
        files=int(data.sum()),
        files_simulated=int(simulated.sum()),
        bytes=int(recording.after.column("size_bytes")[data].sum()),
        bytes_simulated=int(table.files["size_bytes"][simulated].sum()),
        deletes=int((~data).sum()),
        deletes_simulated=int((~simulated).sum()),
    )


def _table(recording: Recording) -> Table:
    """The files before the run, of a table without columns worth bounds."""
    files = recording.before
    table = Table(Workload.model_construct(columns=()), partitions=list(files.partitions), next_number=len(files))
    known = {name: files.column(name) for name in NUMBERS if name in files.table.column_names and name != "referenced"}
    paths = {path: i for i, path in enumerate(files.table.column("path").to_pylist())}
    named = [paths.get(path, -1) for path in files.table.column("referenced").to_pylist()]
    table.begin(
        files_of(len(files), 0, **known, number=np.arange(len(files)), dead=recording.dead, raw=recording.raw, referenced=named)
    )
    table.snapshots.append(_snapshot(recording.plan))
    return table


def _snapshot(plan: Plan) -> Snapshot:
    return Snapshot(
        snapshot_id=plan.sequence_number,
        parent_id=None,
        sequence_number=plan.sequence_number,
        timestamp_ms=plan.planned_at_ms,
        operation="append",
        summary={},
    )


def learn(recorded: Sequence[Recording]) -> Calibration:
    """For each kernel the factor and the overhead that bring runs nearest to what they came to, by share of bytes; and by how
    much runs that ordered rows are above that."""
    fits = {}
    for kernel in Kernel:
        rows = [_observed(one) for one in recorded if one.kernel is kernel and not one.is_ordered]
        before, gone, after = np.array(rows).T
        (factor, lost), *_ = np.linalg.lstsq(np.column_stack([before, -gone]) / after[:, None], np.ones(len(rows)), rcond=None)
        fits[kernel] = Fit(round(float(factor), 4), round(max(float(lost / factor), 0.0), 1))
    ordered = [(one, *_observed(one)) for one in recorded if one.is_ordered]
    above = [after / fits[one.kernel].written(before, one.raw, gone) for one, before, gone, after in ordered]
    return Calibration(fits, round(float(np.mean(above)), 4))


def _observed(recording: Recording) -> tuple[float, int, float]:
    """Live bytes before, row groups or footers gone, bytes after, of the whole run."""
    files, after = _table(recording).files, recording.after
    chosen = np.array([number_of(path) for path in recording.plan.files.table.column("path").to_pylist()])
    inputs = Inputs.of(files, chosen)
    is_new = np.array([number_of(path) >= len(files["number"]) for path in after.table.column("path").to_pylist()])
    new = (after.column("content") == DATA) & is_new
    groups = int(np.maximum(after.column("row_groups")[new], 1).sum())
    gone = len(chosen) - int(new.sum()) if recording.kernel is Kernel.COPY else inputs.groups - groups
    return inputs.live_bytes, gone, float(after.column("size_bytes")[new].sum())


def left_out(recorded: Sequence[Recording]) -> list[Compared]:
    """Each recording replayed with what was learned from the others alone."""
    return [compare(one, learn([other for other in recorded if other is not one])) for one in recorded]
