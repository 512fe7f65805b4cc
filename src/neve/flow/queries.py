"""What stated queries gain: predicted beside a plan, and counted once its run is over.

Called by `compose` where the policy states queries. Iceberg's own planning says which files a query reads, before and after, so
that the count is what engines do; what is in between is `core.query_gain`'s prediction.
"""

from __future__ import annotations

from collections.abc import Mapping

from neve.core.bounds import Ranges
from neve.core.clustering import layout_columns
from neve.core.files import FileColumns
from neve.core.model import TableState
from neve.core.plan import Plan
from neve.core.queries import QueryGain, reads_of, split_queries
from neve.core.query_gain import predicted_gain
from neve.core.row_groups import with_row_groups
from neve.ports import QueryPlanner


def predict(plan: Plan, state: TableState, planner: QueryPlanner, row_groups: Mapping[str, int]) -> tuple[QueryGain, ...]:
    """The queries of the plan's policy, now and after the run; `row_groups` are by path, from our records."""
    files = with_row_groups(state.files or FileColumns.empty(), row_groups)
    columns = layout_columns(plan.layout, state.fields) if plan.layout is not None and files.bounds is not None else ()
    ranges = Ranges.of(files, columns) if columns else None
    queries = split_queries(plan.policy.queries or "")
    return tuple(predicted_gain(planner.planned(plan.snapshot_id, query), plan, files, ranges) for query in queries)


def count_again(
    gains: tuple[QueryGain, ...], planner: QueryPlanner, snapshot_id: int | None, files: FileColumns
) -> tuple[QueryGain, ...]:
    """The same queries as they are now, on a snapshot whose files these are."""
    after = [reads_of(planner.planned(snapshot_id, gain.query), files) for gain in gains]
    return tuple(gain.model_copy(update={"after": reads}) for gain, reads in zip(gains, after, strict=True))
