"""An inspection as rich text: what hurts first, then the numbers behind it. Reads well in 80 columns and in 200.

Called by the CLI's text output. Shows only what the inspection holds: a shallower look makes a shorter page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.health.inspection import Finding, Inspection, PartitionHealth, SizeBucket
from neve.health.skipping import Clustering
from neve.render.bars import Bar, Tidy
from neve.render.facts import clustering_advice, depth, facts, fix_text, freshness, headline
from neve.render.phrases import band, count, headed, printable, share, size_range
from neve.render.sizes import drawn_buckets, holds, is_small
from neve.table.units import counted, format_bytes

INDENT = (0, 0, 0, 2)
ROOMY_WIDTH = 96


def inspection_text(inspection: Inspection, *, partitions: int = 10) -> RenderableType:
    """The whole page, with at most `partitions` partitions."""
    return Tidy(Group(*_sections(inspection, partitions)))


def _sections(inspection: Inspection, partitions: int) -> Iterator[RenderableType]:
    yield _header(inspection)
    yield _score(inspection)
    yield _findings(inspection)
    yield _titled("Numbers", _facts(inspection))
    if buckets := drawn_buckets(inspection):
        yield _titled("File sizes", _histogram(inspection, buckets))
    if inspection.clustering is not None:
        advice = Text(f"→ {clustering_advice(inspection)}", style="cyan" if inspection.clustering.advised else "dim")
        title = f"Clustering by {printable(inspection.clustering.layout)}"
        yield _titled(title, Group(_clustering(inspection.clustering), advice))
    if inspection.partitions and partitions > 0:
        yield _titled(_partitions_title(inspection, partitions), PartitionTable(inspection.partitions[:partitions]))


def _header(inspection: Inspection) -> RenderableType:
    return Group(
        Text(headed(inspection.table, inspection.branch), style="bold"),
        Text(f"{headline(inspection)}"),
        Text(freshness(inspection), style="dim"),
        Text(printable(inspection.location), style="dim", overflow="fold"),
        Text(),
    )


def _score(inspection: Inspection) -> RenderableType:
    verdict = band(inspection.health.score)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    told = Text.assemble(("Health ", "bold"), (f"{inspection.health.score}", f"bold {verdict.style}"), (" / 100", "dim"))
    bar = Bar(inspection.health.score / 100, verdict.style, most=44, track=True)
    grid.add_row(told, bar, Text(verdict.word, style=f"bold {verdict.style}"))
    return grid


def _findings(inspection: Inspection) -> RenderableType:
    findings = inspection.health.findings
    if not findings:
        return Padding(Text("Nothing hurts.", style="green"), (1, 0, 0, 2))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(ratio=1)
    for finding in findings:
        grid.add_row(Text(_loss(finding), style="bold red" if finding.points else "dim"), _finding(finding, inspection))
    return Padding(grid, (1, 0, 0, 2))


def _loss(finding: Finding) -> str:
    if not finding.points:
        return "0"
    return f"\N{MINUS SIGN}{finding.points:.0f}" if finding.points >= 0.5 else "\N{MINUS SIGN}<1"


def _finding(finding: Finding, inspection: Inspection) -> Text:
    fix = fix_text(finding, inspection.table, inspection.branch)
    lines = Text(printable(finding.title), style="bold")
    lines.append(f"\n{printable(finding.evidence)}", style="not bold")
    return lines.append(f"\n→ {printable(fix)}", style="not bold cyan" if finding.operation else "not bold dim")


def _titled(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(), Text(title, style="bold"), Padding(body, INDENT))


def _facts(inspection: Inspection) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    for fact in facts(inspection):
        grid.add_row(fact.label, Text(fact.value))
    return grid


def _histogram(inspection: Inspection, buckets: tuple[SizeBucket, ...]) -> RenderableType:
    most = max(b.files for b in buckets)
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(justify="right", no_wrap=True, style="dim")
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True, style="dim")
    grid.add_column(no_wrap=True, style="dim")
    for bucket in buckets:
        style = "yellow" if is_small(bucket, inspection) else "green"
        marker = "← target" if holds(bucket, inspection.target_file_size_bytes) else ""
        files, stored = (count(bucket.files), format_bytes(bucket.bytes)) if bucket.files else ("", "")
        grid.add_row(size_range(bucket), Bar(bucket.files / most, style), files, stored, marker)
    return grid


def _clustering(clustering: Clustering) -> RenderableType:
    """What a query for one value of each column reads of all bytes, as files lie now and as they would after a run."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, expand=True)
    table.add_column("a query for one value of", overflow="fold")
    table.add_column("depth", justify="right", no_wrap=True)
    for name in ("reads now", "once clustered"):
        table.add_column(name, ratio=1, min_width=len("once clustered") + 2, no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for column in clustering.columns:
        now, after = column.point_read, column.point_read_after
        bars = Bar(now, "yellow"), share(now), Bar(after, "green"), share(after)
        table.add_row(Text(printable(column.name)), depth(column.depth), *bars)
    return table


def _partitions_title(inspection: Inspection, shown: int) -> str:
    known = inspection.partition_count or len(inspection.partitions or ())
    if known <= shown:
        return f"{counted(known, 'partition')}, most in need first"
    return f"{count(shown)} of {counted(known, 'partition')}, most in need first"


@dataclass(frozen=True)
class PartitionTable:
    """Partitions in rows. A narrow terminal keeps the names whole and does without the average size."""

    partitions: tuple[PartitionHealth, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = ("files", "small", "deletes", "size", "average")
        columns = numbers if options.max_width >= ROOMY_WIDTH else numbers[:-1]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, expand=True)
        table.add_column("partition", ratio=1, overflow="fold")
        table.add_column("need", no_wrap=True, width=12)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for p in self.partitions:
            table.add_row(Text(printable(p.partition) or "(unpartitioned)"), _need(p.score), *_numbers(p)[: len(columns)])
        yield table


def _numbers(p: PartitionHealth) -> tuple[str, ...]:
    average = format_bytes(p.bytes / p.data_files) if p.data_files else ""
    return count(p.data_files), count(p.small_files), count(p.delete_files), format_bytes(p.bytes), average


def _need(score: float) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=4)
    grid.add_column(width=7)
    grid.add_row(f"{score:.2f}", Bar(score, band(100 - 100 * score).style, most=7))
    return grid
