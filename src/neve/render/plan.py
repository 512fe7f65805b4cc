"""A plan as rich text: what would be done in one line, the neediest groups, the kernels with their reasons, who is left alone.

Called by the CLI's text output. A group's reason stands beside it where there is room, else below its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Stack
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.health.not_due import sentences
from neve.render.bars import Tidy
from neve.render.clustering import clustering_table, clustering_title
from neve.render.not_due import not_due_section
from neve.render.options import not_applied_table
from neve.render.phrases import FROM_CACHE, count, headed, printable
from neve.render.queries import queries_table
from neve.render.text import INDENT
from neve.rewrite.group import Group, Price, RunKind
from neve.rewrite.groups import KERNELS
from neve.rewrite.plan import Plan, Skipped
from neve.table.units import counted, format_bytes, format_seconds

UNLIMITED = 10_000
REASONS_SHOWN = 6
SMALLEST_MONEY = 0.0001


def plan_text(plan: Plan, *, groups: int = 10) -> RenderableType:
    """The whole page, with at most `groups` groups."""
    return Tidy(Stack(*_sections(plan, groups)))


def plan_line(plan: Plan) -> str:
    """What would be done, in one line; or why nothing."""
    if not len(plan.groups):
        return f"Nothing to do: {printable(plan.empty_reason or 'no partition has files to rewrite now')}"
    inputs = f"{counted(plan.input_files, 'file')} ({format_bytes(plan.price.read_bytes)})"
    what = "Cluster " if plan.kind is RunKind.CLUSTER else ""
    outputs = f"{counted(plan.output_files, 'file')} in {counted(len(plan.groups), 'group')} by {_kernel_names(plan)}"
    return f"{what}{inputs} → {outputs}"


def price_line(price: Price) -> str:
    """What it is expected to take."""
    told = [f"about {format_seconds(price.core_seconds)} of one core", counted(price.requests, "storage request")]
    return ", ".join([*told, f"cost {money(price.money)}"])


def money(value: float) -> str:
    """An amount in the currency of the price table; never 0 for something."""
    if 0 < value < SMALLEST_MONEY:
        return f"below {SMALLEST_MONEY}"
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _sections(plan: Plan, groups: int) -> Iterator[RenderableType]:
    yield Text(headed(str(plan.table), plan.branch), style="bold")
    yield Text(plan_line(plan))
    if len(plan.groups):
        yield Text(price_line(plan.price), style="dim")
    yield Text(_basis(plan), style="dim")
    if aim := _aim(plan):
        yield Text(aim, style="dim")
    if len(plan.groups) and groups > 0:
        yield _titled(_groups_title(len(plan.groups), groups), GroupTable(plan.groups[:groups]))
    if plan.clustering is not None and len(plan.groups):
        yield _titled(clustering_title(plan.clustering), clustering_table(plan.clustering))
        if plan.clustering.not_due:
            advice = printable(f"Not advised. {sentences(plan.clustering.not_due)}")
            yield Padding(Text(advice, style="yellow"), INDENT)
    if plan.queries:
        yield _titled("Queries", queries_table(plan.queries))
    if len(plan.groups):
        yield _titled("Kernels", _counted_reasons(_kernel_reasons(plan)))
    if plan.not_applied:
        yield _titled("Options not applied", not_applied_table(plan.not_applied))
    if len(plan.groups) or len({skipped.reason for skipped in plan.skipped}) > 1:
        yield from _left_alone(plan.skipped)
    yield from not_due_section(plan.not_due)


def _left_alone(skipped: Sequence[Skipped]) -> Iterator[RenderableType]:
    if skipped:
        yield _titled(f"{counted(len(skipped), 'partition')} left alone", _counted_reasons(_skip_reasons(skipped)))


def _basis(plan: Plan) -> str:
    snapshot = f"snapshot {plan.snapshot_id}" if plan.snapshot_id is not None else "no snapshot yet"
    source = [FROM_CACHE] if plan.metadata_from_cache else []
    return " · ".join([snapshot, f"target {format_bytes(plan.policy.target_file_size_bytes)}", *source])


def _aim(plan: Plan) -> str:
    """What was meant besides merging small files, where anything was."""
    strategy = [f"strategy {plan.policy.strategy}"] if plan.policy.strategy != "small-files" else []
    follows = plan.layout is not None and (strategy or plan.groups.ordered.any())
    layout = [f"layout {printable(str(plan.layout))}"] if follows else []
    gain = [f"saves readers about {money(plan.gain_per_month)} a month"] if strategy and plan.gain_per_month > 0 else []
    return " · ".join([*strategy, *layout, *gain])


def _titled(title: str, body: RenderableType) -> RenderableType:
    return Stack(Text(), Text(title, style="bold"), Padding(body, INDENT))


def _groups_title(known: int, shown: int) -> str:
    some = counted(known, "group") if known <= shown else f"{count(shown)} of {counted(known, 'group')}"
    return f"{some}, neediest first"


@dataclass(frozen=True)
class GroupTable:
    """Groups in rows. Reasons that would squeeze the names stand below them."""

    groups: Sequence[Group]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        roomy = self._table(roomy=True)
        fits = console.measure(roomy, options=options.update(max_width=UNLIMITED)).maximum <= options.max_width
        yield roomy if fits else self._table(roomy=False)

    def _table(self, *, roomy: bool) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("partition", overflow="fold")
        table.add_column("tier", no_wrap=True)
        table.add_column("files", justify="right", no_wrap=True)
        table.add_column("size", justify="right", no_wrap=True)
        table.add_column("kernel", no_wrap=True)
        if roomy:
            table.add_column("reason", overflow="fold")
        for group in self.groups:
            table.add_row(*_cells(group, roomy=roomy))
        return table


def _name(group: Group) -> str:
    return printable(group.partition) or "(unpartitioned)"


def _cells(group: Group, *, roomy: bool) -> list[RenderableType]:
    name, reason = Text(_name(group)), printable(group.reason)
    numbers = [f"{count(len(group.files))} → {count(group.outputs)}", format_bytes(group.input_bytes)]
    if not roomy:
        name.append(f"\n{reason}", style="dim")
    cells: list[RenderableType] = [name, str(group.tier), *numbers, str(group.kernel)]
    return [*cells, Text(reason)] if roomy else cells


def _kernel_names(plan: Plan) -> str:
    used = Counter(plan.groups.kernel.tolist())
    return ", ".join(str(KERNELS[code]) for code, _ in used.most_common())


def _kernel_reasons(plan: Plan) -> Iterator[tuple[str, str]]:
    groups = plan.groups
    pairs = Counter(zip(groups.kernel.tolist(), groups.kernel_reason.tolist(), strict=True))
    for (kernel, reason), number in pairs.most_common():
        yield f"{KERNELS[kernel]}, {counted(number, 'group')}", groups.kernel_reasons[reason]


def _skip_reasons(skipped: Sequence[Skipped]) -> Iterator[tuple[str, str]]:
    """Reasons by how many partitions they keep; the rare ones together."""
    reasons = Counter(s.reason for s in skipped)
    common = reasons.most_common(REASONS_SHOWN)
    for reason, number in common:
        yield count(number), reason
    if others := len(skipped) - sum(number for _, number in common):
        yield count(others), f"{counted(len(reasons) - len(common), 'other reason')} (--json has them all)"


def _counted_reasons(rows: Iterator[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(ratio=1)
    for number, reason in rows:
        grid.add_row(number, Text(printable(reason)))
    return grid
