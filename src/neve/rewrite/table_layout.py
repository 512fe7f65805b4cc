"""The layout that a table's files are to have: from the policy, else from the table's sort order. Pure."""

from __future__ import annotations

from difflib import get_close_matches

from neve.errors import BadRequestError
from neve.policy.model import Policy
from neve.table.layout import Layout, sorted_by
from neve.table.state import SortOrder, TableState

_NAMED = 8
"""How many columns an error lists."""


def layout_of(state: TableState, policy: Policy) -> Layout | None:
    """The order of rows that the table is to have: the policy's clustering, of which the table's own `neve.cluster-by` is part,
    else the table's sort order. Raises BadRequestError for columns that the table does not have."""
    own = _own_layout(state)
    if policy.cluster_by is None:
        return own
    asked = Layout.parse(policy.cluster_by)
    known = [column.name for column in state.fields]
    for name in asked.columns if known else ():
        if name not in known:
            raise _no_such_column(state, name, known)
    return own if own is not None and (own.kind, own.fields) == (asked.kind, asked.fields) else asked


def _own_layout(state: TableState) -> Layout | None:
    order = sort_order_of(state)
    try:
        return sorted_by(order.order_id, order.fields) if order else None
    except ValueError:
        return None  # a column whose name a layout cannot be written with, such as one with a comma


def _no_such_column(state: TableState, name: str, known: list[str]) -> BadRequestError:
    inside = [column for column in known if column.endswith(f".{name}")]
    close = inside or get_close_matches(name, known) or get_close_matches(name.lower(), known)
    some = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    hint = f"Did you mean {' or '.join(close)}?" if close else f"It has {some}."
    return BadRequestError(f"Cannot lay {state.name} out by {name}: it has no such column of single values", hint=hint)


def sort_order_of(state: TableState) -> SortOrder | None:
    """The table's sort order, None where it has none."""
    return next((o for o in state.sort_orders if o.order_id == state.default_sort_order_id and o.fields), None)
