"""What stated queries gain: predicted beside a plan, and counted once its run is over.

Called by `operations.compact` where the policy states queries. Iceberg's own planning says which files a query reads, before
and after, so that the count is what engines do; what is in between is `rewrite.query_gain`'s prediction.
"""

from __future__ import annotations

from collections.abc import Mapping

from neve.health.clustering import layout_columns
from neve.health.queries import QueryGain, reads_of, split_queries
from neve.health.row_groups import with_row_groups
from neve.ports import QueryPlanner
from neve.rewrite.plan import Plan
from neve.rewrite.query_gain import predicted_gain
from neve.table.bounds import Ranges
from neve.table.files import FileColumns
from neve.table.state import TableState


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
