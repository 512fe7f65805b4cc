"""What a clustering run changes, as rich text: depth and the bytes that queries read, before, by prediction, and after."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.health.skipping import Clustering
from neve.render.facts import depth
from neve.render.phrases import printable, share


def clustering_title(clustering: Clustering) -> str:
    """What the rows are ordered by."""
    return f"Clustering by {printable(clustering.layout)}"


def clustering_table(before: Clustering, after: Clustering | None = None) -> RenderableType:
    """Depth and reads: now and predicted for a plan; before, predicted and after for a run."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", style="dim", overflow="fold")
    for name in ("now", "predicted") if after is None else ("before", "predicted", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    measured = [] if after is None else [depth(after.depth)]
    table.add_row("files over a row's values", depth(before.depth), depth(before.depth_after), *measured)
    found = {column.name: column for column in after.columns} if after is not None else {}
    for column in before.columns:
        read = [share(column.point_read), share(column.point_read_after)]
        read += [share(found[column.name].point_read)] if column.name in found else [""] if after is not None else []
        table.add_row(Text(f"bytes read for one value of {printable(column.name)}"), *read)
    return table
