"""Rewrites of manifests, statistics and tags as rich text: what was done, or would be, in one line, then the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.manifests import ManifestReads, ManifestsRecord
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.maintenance.statistics import StatisticsRecord
from neve.maintenance.tags import TagsRecord
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, moment, printable, share, took
from neve.render.record_text import RecordText, arrow
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted, format_seconds

Fact = tuple[str, str]
"""A name and a value on the page."""
Shown = TypeVar("Shown", bound=MaintenanceRecord)


def _shown(
    record: type[Shown],
    operation: Operation,
    did: Callable[[Shown], str],
    facts: Callable[[Shown], Iterable[Fact]],
    cell: Callable[[Mapping[str, Any]], str],
) -> RecordText:
    """Shows a record by what was done, as in `rewrite 3 manifests into about 1` for a dry run, and by its own facts."""

    def text(record: Shown) -> RenderableType:
        lines = [Text(printable(record.table), style="bold"), Text(line(record), style=STYLES[record.outcome])]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        for name, value in (*facts(record), *_run_facts(record)):
            grid.add_row(name, printable(value))
        shown: list[RenderableType] = [Text(), Padding(grid, INDENT)] if grid.row_count else []
        return Tidy(Stack(*lines, *shown, *not_due_section(record.not_due)))

    def line(record: Shown) -> str:
        if record.outcome is RunOutcome.NOTHING_TO_DO:
            return f"Nothing to do: {printable(record.reason or '')}"
        if record.outcome is RunOutcome.FAILED:
            return f"Failed after {took(record)}: {printable(record.reason or '')}"
        in_time = "" if record.dry_run else f" in {took(record)}"
        return f"{'Would ' if record.dry_run else ''}{did(record)}{in_time}"

    return RecordText(record, (operation.value,), text, line, cell)


def _run_facts(record: MaintenanceRecord) -> Iterator[Fact]:
    if record.outcome is not RunOutcome.DONE or record.dry_run:
        return
    yield "id", record.recorded_id
    yield "started", moment(record.started_ms)
    if record.snapshots:
        yield "snapshot", " → ".join(str(snapshot) for snapshot in (record.snapshot_before, *record.snapshots))


def _rewrote_manifests(record: ManifestsRecord) -> str:
    would = record.dry_run
    about = "about " if would else ""
    numbers = f"{counted(record.manifests_replaced, 'manifest')} into {about}{count(record.manifests_written)}"
    return f"{'rewrite' if would else 'Rewrote'} {numbers}"


def _counted_values(record: StatisticsRecord) -> str:
    parts = [f"the values of {counted(len(record.columns), 'column')}"] if record.columns else []
    parts += ["the rows of each partition"] if record.partitions else []
    return f"{'count' if record.dry_run else 'Counted'} {' and '.join(parts)}"


def _changed_tags(record: TagsRecord) -> str:
    would = record.dry_run
    parts = [f"{'make' if would else 'made'} {counted(len(record.created), 'tag')}"] if record.created else []
    parts += [f"{'drop' if would else 'dropped'} {counted(len(record.dropped), 'tag')}"] if record.dropped else []
    told = " and ".join(parts)
    return told if would else told.capitalize()


def _manifests(record: ManifestsRecord) -> Iterator[Fact]:
    if record.outcome is RunOutcome.DONE:
        yield from _reads(record)
    if record.set_aside:
        yield "set aside", f"{counted(record.set_aside, 'file')} in the quarantine, written for this and not used"


def _reads(record: ManifestsRecord) -> Iterator[Fact]:
    before, after = record.before, record.after
    if before is None or after is None:
        return
    yield "files in them", count(record.files)
    if record.by:
        yield "sorted by", ", ".join(record.by)
    yield "opened by a query", f"{count(before.whole)} → {count(after.whole)} of the whole table"
    if before.one is not None and after.one is not None:
        yield "", f"{before.one:,.1f} → {after.one:,.1f} for one value of {record.by[0]}"
    yield "planning", f"{_seconds(before)} → {_seconds(after)} of one core, predicted"


def _seconds(reads: ManifestReads) -> str:
    return format_seconds(reads.seconds)


def _statistics(record: StatisticsRecord) -> Iterator[Fact]:
    if record.outcome is not RunOutcome.DONE:
        return
    if record.changed is not None:
        yield "changed since", f"{share(record.changed)} of the rows"
    if record.dry_run:
        yield "columns", ", ".join(record.columns) or "none"
    for distinct in record.distinct:
        yield distinct.column, "not known" if distinct.values is None else f"about {count(distinct.values)} different values"
    for file in record.files:
        yield "file", file.path


def _tags(record: TagsRecord) -> Iterator[Fact]:
    for title, tags in (("made", record.created), ("dropped", record.dropped)):
        for place, tag in enumerate(tags):
            yield title if place == 0 else "", f"{tag.name} at snapshot {tag.snapshot_id}"
    if record.kept:
        yield "kept", ", ".join(record.kept)
    if record.taken:
        yield "taken", f"{', '.join(record.taken)}: a branch of others has that name"


RECORDS = (
    _shown(
        ManifestsRecord,
        Operation.MANIFESTS,
        _rewrote_manifests,
        _manifests,
        lambda stored: arrow(stored["manifests_replaced"], stored["manifests_written"], "manifest"),
    ),
    _shown(
        StatisticsRecord,
        Operation.STATS,
        _counted_values,
        _statistics,
        lambda stored: counted(len(stored["columns"]), "column"),
    ),
    _shown(
        TagsRecord,
        Operation.TAGS,
        _changed_tags,
        _tags,
        lambda stored: f"{count(len(stored['created']))} made, {count(len(stored['dropped']))} dropped",
    ),
)
