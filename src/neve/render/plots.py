"""Plots as inline SVG: no script, no font, no request. Positions across are percentages, so that a plot fits any width
while its words keep their size. Colours are classes of the page, which knows light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from neve.health.inspection import Inspection, SizeBucket
from neve.render.phrases import band, printable, size_range
from neve.render.sizes import drawn_buckets, holds, is_small
from neve.table.units import counted, format_bytes

HEIGHT, TOP, BOTTOM = 220, 44, 30
WIDTH_PERCENT = 96  # the rest is room for the last label
RING_RADIUS = 52


def files_by_size(inspection: Inspection) -> Markup:
    """The histogram: how many files of which size."""
    return _columns(inspection, "Files by size", lambda b: b.files, lambda b: f"{b.files:,}" if b.files else "")


def bytes_by_size(inspection: Inspection) -> Markup:
    """The same buckets by weight: where the data lives."""
    return _columns(inspection, "Data by file size", lambda b: b.bytes, lambda b: format_bytes(b.bytes) if b.bytes else "")


def score_ring(score: int) -> Markup:
    """The health score as a ring that fills clockwise."""
    around = 2 * math.pi * RING_RADIUS
    return Markup(
        '<svg class="ring" viewBox="0 0 128 128" role="img" aria-label="Health {score} of 100">'
        '<circle class="track" cx="64" cy="64" r="{r}"/>'
        '<circle class="arc {css}" cx="64" cy="64" r="{r}" stroke-dasharray="{on:.1f} {around:.1f}"'
        ' transform="rotate(-90 64 64)"/>'
        '<text x="64" y="62" class="score">{score}</text><text x="64" y="91" class="of">of 100</text></svg>'
    ).format(score=score, r=RING_RADIUS, css=band(score).css, on=around * score / 100, around=around)


def points_bar(inspection: Inspection) -> Markup:
    """Where the 100 points went: what is left, then what each finding took."""
    parts, left = [], 0.0
    taken = [(finding.title, finding.points) for finding in inspection.health.findings]
    for index, (title, points) in enumerate([("Health", float(inspection.health.score)), *taken]):
        width = max(min(points, 100 - left), 0)
        css = "good" if index == 0 else f"lost shade{index % 4}"
        told = f"{printable(title)}: {points:.0f} points"
        parts.append(
            Markup('<rect class="{}" x="{:.2f}%" y="0" width="{:.2f}%" height="14"><title>{}</title></rect>').format(
                css, left, width, told
            )
        )
        left += width
    return Markup('<svg class="points" height="14" role="img" aria-label="Where the 100 points went">{}</svg>').format(
        Markup("").join(parts)
    )


def bar(ratio: float, css: str, told: str) -> Markup:
    """One bar in a table row."""
    width = 100 * min(max(ratio, 0.0), 1.0)
    return Markup(
        '<svg class="bar" height="10" role="img" aria-label="{told}"><rect class="track" width="100%" height="10" rx="3"/>'
        '<rect class="{css}" width="{width:.1f}%" height="10" rx="3"/></svg>'
    ).format(told=told, css=css, width=width)


def _columns(
    inspection: Inspection, title: str, size: Callable[[SizeBucket], int], label: Callable[[SizeBucket], str]
) -> Markup:
    buckets = drawn_buckets(inspection)
    step = WIDTH_PERCENT / max(len(buckets), 1)
    most = max((size(bucket) for bucket in buckets), default=0) or 1
    drawn = [_column(inspection, b, i * step, step, size(b) / most, label(b)) for i, b in enumerate(buckets)]
    inside = Markup("").join([*drawn, *_ticks(buckets, step), _target(inspection, buckets, step)])
    told = f"{title}: " + "; ".join(f"{size_range(b)}: {counted(b.files, 'file')}, {format_bytes(b.bytes)}" for b in buckets)
    return Markup('<svg class="columns" height="{}" role="img" aria-label="{}">{}</svg>').format(HEIGHT, told, inside)


def _column(inspection: Inspection, bucket: SizeBucket, x: float, step: float, ratio: float, label: str) -> Markup:
    room = HEIGHT - TOP - BOTTOM
    height = max(ratio * room, 2) if ratio else 0
    y = HEIGHT - BOTTOM - height
    told = f"{size_range(bucket)}: {counted(bucket.files, 'file')}, {format_bytes(bucket.bytes)}"
    return Markup(
        '<rect class="{css}" x="{x:.2f}%" y="{y:.1f}" width="{w:.2f}%" height="{h:.1f}" rx="2"><title>{told}</title></rect>'
        '<text class="value" x="{mid:.2f}%" y="{above:.1f}">{label}</text>'
    ).format(
        css="small" if is_small(bucket, inspection) else "good",
        x=x + step * 0.06,
        y=y,
        w=step * 0.88,
        h=height,
        told=told,
        mid=x + step / 2,
        above=y - 5,
        label=label,
    )


def _ticks(buckets: Sequence[SizeBucket], step: float) -> list[Markup]:
    """Sizes under the edges between columns; on a narrow screen every second one is hidden."""
    edges = [bucket.low_bytes for bucket in buckets] + [b.high_bytes for b in buckets[-1:] if b.high_bytes is not None]
    base = HEIGHT - BOTTOM
    line = Markup('<line class="axis" x1="0" x2="100%" y1="{y}" y2="{y}"/>').format(y=base + 0.5)
    return [line, *(_tick(i, edge, i * step) for i, edge in enumerate(edges))]


def _tick(index: int, edge_bytes: int, x: float) -> Markup:
    anchor = "middle" if index else "start"
    return Markup('<text class="tick{alt}" x="{x:.2f}%" y="{y}" text-anchor="{anchor}">{told}</text>').format(
        alt=" alt" if index % 2 else "", x=x, y=HEIGHT - 10, anchor=anchor, told=format_bytes(edge_bytes) if edge_bytes else "0"
    )


def _target(inspection: Inspection, buckets: Sequence[SizeBucket], step: float) -> Markup:
    target = inspection.target_file_size_bytes
    index = next((i for i, bucket in enumerate(buckets) if holds(bucket, target)), None)
    if index is None:
        return Markup("")
    low, high = buckets[index].low_bytes, buckets[index].high_bytes
    part = (target - low) / (high - low) if high else 0.0
    x = (index + part) * step
    return Markup(
        '<line class="target" x1="{x:.2f}%" x2="{x:.2f}%" y1="20" y2="{bottom}"/>'
        '<text class="target" x="{x:.2f}%" y="13" text-anchor="{anchor}">target {told}</text>'
    ).format(x=x, bottom=HEIGHT - BOTTOM, anchor="end" if x > 60 else "start", told=escape(format_bytes(target)))
