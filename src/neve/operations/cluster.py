"""cluster: brings rows with the same values of some columns into the same files; the table keeps the layout for later runs."""

from __future__ import annotations

from dataclasses import fields

from neve.commit.lease import require_history, require_same_table
from neve.context.table import TableContext
from neve.errors import BadRequestError
from neve.operations import compact
from neve.operations.requests import ClusterRequest, CompactRequest
from neve.rewrite.group import RunKind
from neve.rewrite.plan import Plan
from neve.rewrite.record import RunRecord
from neve.rewrite.table_layout import layout_of
from neve.table.layout import CLUSTER_BY, Layout


def run(context: TableContext, request: ClusterRequest) -> RunRecord | Plan:
    """Stores the layout in the table, so that any later run goes on with it, and carries a run of it out.

    A dry run is the plan, and stores nothing.
    """
    layout = asked_layout(request.by, request.kind)
    knobs = _knobs(context, layout)
    if not request.dry_run:
        context.require_free()
        _keep(context, layout)
    shared = {one.name: getattr(request, one.name) for one in fields(CompactRequest) if hasattr(request, one.name)}
    asked = CompactRequest(**shared | ({"tier": "full"} if request.full else {}))
    return compact.run(context, asked, knobs, RunKind.CLUSTER)


def _keep(context: TableContext, layout: Layout | None) -> None:
    """Stores a layout that was asked for in the table, unless it is there."""
    state = context.state
    kept = state.properties.get(CLUSTER_BY)
    if layout is None or kept == str(layout):
        return
    require_history(str(state.name), state.properties)
    require_same_table(str(state.name), state.uuid, context.writer)
    if not context.writer.swap_property(CLUSTER_BY, kept, str(layout)):
        message = f"Cannot keep the layout of {state.name}: somebody else has just changed it"
        raise BadRequestError(message, hint="Look at the table property neve.cluster-by, and try again.")


def _knobs(context: TableContext, by: Layout | None) -> compact.Knobs:
    """The knobs of a clustering run. Raises BadRequestError where there is no layout, or none that the table can have."""
    knobs: compact.Knobs = {"strategy": "dimensional"} | ({"cluster_by": str(by)} if by is not None else {})
    if layout_of(context.state, context.policy().model_copy(update=knobs)) is None:
        hint = 'Name the columns that queries look for, such as --by "city, amount".'
        raise BadRequestError(f"Cannot cluster {context.name}: it has neither neve.cluster-by nor a sort order", hint=hint)
    return knobs


def asked_layout(by: str | None, kind: str | None) -> Layout | None:
    """The layout that was asked for, None for the table's own. Raises BadRequestError for what is none."""
    if by is None and kind is not None:
        raise BadRequestError(f"Cannot cluster by {kind}: no columns were given", hint='Add them, such as --by "city, amount".')
    if by is None:
        return None
    try:
        return Layout.parse(f"{kind}({by})" if kind is not None else by)
    except ValueError as error:
        hint = 'Write columns, such as --by "city, amount"; --kind says how they are ordered.'
        raise BadRequestError(f"Cannot cluster by {by!r}: {error}", hint=hint) from None
