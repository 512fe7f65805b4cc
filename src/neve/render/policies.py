"""Policies as rich text: changes as a diff, documents in force, their log, and what holds for a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import ndiff
from shlex import quote
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.policy.changes import ChangeKind, DocumentChange, PolicyPlan
from neve.policy.document import (
    Amounts,
    Document,
    PolicyDocument,
    Schedule,
    Triggers,
    written_amounts,
    written_triggers,
)
from neve.policy.effective import OperationRule
from neve.render.bars import Tidy
from neve.render.phrases import moment, printable
from neve.scheduling.explanation import OperationOutlook, TableExplanation
from neve.settings.policy_files import policy_yaml
from neve.table.units import counted

_SIGNS = {ChangeKind.ADDED: ("+", "green"), ChangeKind.CHANGED: ("~", "yellow"), ChangeKind.REMOVED: ("-", "red")}
_LINE_STYLES = {"+": "green", "-": "red", " ": "dim"}
_CONTEXT = 2
"""Unchanged lines that are shown around each change."""
INDENT = (0, 0, 0, 2)


class StoredRow(Protocol):
    """A document in force."""

    @property
    def kind(self) -> str:
        """policy or team."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def version(self) -> int:
        """How often it was changed."""
        ...

    @property
    def changed_ms(self) -> int:
        """When it was last changed."""
        ...

    @property
    def document(self) -> Document | None:
        """What it says; None for a deletion, and where this release cannot read it."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it cannot be read."""
        ...


class VersionRow(StoredRow, Protocol):
    """A version that was applied once."""

    @property
    def changed_by(self) -> str:
        """Who applied it."""
        ...

    @property
    def source(self) -> str:
        """The files that it came from."""
        ...


def plan_text(plan: PolicyPlan, path: str, *, dry_run: bool) -> RenderableType:
    """Each change with its lines, then how many there are."""
    return Tidy(Group(*(part for one in plan.changes for part in _change(one)), *_summary(plan, path, dry_run=dry_run)))


def _change(one: DocumentChange) -> Iterator[RenderableType]:
    sign, style = _SIGNS[one.change]
    version = f" (version {one.version})" if one.version else ""
    yield Text(f"{sign} {one.kind} {one.name}{version}", style=f"bold {style}")
    if one.change is not ChangeKind.REMOVED:
        yield Padding(Text("\n").join(_diff(one.before, one.after)), (0, 0, 0, 4))


def _diff(before: Document | None, after: Document | None) -> list[Text]:
    old, new = (policy_yaml([one]).splitlines() if one is not None else [] for one in (before, after))
    lines = [line for line in ndiff(old, new) if not line.startswith("?")]
    changed = [index for index, line in enumerate(lines) if line[0] != " "]
    near = {index + step for index in changed for step in range(-_CONTEXT, _CONTEXT + 1)}
    return [
        Text(printable(lines[index]), style=_LINE_STYLES[lines[index][0]]) for index in sorted(near) if 0 <= index < len(lines)
    ]


def _summary(plan: PolicyPlan, path: str, *, dry_run: bool) -> Iterator[RenderableType]:
    numbers = ", ".join(f"{plan.count(kind)} {kind}" for kind in ChangeKind if plan.count(kind))
    same = f"{counted(plan.unchanged, 'document')} unchanged"
    if plan.changes:
        yield Text()
        yield Text(f"{'Would apply' if dry_run else 'Applied'} {counted(len(plan.changes), 'change')}: {numbers}; {same}.")
    else:
        yield Text(f"Nothing to change: {same}.")
    if plan.only_in_force:
        listed = ", ".join(plan.only_in_force[:10]) + (", ..." if len(plan.only_in_force) > 10 else "")
        removing = f"`neve policy apply -f {quote(path)} --prune`"
        yield Text(printable(f"In force and not in {path}: {listed}. They stay; {removing} removes them."), style="dim")


def policies_text(rows: Sequence[StoredRow]) -> RenderableType:
    """One line per document."""
    if not rows:
        return Text("No policies yet. `neve policy suggest` writes some for the tables that there are.")
    table = _table("kind", "name", "version", "changed", "owner", "operations", "tables")
    for row in rows:
        cells = row.kind, row.name, str(row.version), moment(row.changed_ms)[:16]
        table.add_row(*map(printable, cells), *_content(row))
    return Tidy(table)


def _content(row: StoredRow) -> tuple[Text, ...]:
    document = row.document
    if document is None:
        return Text(""), Text(""), Text(printable(row.trouble or ""), style="red")
    if not isinstance(document, PolicyDocument):
        return Text(""), Text(""), Text("")
    operations = ", ".join(choice.name for choice in document.operations) or "-"
    shown = operations if document.enabled else f"{operations} (off)"
    return Text(document.owner), Text(shown), Text(printable(", ".join(document.tables)))


def log_text(rows: Sequence[VersionRow]) -> RenderableType:
    """One line per version, the newest first."""
    if not rows:
        return Text("No policy was ever applied.")
    table = _table("when", "kind", "name", "version", "by", "from")
    for row in rows:
        is_deletion = row.document is None and row.trouble is None
        cells = moment(row.changed_ms), row.kind, row.name, f"{row.version} (removed)" if is_deletion else str(row.version)
        table.add_row(*map(printable, (*cells, row.changed_by, row.source)))
    return Tidy(table)


def explanation_text(found: TableExplanation) -> RenderableType:
    """The policies, each operation with whether it is due, the knobs with their origins, and the limits."""
    return Tidy(Group(*_explanation(found)))


def _explanation(found: TableExplanation) -> Iterator[RenderableType]:
    owner = f", owned by {found.owner}" if found.owner else ""
    yield Text(printable(found.table) + owner, style="bold")
    yield Text(f"policies, the most specific first: {', '.join(found.policies)}" if found.policies else "No policy matches.")
    how = "as the service last observed it" if found.is_of_fleet else "read just now"
    yield Text(f"{how}, {moment(found.observed_ms)}", style="dim")
    for one in found.operations:
        yield Text()
        yield from _operation(one)
    for name, policy in sorted(found.switched_off.items()):
        yield Text(f"\n{name}: switched off by policy {policy}")
    for name, policy in sorted(found.unknown_operations.items()):
        yield Text(f"\n{name}: policy {policy} names it, and this release does not have it", style="yellow")
    if found.knobs:
        yield Text("\nKnobs", style="bold")
        table = _table("key", "value", "from")
        for knob in found.knobs:
            table.add_row(*map(printable, (knob.key, knob.value, knob.origin)))
        yield Padding(table, INDENT)
    yield from _limits(found)


def _operation(one: OperationOutlook) -> Iterator[RenderableType]:
    rule = one.rule
    state = ("due now", "bold green") if one.is_due else ("not due", "bold")
    yield Text.assemble((one.operation, "bold"), ": ", state, f" (policy {rule.policy})")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, value in _facts(one):
        grid.add_row(label, Text(printable(value)))
    yield Padding(grid, INDENT)


def _facts(one: OperationOutlook) -> Iterator[tuple[str, str]]:
    rule = one.rule
    yield "why", one.reason
    if one.next_ms is not None:
        yield "next", moment(one.next_ms)
    yield "last run", moment(one.last_run_ms) if one.last_run_ms else "never"
    if rule.options:
        yield "options", ", ".join(f"{key.replace('_', '-')} {value}" for key, value in rule.options.items())
    if rule.triggers != Triggers():
        yield "triggers", _with_origins(rule, "triggers", written_triggers(rule.triggers))
    if rule.schedule != Schedule():
        origins = {origin for key, origin in rule.origins.items() if key.startswith("schedule.")}
        yield "schedule", schedule_phrase(rule.schedule) + "".join(f" ({origin})" for origin in origins)
    if rule.per_run != Amounts():
        yield "per run", _with_origins(rule, "per-run", written_amounts(rule.per_run))
    yield "target", rule.target


def _with_origins(rule: OperationRule, section: str, values: Mapping[str, Any]) -> str:
    """`commits 100, since-last-run 1 day (preset streaming)`: each value, with its origin unless that is the policy."""
    origins = {key: f" ({rule.origins[f'{section}.{key}']})" for key in values if f"{section}.{key}" in rule.origins}
    shown = {key: key if value is True else f"{key} {value}" for key, value in values.items()}
    return ", ".join(f"{text}{origins.get(key, '')}" for key, text in shown.items())


def _limits(found: TableExplanation) -> Iterator[RenderableType]:
    if not found.per_day and found.concurrency is None:
        return
    yield Text("\nLimits", style="bold")
    for limit in found.per_day:
        yield Text(f"  {limit.scope}: {amounts_phrase(limit.amounts)} per day ({limit.time_zone})")
    if found.concurrency is not None:
        yield Text(f"  team {found.owner}: {counted(found.concurrency, 'run')} at a time")


def schedule_phrase(schedule: Schedule) -> str:
    """`cron 0 2 * * *; windows mon-fri 22:00-06:00; Europe/Berlin`."""
    parts = [
        f"{name} {', '.join(getattr(schedule, name))}" for name in ("cron", "windows", "blackouts") if getattr(schedule, name)
    ]
    return "; ".join([*parts, schedule.time_zone])


def amounts_phrase(amounts: Amounts) -> str:
    """`bytes 2 TB, core-seconds 4 h, money 50`."""
    return ", ".join(f"{key} {value}" for key, value in written_amounts(amounts).items())


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in ("kind", "version", "changed", "when"))
    return table
