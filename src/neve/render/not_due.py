"""Rules that do not call for an operation as rich text: what was measured, the threshold with its knob, and when it is due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.health.not_due import NotDue
from neve.render.phrases import count, printable

INDENT = (0, 0, 0, 2)
RULES_SHOWN = 6


def not_due_section(rules: Sequence[NotDue]) -> Iterator[RenderableType]:
    """A titled table of the rules, the closest first; nothing if there are none."""
    if rules:
        several = any(rule.where for rule in rules)
        title = "When it is due, by the closest partition" if several else "When it is due"
        yield Stack(Text(), Text(title, style="bold"), Padding(not_due_table(rules), INDENT))


def not_due_table(rules: Sequence[NotDue]) -> RenderableType:
    """The rules in rows."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("checked", overflow="fold", ratio=3)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("due", overflow="fold", ratio=2)
    table.add_column("when", overflow="fold", ratio=2)
    for rule in rules[:RULES_SHOWN]:
        where = f" in {printable(rule.where)}" if rule.where else ""
        cells = (f"{printable(rule.what)}{where}", rule.measured_text, rule.threshold_text, printable(rule.when_text))
        table.add_row(*(Text(cell) for cell in cells))
    if len(rules) > RULES_SHOWN:
        table.add_row(Text(f"{count(len(rules) - RULES_SHOWN)} more (--json has them all)", style="dim"))
    return table
