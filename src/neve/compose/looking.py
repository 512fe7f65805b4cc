"""Looking at tables: how they are, at the head of a branch or at a snapshot of the past."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from neve.compose.place import Place
from neve.errors import BadRequestError
from neve.table.depth import Depth
from neve.table.state import MAIN, RefKind

if TYPE_CHECKING:
    from neve.compose.metadata_view import MetadataView
    from neve.health.condition import Condition
    from neve.health.inspection import Inspection
    from neve.policy.model import Policy
    from neve.ports import Clock, Progress, TableReader
    from neve.rewrite.cost import Rates
    from neve.rewrite.memory import Memory
    from neve.rewrite.record import RunRecord
    from neve.settings import CostSettings, Loaded
    from neve.state import StateStore
    from neve.table.layout import Layout
    from neve.table.state import Column, TableState

log = logging.getLogger(__name__)


class Looking:
    """Reads metadata at a place and judges it by the settings' policy."""

    def __init__(self, place: Place, loaded: Loaded, clock: Clock) -> None:
        self._place, self._loaded, self._clock = place, loaded, clock

    def reader(self, table: str, branch: str = MAIN) -> TableReader:
        """The table at the head of a branch."""
        reader = self._place.reader(self._place.name(table))
        if branch == MAIN:
            return reader
        refs = {ref.name: ref for ref in reader.state().refs if ref.kind is RefKind.BRANCH}
        if branch not in refs:
            known = ", ".join(sorted(refs)) or "none"
            hint = f"`neve inspect {quote(table)}` lists all refs."
            raise BadRequestError(f"Cannot find branch {branch}: the table has {known}", hint=hint)
        return reader.at(refs[branch].snapshot_id)

    def view(self, table: str) -> MetadataView:
        """The table's snapshots and files for a dry run."""
        from neve.compose.metadata_view import MetadataView
        from neve.storage.files import Storage

        return MetadataView(self.reader(table), Storage(self._place.storage(self._place.name(table))))

    def require_free(self, state: TableState) -> None:
        """Raises LeaseHeldError if another process is at work on the table. Asked before anything is planned or started."""
        from neve.commit.lease import require_free

        require_free(str(state.name), state.uuid, state.properties, leases=self._place.records(), clock=self._clock)

    def policy(self, state: TableState) -> Policy:
        """The settings' policy with the table's own properties."""
        return self._loaded.policy(state.properties)[0]

    def stated(self, state: TableState) -> set[str]:
        """The knobs that somebody has set, elsewhere than in the properties that writers go by."""
        from neve.settings.origins import OriginKind

        _, origins = self._loaded.policy(state.properties)
        return {key for key, o in origins.items() if o.kind is not OriginKind.DEFAULT and not o.name.startswith("write.")}

    def memory(self, state: TableState) -> Memory:
        """What earlier runs know of the table."""
        from neve.operations.inspect import remembered

        return remembered(self._place.records(), state)

    def inspect(self, table: str, *, depth: Depth, sample: int, progress: Progress | None, branch: str = MAIN) -> Inspection:
        """A look at one table at the head of a branch; `sample` is how many footers to read besides."""
        from neve.operations import inspect

        reader = self.reader(table, branch)
        layout, columns = self._layout(reader.state()) if depth is Depth.FILES else (None, ())
        state = inspect.read(reader, depth, progress, bounds=[column.field_id for column in columns])
        footers = reader.sample_row_groups(inspect.sample(state.files, sample)) if sample and state.files is not None else {}
        return self.examine(state, footers, layout, branch=branch)

    def _layout(self, state: TableState) -> tuple[Layout | None, Sequence[Column]]:
        """The table's layout and the columns that tell of it. That it names no column of the table is an error only where it
        was asked for in this very call: elsewhere it may have been right when it was written down."""
        from neve.health.clustering import layout_columns
        from neve.rewrite.table_layout import layout_of
        from neve.settings.origins import OriginKind

        policy, origins = self._loaded.policy(state.properties)
        try:
            layout = layout_of(state, policy)
            return layout, layout_columns(layout, state.fields) if layout is not None else ()
        except BadRequestError as error:
            if origins["cluster-by"].kind is OriginKind.FLAG:
                raise
            log.warning("clustering is not looked at: %s", error)
            return None, ()

    def examine(
        self,
        state: TableState,
        footers: Mapping[str, int] | None = None,
        layout: Layout | None = None,
        *,
        branch: str = MAIN,
    ) -> Inspection:
        """What a state tells; `footers` are row groups by path, `layout` is one that the files tell bounds for."""
        from neve.operations.examine import examine

        return examine(
            state,
            self.policy(state),
            now_ms=self._clock.now_ms(),
            memory=self.memory(state),
            footers=footers or {},
            layout=layout,
            rates=rates_of(self._place.settings.cost),
            pinned=pinned(self._place.records(), state.uuid),
            branch=branch,
        )

    def condition(
        self,
        table: str,
        branch: str,
        *,
        at: int | None = None,
        wrote: RunRecord | None = None,
        layout: Layout | None = None,
    ) -> Condition | None:
        """The table in numbers, now or at a snapshot; None where it cannot be read any more: a run is not lost for that.

        Files that a run has just written are cut as its record says, since nobody has remembered that yet. With a layout, the
        numbers include how well it is kept.
        """
        from neve.health.clustering import layout_columns
        from neve.health.condition import Condition
        from neve.operations import inspect

        row_groups = {output.path: output.row_groups for group in (wrote.groups if wrote else ()) for output in group.outputs}
        try:
            reader = self.reader(table, branch)
            if at is not None and at not in {snapshot.snapshot_id for snapshot in reader.state().snapshots}:
                return None
            reader = reader.at(at) if at is not None else reader
            columns = layout_columns(layout, reader.state().fields) if layout is not None else ()
            state = inspect.read(reader, Depth.FILES, bounds=[column.field_id for column in columns])
            return Condition.of(self.examine(state, row_groups, layout, branch=branch))
        except Exception as error:  # the run has ended, and must be remembered
            log.warning("the table's condition is not in the record: %s", error)
            return None


def pinned(store: StateStore | None, table_uuid: str, after_run: str | None = None) -> dict[int, str]:
    """Returns the snapshots in use by unfinished runs, each with the reason; not those of `after_run`, which has ended."""
    runs = store.unfinished() if store is not None else ()
    return {
        run.plan.snapshot_id: f"run {run.run_id[:8]} was planned from it and has not ended"
        for run in runs
        if run.plan.table_uuid == table_uuid and run.plan.snapshot_id is not None and run.run_id != after_run
    }


def rates_of(cost: CostSettings) -> Rates:
    """The price table of the settings as a plan takes it."""
    from neve.rewrite.cost import Rates
    from neve.rewrite.group import Kernel

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
