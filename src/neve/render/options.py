"""Configured options that kernels do not apply, as a table. Called by the texts of a plan and of a run."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.render.phrases import printable
from neve.rewrite.kernel_options import NotApplied
from neve.table.units import counted


def not_applied_table(options: Iterable[NotApplied]) -> RenderableType:
    """Each option with its value, its origin, the groups and the reason."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for one in options:
        told = f"{one.reason} ({counted(one.groups, 'group')}); set by {one.origin}"
        grid.add_row(Text(printable(f"{one.option} {one.value}")), Text(printable(told)))
    return grid
