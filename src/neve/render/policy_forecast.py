"""What policies would do in the next hours as rich text: matches by policy, then each table with its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.render.bars import Tidy
from neve.render.phrases import moment, printable
from neve.scheduling.forecast import ExpectedRun, Forecast, OperationForecast
from neve.table.units import counted

_MOST_TIMES = 3
"""Times that are listed for one operation."""


def forecast_text(found: Forecast, *, limit: int) -> RenderableType:
    """The whole page, with at most so many tables."""
    return Tidy(Group(*_sections(found, limit)))


def _sections(found: Forecast, limit: int) -> Iterator[RenderableType]:
    yield Text(f"{moment(found.now_ms)[:16]} to {moment(found.until_ms)[:16]} UTC", style="dim")
    for name, number in found.matched.items():
        yield Text(f"policy {name} matches {counted(number, 'table')}", style="" if number else "yellow")
    if not found.matched:
        yield Text("There are no policies.")
    if found.tables:
        yield Text()
        yield _runs(found, limit)
    if len(found.tables) > limit:
        yield Text(f"and {counted(len(found.tables) - limit, 'more table')}; --json lists all", style="dim")
    if found.without_policy:
        names = ", ".join(found.without_policy[:5]) + (", ..." if len(found.without_policy) > 5 else "")
        yield Text(f"\nNo policy matches {counted(len(found.without_policy), 'table')}: {printable(names)}", style="dim")
    for name, trouble in sorted(found.troubles.items()):
        yield Text(f"{printable(name)}: {printable(trouble)}", style="red")
    yield Text(f"\n{_total(found)}")


def _runs(found: Forecast, limit: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("table", overflow="fold")
    table.add_column("operation", no_wrap=True)
    table.add_column("policy", overflow="fold")
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("when and why", overflow="fold")
    for one in found.tables[:limit]:
        if not one.operations:
            table.add_row(
                printable(one.table), "", printable(", ".join(one.policies)), "", "no operation, only knobs or limits"
            )
        for of in one.operations:
            going = [run for run in of.runs if run.held_by is None]
            table.add_row(
                printable(one.table), of.operation, of.policy, str(len(going)), Text(printable(_when(of, going, found)))
            )
    return Padding(table, 0)


def _when(of: OperationForecast, going: Sequence[ExpectedRun], found: Forecast) -> str:
    held = [run for run in of.runs if run.held_by is not None]
    parts = [of.waits_for] if of.waits_for else []
    if going:
        times = ", ".join("now" if run.at_ms == found.now_ms else moment(run.at_ms)[11:16] for run in going[:_MOST_TIMES])
        parts.append(f"{times}{', ...' if len(going) > _MOST_TIMES else ''}: {going[0].reason}")
    if held:
        parts.append(f"{counted(len(held), 'run')} held back by the day limit of {held[0].held_by}")
    return "; ".join(parts)


def _total(found: Forecast) -> str:
    runs = [run for table in found.tables for of in table.operations for run in of.runs]
    going = sum(run.held_by is None for run in runs)
    tables = sum(any(run.held_by is None for of in table.operations for run in of.runs) for table in found.tables)
    return (
        f"{counted(going, 'run')} on {counted(tables, 'table')}, if nobody writes meanwhile and every run succeeds. "
        "Writes make more runs due; how many fit beside each other is not predicted."
    )
