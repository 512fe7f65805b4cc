"""A run as rich text: how it ended in one line, the table before and after, what did the work, what did not land and why.

Called by the CLI's text output, for a run that has just ended and for one from the state store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neve.health.condition import Condition
from neve.health.not_due import sentences
from neve.render.bars import Tidy
from neve.render.clustering import clustering_table, clustering_title
from neve.render.not_due import not_due_section
from neve.render.options import not_applied_table
from neve.render.phrases import band, count, headed, moment, printable, sized_files, took
from neve.render.queries import queries_table
from neve.render.record_text import RecordText, arrow
from neve.render.text import INDENT
from neve.rewrite.content import ProbeResult
from neve.rewrite.group import RunKind
from neve.rewrite.record import GroupRecord, GroupState, RunOutcome, RunRecord, SnapshotExpiry
from neve.table.units import counted, format_bytes, format_seconds

GROUPS_SHOWN = 10
SHORT_ID = 8
STYLES = {
    RunOutcome.DONE: "bold green",
    RunOutcome.NOTHING_TO_DO: "bold",
    RunOutcome.PARTLY_DONE: "bold yellow",
    RunOutcome.FAILED: "bold red",
}


_DID = {RunKind.COMPACT: "compacted", RunKind.CLUSTER: "clustered"}


def record_text(record: RunRecord) -> RenderableType:
    """A run, with the table before and after it if that is known."""
    return Tidy(Stack(*_sections(record)))


def run_line(record: RunRecord) -> str:
    """How the run ended, in one line."""
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        return f"Nothing to do: {printable(record.empty_reason or 'no partition has files to rewrite now')}"
    did = f"{_DID[record.kind]} {counted(record.files_compacted, 'file')} into {count(record.files_written)}"
    in_time = f"in {took(record)}"
    lost = len(uncommitted(record))
    if record.outcome is RunOutcome.FAILED:
        return f"Failed after {took(record)}: no group of {count(len(record.groups))} was committed"
    if record.outcome is RunOutcome.PARTLY_DONE:
        some = f"{counted(lost, 'group')} of {count(len(record.groups))}"
        return f"Partly done: {did} {in_time}; {some} not committed{_proof(record)}"
    if not record.files_compacted:
        return "Nothing left to do: others rewrote the same files meanwhile"
    return f"{did.capitalize()} {in_time}{_proof(record)}"


def uncommitted(record: RunRecord) -> tuple[GroupRecord, ...]:
    """The groups that did not land."""
    return tuple(group for group in record.groups if group.state is not GroupState.COMMITTED)


def _proof(record: RunRecord) -> str:
    landed = [group for group in record.groups if group.state is GroupState.COMMITTED]
    if landed and all(group.proof is not None and group.proof.holds for group in landed):
        return f"; every row accounted for ({counted(record.rows, 'row')})"
    return ""


def _sections(record: RunRecord) -> Iterator[RenderableType]:
    yield Text(headed(record.table, record.branch), style="bold")
    yield Text(run_line(record), style=STYLES[record.outcome])
    if record.incident is not None:
        yield Text(printable(record.incident), style="bold red")
    if record.outcome is not RunOutcome.NOTHING_TO_DO:
        yield from _before_and_after(record)
    if record.expiry is not None:
        yield _titled("Expired snapshots", _expiry(record.expiry))
    if record.queries:
        yield _titled("Queries", queries_table(record.queries))
    if record.probe is not None:
        yield _titled("Probe query", _probe(record.probe))
    if record.kernels:
        yield _titled("Kernels", _kernels(record))
    if record.not_applied:
        yield _titled("Options not applied", not_applied_table(record.not_applied))
    if lost := uncommitted(record):
        yield _titled(_lost_title(lost), _lost(lost))
    if record.outcome is not RunOutcome.NOTHING_TO_DO:
        yield _titled("Run", _facts(record))
    yield from not_due_section(record.not_due)


def _before_and_after(record: RunRecord) -> Iterator[RenderableType]:
    if record.before is not None and record.after is not None:
        yield _titled("Before and after", _conditions(record.before, record.after))
        if record.before.clustering is not None:
            before, after = record.before.clustering, record.after.clustering
            yield _titled(clustering_title(before), clustering_table(before, after))


def _titled(title: str, body: RenderableType) -> RenderableType:
    return Stack(Text(), Text(title, style="bold"), Padding(body, INDENT))


def _conditions(before: Condition, after: Condition) -> RenderableType:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", style="dim", no_wrap=True)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    for label, then, now in (
        ("data files", count(before.data_files), count(after.data_files)),
        ("average size", format_bytes(before.average_file_bytes), format_bytes(after.average_file_bytes)),
        ("total size", format_bytes(before.data_bytes), format_bytes(after.data_bytes)),
        ("small files", count(before.small_files), count(after.small_files)),
        ("delete files", count(before.delete_files), count(after.delete_files)),
    ):
        table.add_row(label, then, now)
    table.add_row("health", *(Text(str(score), style=f"bold {band(score).style}") for score in (before.health, after.health)))
    return table


def _kernels(record: RunRecord) -> RenderableType:
    """Which kernel did how many groups, and below each why those before it would not."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    for kernel, number in sorted(record.kernels.items(), key=lambda item: (-item[1], item[0])):
        refusals = Counter(refusal for group in record.groups if group.kernel is kernel for refusal in group.refusals)
        told = Text(counted(number, "group"))
        for refusal, times in refusals.most_common(3):
            told.append(f"\n{printable(refusal)}" + (f" ({count(times)} times)" if times > 1 else ""), style="dim")
        grid.add_row(Text(str(kernel)), told)
    return grid


def _expiry(expiry: SnapshotExpiry) -> RenderableType:
    if expiry.outcome is RunOutcome.FAILED or expiry.run_id is None:
        style = "yellow" if expiry.outcome is RunOutcome.FAILED else ""
        when = f". {sentences(expiry.not_due)}" if expiry.not_due else ""
        return Text(printable(f"none: {expiry.reason or ''}{when}"), style=style)
    files = sized_files(expiry.files, expiry.size_bytes, expiry.files_without_size)
    needless = f"; {files} are no longer needed" if expiry.files else ""
    reason = f", but {printable(expiry.reason)}" if expiry.reason else ""
    style = "yellow" if expiry.outcome is RunOutcome.PARTLY_DONE else ""
    return Text(f"{count(expiry.snapshots)}{reason}{needless} (run {expiry.run_id[:SHORT_ID]})", style=style)


def _probe(probe: ProbeResult) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    told = {True: Text("equal", style="green"), False: Text("DIFFERENT", style="bold red"), None: Text("not comparable")}
    answer = told[probe.equal].append(f", {probe.note}" if probe.note else f" ({counted(probe.rows, 'row')})", style="not bold")
    times = Text(f"{format_seconds(probe.seconds_before)} before, {format_seconds(probe.seconds_after)} after")
    if probe.slower:
        times.append("; slower by more than a fifth", style="yellow")
    grid.add_row("query", Text(printable(probe.sql)))
    grid.add_row("answer", answer)
    grid.add_row("time", times)
    return grid


def _lost_title(lost: Sequence[GroupRecord]) -> str:
    some = f", the first {GROUPS_SHOWN}" if len(lost) > GROUPS_SHOWN else ""
    return f"{counted(len(lost), 'group')} not committed{some}"


def _lost(lost: Sequence[GroupRecord]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for group in lost[:GROUPS_SHOWN]:
        style = "dim" if group.state is GroupState.SUPERSEDED else "yellow"
        grid.add_row(
            printable(group.partition) or f"group {group.group_id}",
            Text(str(group.state), style=style),
            Text(printable(group.reason)),
        )
    return grid


def _facts(record: RunRecord) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("id", record.run_id)
    grid.add_row("started", moment(record.started_ms))
    if record.resumed_ms is not None:
        grid.add_row("resumed", moment(record.resumed_ms))
    grid.add_row("read", f"{format_bytes(record.bytes_read)}, wrote {format_bytes(record.bytes_written)}")
    grid.add_row("snapshot", _snapshots(record))
    return grid


def _snapshots(record: RunRecord) -> str:
    return " → ".join([str(record.snapshot_before), *(str(snapshot) for snapshot in record.snapshots)])


RECORD = RecordText(
    RunRecord,
    tuple(kind.value for kind in RunKind),
    record_text,
    run_line,
    lambda stored: arrow(stored["files_compacted"], stored["files_written"], "file"),
)
