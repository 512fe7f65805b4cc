"""Stated queries as rich text: what each reads now, and would or does read after. For plans and for runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.health.queries import QueryGain, QueryReads
from neve.render.phrases import count, printable
from neve.table.units import format_bytes, format_seconds


def queries_table(gains: Sequence[QueryGain]) -> RenderableType:
    """Three lines for each query, or four once it was counted again."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", overflow="fold")
    for title in ("files", "row groups", "size", "planning"):
        table.add_column(title, justify="right", no_wrap=True)
    for gain in gains:
        table.add_row(Text(printable(gain.query)))
        table.add_row(Text("  now" if gain.after is None else "  before", style="dim"), *_cells(gain.before))
        table.add_row(Text("  predicted", style="dim"), *_cells(gain.predicted))
        if gain.after is not None:
            table.add_row(Text("  after", style="dim"), *_cells(gain.after))
    return table


def _cells(reads: QueryReads) -> list[str]:
    took = format_seconds(reads.planning_seconds) if reads.planning_seconds is not None else ""
    return [count(reads.files), count(reads.row_groups), format_bytes(reads.bytes), took]
