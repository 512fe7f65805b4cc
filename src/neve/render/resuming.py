"""A dry run of `neve resume` as rich text: one line, then the groups by what would be done with them. Called by the CLI."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.render.bars import Tidy
from neve.render.phrases import FROM_CACHE, count, headed, moment, printable
from neve.render.run import GROUPS_SHOWN, SHORT_ID
from neve.render.text import INDENT
from neve.rewrite.record import GroupState
from neve.rewrite.remaining import NextStep, Remaining, RemainingGroup
from neve.table.units import counted, format_bytes


def remaining_text(left: Remaining) -> RenderableType:
    """The whole page."""
    lines = Text(headed(left.table, left.branch), style="bold")
    lines.append(f"\n{remaining_line(left)}", style="not bold")
    basis = [f"Run {left.run_id}, started {moment(left.started_ms)}", *([FROM_CACHE] if left.metadata_from_cache else [])]
    lines.append(f"\n{' · '.join(basis)}", style="dim")
    return Tidy(Stack(lines, Text(), Padding(_groups(left), INDENT)))


def remaining_line(left: Remaining) -> str:
    """What would be done, in one line."""
    commit, rewrite = left.of(NextStep.COMMIT), left.of(NextStep.REWRITE)
    done, total = len(left.in_state(GroupState.COMMITTED)), counted(len(left.groups), "group")
    if not commit and not rewrite:
        return f"Run {left.run_id[:SHORT_ID]} has nothing left to do: {count(done)} of {total} committed; a resume ends it"
    steps = [f"commit {counted(len(commit), 'group')}"] if commit else []
    steps += [f"rewrite {counted(len(rewrite), 'group')} ({_input(rewrite)})"] if rewrite else []
    return f"A resume would {' and '.join(steps)}; {count(done)} of {total} committed already"


def _input(groups: Sequence[RemainingGroup]) -> str:
    files = sum(group.input_files for group in groups)
    return f"{counted(files, 'file')}, {format_bytes(sum(group.input_bytes for group in groups))}"


def _groups(left: Remaining) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for group in left.groups[:GROUPS_SHOWN]:
        step = str(group.step) if group.step is not NextStep.NONE else str(group.state)
        style = "dim" if group.step is NextStep.NONE else ""
        name = printable(group.partition) or f"group {group.group_id}"
        grid.add_row(name, Text(step, style=style), Text(printable(group.reason), style=style))
    if len(left.groups) > GROUPS_SHOWN:
        grid.add_row(f"and {count(len(left.groups) - GROUPS_SHOWN)} more", "", "")
    return grid
