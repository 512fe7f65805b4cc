"""Rewrites of manifests, statistics and tags as rich text: what was done, or would be, in one line, then the facts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.maintenance.manifests import ManifestReads, ManifestsRecord
from neve.maintenance.record import MaintenanceRecord
from neve.maintenance.statistics import StatisticsRecord
from neve.maintenance.tags import TagsRecord
from neve.render.bars import Tidy
from neve.render.not_due import not_due_section
from neve.render.phrases import count, moment, printable, share
from neve.render.run import STYLES
from neve.render.text import INDENT
from neve.rewrite.record import RunOutcome
from neve.table.units import counted, format_seconds


def metadata_text(record: MaintenanceRecord) -> RenderableType:
    """The whole page."""
    lines = [Text(printable(record.table), style="bold"), Text(metadata_line(record), style=STYLES[record.outcome])]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(ratio=1, overflow="fold")
    for name, value in _facts(record):
        facts.add_row(name, printable(value))
    shown: list[RenderableType] = [Text(), Padding(facts, INDENT)] if facts.row_count else []
    return Tidy(Stack(*lines, *shown, *not_due_section(record.not_due)))


def metadata_line(record: MaintenanceRecord) -> str:
    """How it ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.reason or '')}"
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {format_seconds(record.seconds)}: {printable(record.reason or '')}"
    took = "" if record.dry_run else f" in {format_seconds(record.seconds)}"
    return f"{'Would ' if record.dry_run else ''}{_did(record)}{took}"


def _did(record: MaintenanceRecord) -> str:
    would = record.dry_run
    if isinstance(record, ManifestsRecord):
        about = "about " if would else ""
        numbers = f"{counted(record.manifests_replaced, 'manifest')} into {about}{count(record.manifests_written)}"
        return f"{'rewrite' if would else 'Rewrote'} {numbers}"
    if isinstance(record, StatisticsRecord):
        parts = [f"the values of {counted(len(record.columns), 'column')}"] if record.columns else []
        parts += ["the rows of each partition"] if record.partitions else []
        return f"{'count' if would else 'Counted'} {' and '.join(parts)}"
    if isinstance(record, TagsRecord):
        parts = [f"{'make' if would else 'made'} {counted(len(record.created), 'tag')}"] if record.created else []
        parts += [f"{'drop' if would else 'dropped'} {counted(len(record.dropped), 'tag')}"] if record.dropped else []
        told = " and ".join(parts)
        return told if would else told.capitalize()
    raise TypeError(f"no words for {type(record).__name__}")


def _facts(record: MaintenanceRecord) -> Iterator[tuple[str, str]]:
    if isinstance(record, TagsRecord):
        yield from _tags(record)
    if isinstance(record, ManifestsRecord):
        yield from _manifests(record) if record.outcome is RunOutcome.DONE else ()
        if record.set_aside:
            yield "set aside", f"{counted(record.set_aside, 'file')} in the quarantine, written for this and not used"
    if record.outcome is not RunOutcome.DONE:
        return
    if isinstance(record, StatisticsRecord):
        yield from _statistics(record)
    if not record.dry_run:
        yield "id", record.run_id
        yield "started", moment(record.started_ms)
        if record.snapshots:
            yield "snapshot", " → ".join(str(snapshot) for snapshot in (record.snapshot_before, *record.snapshots))


def _manifests(record: ManifestsRecord) -> Iterator[tuple[str, str]]:
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


def _statistics(record: StatisticsRecord) -> Iterator[tuple[str, str]]:
    if record.changed is not None:
        yield "changed since", f"{share(record.changed)} of the rows"
    if record.dry_run:
        yield "columns", ", ".join(record.columns) or "none"
    for distinct in record.distinct:
        yield distinct.column, "not known" if distinct.values is None else f"about {count(distinct.values)} different values"
    for file in record.files:
        yield "file", file.path


def _tags(record: TagsRecord) -> Iterator[tuple[str, str]]:
    for title, tags in (("made", record.created), ("dropped", record.dropped)):
        for place, tag in enumerate(tags):
            yield title if place == 0 else "", f"{tag.name} at snapshot {tag.snapshot_id}"
    if record.kept:
        yield "kept", ", ".join(record.kept)
    if record.taken:
        yield "taken", f"{', '.join(record.taken)}: a branch of others has that name"
