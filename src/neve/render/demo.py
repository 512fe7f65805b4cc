"""What the demo's compactions were good for: the tables before and after in one list, and queries in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from neve.render.bars import Tidy
from neve.render.phrases import band, count, printable
from neve.render.run import run_line
from neve.rewrite.record import RunOutcome, RunRecord
from neve.table.units import counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Query:
    """One query over a table, run before and after its compaction; times are as they were."""

    name: str
    table: str
    before_seconds: float
    after_seconds: float
    equal: bool


@dataclass(frozen=True)
class DemoCompaction:
    """One table's compaction with the queries around it."""

    record: RunRecord
    queries: tuple[Query, ...]

    @property
    def complaints(self) -> list[str]:
        """What should not have happened, in words."""
        run = self.record
        unfinished = [] if run.outcome is RunOutcome.DONE else [f"{printable(run.table)}: {run_line(run)}"]
        return unfinished + [f"Results differ: {q.name} on {printable(q.table)}" for q in self.queries if not q.equal]


def compactions_text(compactions: Sequence[DemoCompaction]) -> RenderableType:
    """Both lists."""
    parts: list[RenderableType] = [Text("\nCompacted", style="bold"), _tables([c.record for c in compactions])]
    if done := [c.record for c in compactions if c.record.outcome is RunOutcome.DONE]:
        parts.append(Text(_together(done)))
    if queries := [query for compaction in compactions for query in compaction.queries]:
        parts += [Text("\nThe same queries before and after, in one warm Spark session", style="bold"), _queries(queries)]
    return Tidy(Stack(*parts))


def _together(runs: Sequence[RunRecord]) -> str:
    rows, took = sum(run.rows for run in runs), format_seconds(sum(run.elapsed_seconds or run.seconds for run in runs))
    return f"Every row accounted for before its commit ({counted(rows, 'row')}); {counted(len(runs), 'run')} in {took}."


def _tables(records: Sequence[RunRecord]) -> RenderableType:
    table = _plain_table()
    table.add_column("table", overflow="fold")
    for name in ("files", "average", "deletes", "health"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for record in records:
        before, after = record.before, record.after
        if before is None or after is None:
            continue
        table.add_row(
            Text(printable(record.table)),
            _change(count(before.data_files), count(after.data_files)),
            _change(format_bytes(before.average_file_bytes), format_bytes(after.average_file_bytes)),
            _change(count(before.delete_files), count(after.delete_files)),
            Text(_change(str(before.health), str(after.health)), style=f"bold {band(after.health).style}"),
            ", ".join(record.kernels),
        )
    return table


def _queries(queries: Sequence[Query]) -> RenderableType:
    table = _plain_table()
    table.add_column("query", overflow="fold")
    table.add_column("table", overflow="fold")
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for query in queries:
        verdict = Text("equal", style="green") if query.equal else Text("DIFFERENT", style="bold red")
        times = (format_seconds(query.before_seconds), format_seconds(query.after_seconds))
        table.add_row(Text(query.name), Text(printable(query.table)), *times, verdict)
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)


def _change(before: str, after: str) -> str:
    return f"{before} → {after}"
