"""inspect: reads a table's metadata, as deep as asked, and judges it. Nothing is written, no data file is opened.

Called by the surfaces, by `maintain`, and by the plan stage. What the state means is judged by `operations.examine`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from neve.context.table import TableContext
from neve.errors import BadRequestError
from neve.health.clustering import layout_columns
from neve.health.condition import Condition
from neve.health.inspection import Inspection
from neve.operations.examine import examine as examine_state
from neve.ports import Progress, Records, TableReader
from neve.rewrite.compactions import BranchHistory
from neve.rewrite.cost import Rates
from neve.rewrite.group import Kernel
from neve.rewrite.memory import Memory
from neve.rewrite.record import RunRecord
from neve.rewrite.table_layout import layout_of
from neve.settings import CostSettings
from neve.settings.origins import OriginKind
from neve.table.depth import Depth
from neve.table.files import DATA, FileColumns
from neve.table.layout import Layout
from neve.table.state import Column, TableState

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
        return with_source(state, reader)
    manifests = reader.manifests()
    state = state.model_copy(update={"manifests": manifests})
    if depth is Depth.MANIFESTS:
        return with_source(state, reader)
    return with_source(state.model_copy(update={"files": reader.files(manifests, progress, bounds=bounds)}), reader)


def with_source(state: TableState, reader: TableReader) -> TableState:
    """The state with whether the reader has read anything from storage for it."""
    return state.model_copy(update={"from_cache": reader.from_cache()})


def sample(files: FileColumns, size: int, seed: int = 0) -> list[str]:
    """Paths of Parquet data files whose footers are worth reading: the same ones for the same table."""
    parquet = np.flatnonzero((files.column("content") == DATA) & files.is_parquet)
    chosen = np.random.default_rng(seed).choice(parquet, min(size, len(parquet)), replace=False)
    return [str(path) for path in files.table.column("path").take(np.sort(chosen)).to_pylist()]


def inspect(context: TableContext, *, depth: Depth = Depth.FILES, footers: int = 0) -> Inspection:
    """Inspects the head of the branch; `footers` is how many footers to read besides."""
    if footers:
        require_files(depth, "--sample")
    reader = context.reader()
    layout, columns = _layout(context, reader.state()) if depth is Depth.FILES else (None, ())
    state = read(reader, depth, context.progress, bounds=[column.field_id for column in columns])
    found = reader.sample_row_groups(sample(state.files, footers)) if footers and state.files is not None else {}
    return examine(context, with_source(state, reader), found, layout)


def require_files(depth: Depth, option: str) -> None:
    """Raises BadRequestError for an option that needs the table's files at a depth that does not read them."""
    if depth is not Depth.FILES:
        raise BadRequestError(f"Cannot use {option} at depth {depth}: files are not read", hint="Leave one of the two out.")


def _layout(context: TableContext, state: TableState) -> tuple[Layout | None, Sequence[Column]]:
    """The table's layout and its columns. A layout that names no column of the table is an error only if this very call asked
    for it: elsewhere it may have been right when it was stored."""
    policy, origins = context.policy_origins(state)
    try:
        layout = layout_of(state, policy)
        return layout, layout_columns(layout, state.fields) if layout is not None else ()
    except BadRequestError as error:
        if origins["cluster-by"].kind is OriginKind.FLAG:
            raise
        log.warning("clustering is not looked at: %s", error)
        return None, ()


def examine(
    context: TableContext,
    state: TableState,
    footers: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    *,
    branch: str | None = None,
) -> Inspection:
    """Judges a state; `footers` are row groups by path, `layout` is one that the files have bounds for."""
    return examine_state(
        state,
        context.policy(state),
        now_ms=context.clock.now_ms(),
        memory=remembered(context.records, state),
        footers=footers or {},
        layout=layout,
        rates=rates_of(context.connection.settings.cost),
        pinned=context.pinned(state.uuid),
        branch=branch or context.branch,
    )


def condition(
    context: TableContext,
    *,
    at: int | None = None,
    wrote: RunRecord | None = None,
    layout: Layout | None = None,
) -> Condition | None:
    """The table in numbers, now or at a snapshot; None where it cannot be read any more: a run is not lost for that.

    Row groups of files that a run has just written are those of its record, since the state store does not have them yet. With
    a layout, the numbers include how well it is kept.
    """
    row_groups = {output.path: output.row_groups for group in (wrote.groups if wrote else ()) for output in group.outputs}
    try:
        reader = context.reader()
        if at is not None and at not in {snapshot.snapshot_id for snapshot in reader.state().snapshots}:
            return None
        reader = reader.at(at) if at is not None else reader
        columns = layout_columns(layout, reader.state().fields) if layout is not None else ()
        state = read(reader, Depth.FILES, bounds=[column.field_id for column in columns])
        return Condition.of(examine(context, state, row_groups, layout))
    except Exception as error:  # the run has ended, and must be remembered
        log.warning("the table's condition is not in the record: %s", error)
        return None


def rates_of(cost: CostSettings) -> Rates:
    """The price table of the settings as a plan takes it."""
    rates = Rates()
    speeds = {Kernel.COPY: cost.copy_throughput, Kernel.ARROW: cost.arrow_throughput, Kernel.SPARK: cost.spark_throughput}
    return rates.model_copy(
        update={
            **{f"{kernel}_kernel": rates.of(kernel).model_copy(update={"bytes_per_second": s}) for kernel, s in speeds.items()},
            "core_hour": cost.core_hour,
            "thousand_reads": cost.thousand_reads,
            "thousand_writes": cost.thousand_writes,
        }
    )
