"""Short lists as rich text: tables ranked by health, settings with their origins, checks with their cures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from neve.health.inspection import Inspection
from neve.render.bars import Bar, Tidy
from neve.render.phrases import band, count, printable
from neve.table.units import counted, format_bytes


class SettingRow(Protocol):
    """One setting in effect: its key, its value as people write it, and where it came from."""

    @property
    def key(self) -> str:
        """The dotted key."""
        ...

    @property
    def value(self) -> object:
        """The value in effect."""
        ...

    @property
    def origin(self) -> object:
        """The place that set it."""
        ...


class CheckRow(Protocol):
    """One check of the machine."""

    @property
    def name(self) -> str:
        """What was checked."""
        ...

    @property
    def status(self) -> str:
        """ok, warn, fail or skip."""
        ...

    @property
    def detail(self) -> str:
        """What was found."""
        ...

    @property
    def fix(self) -> str | None:
        """How to put it right."""
        ...


CHECK_SIGNS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("-", "dim")}


def ranking_text(inspections: Iterable[Inspection]) -> RenderableType:
    """Tables by health, the sickest first."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("table", overflow="fold")
    table.add_column("health", justify="right", no_wrap=True)
    table.add_column("", width=8, no_wrap=True)
    for name in ("files", "average", "deletes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("workload", no_wrap=True)
    for inspection in sorted(inspections, key=lambda i: (i.health.score, i.table)):
        verdict = band(inspection.health.score)
        table.add_row(
            Text(printable(inspection.table)),
            Text(str(inspection.health.score), style=f"bold {verdict.style}"),
            Bar(inspection.health.score / 100, verdict.style, most=8, track=True),
            *_numbers(inspection),
            str(inspection.workload.kind),
        )
    return Tidy(table)


def _numbers(i: Inspection) -> tuple[str, str, str]:
    return (
        "" if i.data_files is None else count(i.data_files),
        "" if i.average_file_bytes is None else format_bytes(i.average_file_bytes),
        "" if i.deletes is None else count(i.deletes.files),
    )


def settings_text(rows: Sequence[SettingRow]) -> RenderableType:
    """Every setting in effect and where it came from; what nobody set is dim."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for row in rows:
        untouched = str(row.origin) == "default"
        cells = (Text(row.key), Text(printable(str(row.value))), Text(printable(str(row.origin))))
        table.add_row(*cells, style="dim" if untouched else None)
    return Tidy(table)


def checks_text(checks: Sequence[CheckRow]) -> RenderableType:
    """Every check with a sign, and under each that failed how to fix it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(ratio=1, overflow="fold")
    for check in checks:
        sign, style = CHECK_SIGNS.get(str(check.status), ("?", "yellow"))
        told = Text(printable(check.detail))
        if check.fix and str(check.status) not in ("ok", "skip"):
            told.append(f"\n→ {printable(check.fix)}", style="cyan")
        table.add_row(Text(sign, style=f"bold {style}"), check.name, told)
    return Tidy(Group(table, Text(), _verdict(checks)))


def _verdict(checks: Sequence[CheckRow]) -> Text:
    failed = sum(str(check.status) == "fail" for check in checks)
    warned = sum(str(check.status) == "warn" for check in checks)
    if failed:
        return Text(f"{counted(failed, 'check')} of {len(checks)} failed.", style="bold red")
    if warned:
        return Text(f"Usable, with {counted(warned, 'warning')}.", style="yellow")
    return Text("All is well.", style="green")
