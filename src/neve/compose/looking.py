"""Looking at tables: how they are, at the head of a branch or at a snapshot of the past."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from neve.compose.place import Place
from neve.core.depth import Depth
from neve.core.model import MAIN, RefKind
from neve.errors import BadRequestError, NeveError

if TYPE_CHECKING:
    from neve.core.inspection import Inspection
    from neve.core.layout import Layout
    from neve.core.model import Column, TableState
    from neve.core.policy import Policy
    from neve.core.record import RunRecord
    from neve.core.statistics import Condition
    from neve.flow.inspect import Memory
    from neve.ports import Clock, Progress, TableReader
    from neve.settings import Loaded

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
            raise BadRequestError(f"Cannot find branch {branch}: the table has {known}", hint="neve inspect lists all refs.")
        return reader.at(refs[branch].snapshot_id)

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
        from neve.flow.inspect import Memory

        return Memory.of(self._place.records(), state.uuid)

    def inspect(self, table: str, *, depth: Depth, sample: int, progress: Progress | None) -> Inspection:
        """A look at one table; `sample` is how many footers to read besides."""
        from neve.flow import inspect

        reader = self.reader(table)
        layout, columns = self._layout(reader.state()) if depth is Depth.FILES else (None, ())
        state = inspect.read(reader, depth, progress, bounds=[column.field_id for column in columns])
        footers = reader.sample_row_groups(inspect.sample(state.files, sample)) if sample and state.files is not None else {}
        return self.examine(state, footers, layout)

    def _layout(self, state: TableState) -> tuple[Layout | None, Sequence[Column]]:
        """The table's layout and the columns that tell of it. That it names no column of the table is an error only where it
        was asked for in this very call: elsewhere it may have been right when it was written down."""
        from neve.core.clustering import layout_columns
        from neve.flow import inspect
        from neve.settings.origins import OriginKind

        policy, origins = self._loaded.policy(state.properties)
        try:
            layout = inspect.layout_of(state, policy)
            return layout, layout_columns(layout, state.fields) if layout is not None else ()
        except BadRequestError as error:
            if origins["cluster-by"].kind is OriginKind.FLAG:
                raise
            log.warning("clustering is not looked at: %s", error)
            return None, ()

    def examine(self, state: TableState, footers: Mapping[str, int] | None = None, layout: Layout | None = None) -> Inspection:
        """What a state tells; `footers` are row groups by path, `layout` is one that the files tell bounds for."""
        from neve.flow import inspect

        now, memory = self._clock.now_ms(), self.memory(state)
        return inspect.examine(state, self.policy(state), now_ms=now, memory=memory, footers=footers or {}, layout=layout)

    def condition(self, table: str, branch: str, *, at: int | None = None, wrote: RunRecord | None = None) -> Condition | None:
        """The table in numbers, now or at a snapshot; None where it cannot be read any more: a run is not lost for that.

        Files that a run has just written are cut as its record says, since nobody has remembered that yet.
        """
        from neve.core.statistics import Condition
        from neve.flow import inspect

        row_groups = {output.path: output.row_groups for group in (wrote.groups if wrote else ()) for output in group.outputs}
        try:
            reader = self.reader(table, branch)
            if at is not None and at not in {snapshot.snapshot_id for snapshot in reader.state().snapshots}:
                return None
            state = inspect.read(reader.at(at) if at is not None else reader, Depth.FILES)
            return Condition.of(self.examine(state, row_groups))
        except NeveError as error:
            log.warning("the table's condition is not in the record: %s", error)
            return None
