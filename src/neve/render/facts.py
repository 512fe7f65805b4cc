"""An inspection as a short list of labelled lines, for text and page alike. What was not looked at is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote

from neve.health.inspection import DeleteCounts, Finding, Inspection, RowGroups
from neve.health.not_due import sentences
from neve.render.phrases import FROM_CACHE, ago, count, printable, share
from neve.table.state import MAIN, RefKind
from neve.table.units import averaged, counted, format_bytes

ROW_GROUP_SOURCES = {
    "records": "our records",
    "split-offsets": "split offsets",
    "footers": "footers",
    "mixed": "several sources",
}


@dataclass(frozen=True)
class Fact:
    """One labelled line."""

    label: str
    value: str


def facts(inspection: Inspection) -> tuple[Fact, ...]:
    """Everything worth a line, in reading order."""
    return tuple(Fact(label, "; ".join(parts)) for label, tell in _LINES.items() if (parts := list(tell(inspection))))


def headline(inspection: Inspection) -> str:
    """Format, columns and partitioning in one line."""
    parts = [f"Iceberg v{inspection.format_version}", counted(inspection.columns, "column"), _partitioning(inspection)]
    return " · ".join(parts)


def freshness(inspection: Inspection) -> str:
    """Which snapshot was looked at, how old it is, and how deep the look went; and whether storage was read."""
    source = [FROM_CACHE] if inspection.metadata_from_cache else []
    if inspection.snapshot_id is None:
        return " · ".join(["no snapshot yet", f"depth {inspection.depth}", *source])
    parts = [f"snapshot {inspection.snapshot_id}"]
    if inspection.workload.last_write_ms is not None:
        parts.append(f"last write {ago(inspection.workload.last_write_ms, inspection.inspected_at_ms)}")
    return " · ".join([*parts, f"depth {inspection.depth}", *source])


def _partitioning(inspection: Inspection) -> str:
    text = printable(inspection.partitioning)
    told = text if text == "unpartitioned" else f"partitioned by {text}"
    return f"{told} ({counted(inspection.specs, 'spec')})" if inspection.specs > 1 else told


def _files(i: Inspection) -> Iterator[str]:
    if i.data_files is None:
        return
    told = [counted(i.data_files, "data file")]
    told += [format_bytes(i.data_bytes)] if i.data_bytes is not None else []
    told += [counted(i.rows, "row")] if i.rows is not None else []
    yield ", ".join(told)
    if i.formats and set(i.formats) != {"parquet"}:
        yield ", ".join(f"{count(n)} {printable(name)}" for name, n in sorted(i.formats.items()))


def _average(i: Inspection) -> Iterator[str]:
    if i.average_file_bytes is not None and i.data_files:
        yield f"{format_bytes(i.average_file_bytes)}, target {format_bytes(i.target_file_size_bytes)}"


def _small(i: Inspection) -> Iterator[str]:
    if i.small_files is None or not i.data_files:
        return
    of_all = f" ({share(i.small_file_share)})" if i.small_file_share is not None else ""
    yield f"{counted(i.small_files, 'file')}{of_all} below {format_bytes(i.small_file_threshold_bytes)}"
    if i.fragments is not None:
        yield counted(i.fragments, "fragment")


def _deletes(i: Inspection) -> Iterator[str]:
    if i.deletes is None:
        return
    yield ", ".join(delete_kinds(i.deletes)) or "none"
    if i.deletes.files and i.duplicate_ratio is not None:
        yield f"duplicate ratio {share(i.duplicate_ratio)}"


def delete_kinds(deletes: DeleteCounts) -> list[str]:
    """The kinds that occur, each with its files and rows."""
    kinds = (
        (deletes.position_files, deletes.position_rows, "position file"),
        (deletes.equality_files, deletes.equality_rows, "equality file"),
        (deletes.vectors, deletes.vector_rows, "deletion vector"),
    )
    return [f"{counted(files, kind)} ({counted(rows, 'row')})" for files, rows, kind in kinds if files]


def _row_groups(i: Inspection) -> Iterator[str]:
    groups: RowGroups | None = i.row_groups
    if groups is None or not groups.files_known:
        return
    known = counted(groups.files_known, "file")
    of_all = known if groups.files_known == i.data_files or i.data_files is None else f"{known} of {count(i.data_files)}"
    *others, last = (ROW_GROUP_SOURCES[source] for source in groups.sources or (groups.source,))
    told = f"from {', '.join(others)} and {last}" if others else f"from {last}"
    yield f"{count(groups.row_groups)} in {of_all}, {format_bytes(groups.average_bytes)} on average ({told})"
    if groups.files_with_small_groups:
        yield f"small in {counted(groups.files_with_small_groups, 'file')}"


def _sorting(i: Inspection) -> Iterator[str]:
    if i.sort_order is None or not i.sort_order.fields:
        return
    yield ", ".join(printable(f) for f in i.sort_order.fields)
    if i.sorted_files is not None and i.data_files:
        yield f"{count(i.sorted_files)} of {counted(i.data_files, 'file')} written in that order"


def _manifests(i: Inspection) -> Iterator[str]:
    m = i.manifests
    if m is None:
        return
    deletes = f" and {count(m.delete_manifests)} of deletes" if m.delete_manifests else ""
    yield f"{count(m.data_manifests)} of data{deletes}, {format_bytes(m.bytes)}, {averaged(m.average_files, 'file')} each"


def _snapshots(i: Inspection) -> Iterator[str]:
    oldest = "" if i.oldest_snapshot_ms is None else f", oldest {ago(i.oldest_snapshot_ms, i.inspected_at_ms)}"
    yield f"{count(i.snapshots)}{oldest}"


def _refs(i: Inspection) -> Iterator[str]:
    branches = [printable(r.name) for r in i.refs if r.kind is RefKind.BRANCH]
    tags = [printable(r.name) for r in i.refs if r.kind is RefKind.TAG]
    if branches and branches != ["main"]:
        yield f"{counted(len(branches), 'branch', 'branches')}: {_named(branches)}"
    if tags:
        yield f"{counted(len(tags), 'tag')}: {_named(tags)}"


def _named(names: list[str], limit: int = 5) -> str:
    rest = [f"{count(len(names) - limit)} more"] if len(names) > limit else []
    return ", ".join(names[:limit] + rest)


def _metadata(i: Inspection) -> Iterator[str]:
    parts = [format_bytes(i.metadata_bytes)] if i.metadata_bytes is not None else []
    parts.append(f"{counted(i.metadata_log_entries, 'version')} kept in its log")
    parts += [counted(i.statistics_files, "statistics file")] if i.statistics_files else []
    yield ", ".join(parts)


def _clustering(i: Inspection) -> Iterator[str]:
    if i.clustering is None:
        return
    yield f"by {printable(i.clustering.layout)}"
    yield f"{depth(i.clustering.depth)} files deep on average, {depth(i.clustering.worst_depth)} at worst"


def depth(files: float) -> str:
    """`1.4`, `64`: so many files hold the same values."""
    return f"{files:,.1f}" if files < 9.95 else f"{files:,.0f}"


def clustering_advice(i: Inspection) -> str:
    """The command for a clustering run and what it would rewrite, or why none is advised."""
    if i.clustering is None:
        return ""
    if not i.clustering.advised:
        return printable(f"Clustering is not advised. {sentences(i.clustering.not_due)}")
    files, size = counted(i.clustering.run_files, "file"), format_bytes(i.clustering.run_bytes)
    command = f"`neve cluster {quote(i.table)} --by {quote(i.clustering.layout)}{_option(i.branch)}`"
    return f"A run would rewrite {files} ({size}): {printable(command)}"


_BRANCHED = frozenset({"cluster", "compact", "deletes convert", "deletes prune"})
"""Operations that work on any branch; the others concern the whole table."""
_COMMANDS = {
    "cluster": "`neve cluster TABLE`",
    "compact": "`neve compact TABLE`",
    "deletes convert": "`neve deletes convert TABLE`",
    "deletes prune": "`neve deletes prune TABLE`",
    "expire": "`neve expire TABLE`",
    "manifests": "`neve manifests TABLE`",
}
"""Written out, so that a test can find and run each."""


def fix_text(finding: Finding, table: str, branch: str = MAIN) -> str:
    """What to do about a finding, with the command that does it on the branch that was looked at."""
    does = f"{finding.fix} ({_COMMANDS[finding.operation]})" if finding.operation else finding.fix
    option = _option(branch) if finding.operation in _BRANCHED else ""
    return does.replace(" TABLE`", f" {quote(table)}{option}`")


def _option(branch: str) -> str:
    return "" if branch == MAIN else f" --branch {quote(branch)}"


def _workload(i: Inspection) -> Iterator[str]:
    evidence = f": {printable(i.workload.evidence)}" if i.workload.evidence else ""
    yield f"{i.workload.kind}{evidence}"


_LINES: dict[str, Callable[[Inspection], Iterator[str]]] = {
    "Files": _files,
    "Average": _average,
    "Small": _small,
    "Deletes": _deletes,
    "Row groups": _row_groups,
    "Sort order": _sorting,
    "Clustering": _clustering,
    "Workload": _workload,
    "Manifests": _manifests,
    "Snapshots": _snapshots,
    "Refs": _refs,
    "Metadata": _metadata,
}
