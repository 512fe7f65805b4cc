"""inspect: reads a table's metadata, as deep as asked. Nothing is written, no data file is opened.

Called by every surface through `compose`, and by the plan stage. What the state means is judged by `operations.examine`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import numpy as np

from neve.ports import Progress, Records, TableReader
from neve.rewrite.compactions import BranchHistory
from neve.rewrite.memory import Memory
from neve.table.depth import Depth
from neve.table.files import DATA, FileColumns
from neve.table.state import TableState

log = logging.getLogger(__name__)


def remembered(records: Records | None, state: TableState) -> Memory:
    """What the state store knows of the table, or nothing where there is none yet.

    A compaction counts only if its commit is in the history of the state's snapshot.
    """
    if records is None:
        return Memory()
    missing = BranchHistory(state).missing(records.compaction_commits(state.uuid))
    return Memory(row_groups=records.row_groups(state.uuid), compacted=records.last_compactions(state.uuid, missing))


def read(reader: TableReader, depth: Depth, progress: Progress | None = None, *, bounds: Collection[int] = ()) -> TableState:
    """The state at the depth asked for; `bounds` are the field ids of columns whose bounds the files shall tell."""
    state = reader.state()
    log.info("inspect %s: snapshot %s, depth %s", state.name, state.snapshot_id, depth)
    if depth is Depth.SUMMARY:
        return state
    manifests = reader.manifests()
    state = state.model_copy(update={"manifests": manifests})
    if depth is Depth.MANIFESTS:
        return state
    return state.model_copy(update={"files": reader.files(manifests, progress, bounds=bounds)})


def sample(files: FileColumns, size: int, seed: int = 0) -> list[str]:
    """Paths of Parquet data files whose footers are worth reading: the same ones for the same table."""
    parquet = np.flatnonzero((files.column("content") == DATA) & files.is_parquet)
    chosen = np.random.default_rng(seed).choice(parquet, min(size, len(parquet)), replace=False)
    return [str(path) for path in files.table.column("path").take(np.sort(chosen)).to_pylist()]
