"""An inspection as one page that stands alone: inline style, inline SVG, no script and no request; light and dark.

Called by `neve inspect --html`. Everything that comes from a table's metadata is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from neve.health.inspection import Inspection
from neve.render import plots
from neve.render.facts import clustering_advice, depth, facts, fix_text, freshness, headline
from neve.render.phrases import ago, band, count, headed, moment, printable, share
from neve.render.sizes import drawn_buckets
from neve.table.units import counted, format_bytes

if TYPE_CHECKING:
    from jinja2 import Template

PARTITIONS_SHOWN = 100


def inspection_html(inspection: Inspection) -> str:
    """The whole page."""
    partitions = (inspection.partitions or ())[:PARTITIONS_SHOWN]
    return _template().render(
        i=inspection,
        verdict=band(inspection.health.score),
        headline=headline(inspection),
        freshness=freshness(inspection),
        facts=facts(inspection),
        tiles=_tiles(inspection),
        buckets=drawn_buckets(inspection),
        clustering_advice=clustering_advice(inspection),
        partitions=partitions,
        partition_count=inspection.partition_count or len(partitions),
    )


def _tiles(i: Inspection) -> Iterator[tuple[str, str, str]]:
    """The few numbers that are read first: label, number, remark."""
    if i.data_files is not None:
        yield "Data files", count(i.data_files), "" if i.data_bytes is None else format_bytes(i.data_bytes)
    if i.average_file_bytes is not None:
        yield "Average file", format_bytes(i.average_file_bytes), f"target {format_bytes(i.target_file_size_bytes)}"
    if i.small_file_share is not None:
        yield "Small files", share(i.small_file_share), f"below {format_bytes(i.small_file_threshold_bytes)}"
    if i.deletes is not None:
        yield "Delete files", count(i.deletes.files), f"{counted(i.deletes.rows, 'row')} named"
    yield "Workload", str(i.workload.kind), counted(i.workload.commits, "commit")


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("neve.render"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["plots"] = plots
    words: dict[str, Any] = {
        "ago": ago,
        "band": band,
        "bytes": format_bytes,
        "count": count,
        "counted": counted,
        "depth": depth,
        "fix": fix_text,
        "moment": moment,
        "headed": headed,
        "printable": printable,
        "share": share,
    }
    environment.filters.update(words)
    return environment.get_template("inspection.html")
