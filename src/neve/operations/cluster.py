"""cluster: brings rows with the same values of some columns into the same files; the table keeps the layout for later runs."""

from __future__ import annotations

from dataclasses import replace

from neve.commit.lease import require_history
from neve.context.table import TableContext
from neve.errors import BadRequestError
from neve.operations import compact
from neve.rewrite.group import RunKind
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request
from neve.rewrite.record import RunRecord
from neve.rewrite.table_layout import layout_of
from neve.table.layout import CLUSTER_BY, Layout


def plan(context: TableContext, by: str | None, kind: str | None, request: Request) -> Plan:
    """What `run` would do; nothing is stored."""
    knobs = _knobs(context, asked_layout(by, kind))
    return compact.plan(context, replace(request, kind=RunKind.CLUSTER), knobs)[1]


def run(
    context: TableContext,
    by: str | None,
    kind: str | None,
    request: Request,
    *,
    verify: str = "metadata",
    probe_query: str | None = None,
) -> RunRecord:
    """Stores the layout in the table, so that any later run goes on with it, and carries a run of it out."""
    layout = asked_layout(by, kind)
    knobs, state = _knobs(context, layout), context.state
    context.require_free()
    kept = state.properties.get(CLUSTER_BY)
    if layout is not None and kept != str(layout):
        require_history(str(state.name), state.properties)
        if not context.writer.swap_property(CLUSTER_BY, kept, str(layout)):
            message = f"Cannot keep the layout of {state.name}: somebody else has just changed it"
            raise BadRequestError(message, hint="Look at the table property neve.cluster-by, and try again.")
    request = replace(request, kind=RunKind.CLUSTER)
    return compact.rewrite(context, request, verify=verify, probe_query=probe_query, knobs=knobs)


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
