"""The independent checker: whether a table shows what writers committed, and whether every file that it needs is there.

Called between and after the events of a history, while writers and Neves work. Nothing of the code under test is used.
It checks

- the head of main against the acknowledged changes; an open change is there as a whole or not at all;
- every new snapshot against its parent: a writer's snapshot differs by its change, any other snapshot shows the same rows;
- every branch and tag that was made and not dropped;
- every file of every snapshot that is in the metadata, with its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from tests.histories.lake import Lake, Listing, MissingFileError
from tests.histories.rows import MAIN, Change, Expected, Row, Versions, compare, same_rows

CHANGE = "history-change"
"""The key in a snapshot's summary that names the change."""


@dataclass
class Refs:
    """Branches and tags that writers made; None where the outcome is unknown."""

    tags: dict[str, int | None] = field(default_factory=dict)
    branches: dict[str, list[Change]] = field(default_factory=dict)
    """Changes that were acknowledged on the branch."""


@dataclass(frozen=True)
class Seen:
    """The state of the table at one moment, with what was known of the writers just before."""

    metadata: TableMetadata
    location: str
    expected: Expected
    tags: Mapping[str, int | None]
    branches: Mapping[str, tuple[Change, ...]]

    @classmethod
    def at(cls, table: Table, expected: Expected, refs: Refs | None = None) -> Seen:
        """Loads the metadata. No writer may begin or end a change meanwhile."""
        refs = refs or Refs()
        known = expected.copy(), dict(refs.tags), {name: tuple(changes) for name, changes in refs.branches.items()}
        table.refresh()
        return cls(table.metadata, table.metadata_location, *known)


@dataclass(frozen=True)
class Verdict:
    """Sentences that say what is wrong, and the outcome of open changes as the head shows it."""

    wrong: tuple[str, ...]
    committed: Mapping[int, bool]
    rows: int
    snapshots: int
    unrelated: int
    """New snapshots whose parent was expired before a check read it."""


@dataclass
class Checker:
    """Checks one table again and again; remembers the rows of every snapshot that it has read."""

    lake: Lake
    listing: Listing
    reload: Callable[[], tuple[TableMetadata, str]]
    """The newest metadata, for a file that may have been dropped since."""
    changes: Mapping[int, Change]
    """Every change that a writer began."""
    _known: dict[int, Versions] = field(default_factory=dict)

    def check(self, seen: Seen) -> Verdict:
        found, missing = self._read(seen.metadata)
        wrong = [*self._files(seen, missing), *_refs(seen, found)]
        new = [snapshot for snapshot in seen.metadata.snapshots if snapshot.snapshot_id in found]
        related = 0
        for snapshot in sorted(new, key=lambda one: one.sequence_number or 0):
            problems = self._against_parent(snapshot, found[snapshot.snapshot_id], seen.metadata)
            related += problems is not None
            wrong += problems or ()
            self._known[snapshot.snapshot_id] = {row.id: row.v for row in found[snapshot.snapshot_id]}
        head = seen.metadata.snapshot_by_name(MAIN)
        rows = found.get(head.snapshot_id, self._again(head)) if head else []
        compared = compare(seen.expected, rows)
        return Verdict((*wrong, *compared.wrong), compared.committed, len(rows), len(new), len(new) - related)

    def _again(self, head: Snapshot) -> list[Row]:
        from tests.histories.rows import row

        return [row(key, version) for key, version in self._known.get(head.snapshot_id, {}).items()]

    def _read(self, metadata: TableMetadata) -> tuple[dict[int, list[Row]], list[str]]:
        """The rows of snapshots that are new here, and files that could not be read."""
        found, missing = dict[int, list[Row]](), list[str]()
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id not in self._known:
                try:
                    found[snapshot.snapshot_id] = self.lake.rows(metadata, snapshot)
                except MissingFileError as error:
                    missing.append(str(error))
        return found, missing

    def _against_parent(self, snapshot: Snapshot, rows: list[Row], metadata: TableMetadata) -> tuple[str, ...] | None:
        """None where the parent is unknown."""
        parent = self._known.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else {}
        if parent is None:
            return None
        change = self._change(snapshot) or self._untold(snapshot, parent, rows)
        if change is None:
            return _told(snapshot, "no writer", same_rows(parent, rows))
        by = f"change {change.number} by {change.writer}"
        # pyiceberg commits one change as several snapshots, which appear together.
        children = [one for one in metadata.snapshots if one.parent_snapshot_id == snapshot.snapshot_id]
        if any(self._change(child) is change for child in children):
            shown = {row.id: row.v for row in rows if row.id in change.keys}
            return _told(snapshot, by, same_rows(change.untouched(parent) | shown, rows))
        return _told(snapshot, by, same_rows(change.applied(parent), rows))

    def _untold(self, snapshot: Snapshot, parent: Versions, rows: list[Row]) -> Change | None:
        """The DELETE that dropped whole files: Spark does not pass a snapshot's properties on to such a commit.

        It must be a change that Spark's writer began, and the snapshot must differ from its parent by exactly this change.
        """
        summary = snapshot.summary
        if summary is None or summary.operation is not Operation.DELETE or "spark.app.id" not in summary.additional_properties:
            return None
        shown = {row.id: row.v for row in rows}
        begun = list(self.changes.values())  # at once, since writers go on adding to it
        deletes = (change for change in begun if (change.writer, change.kind) == ("spark", "delete"))
        return next((one for one in deletes if one.applied(parent) == shown and len(shown) < len(parent)), None)

    def _change(self, snapshot: Snapshot) -> Change | None:
        number = (snapshot.summary.additional_properties if snapshot.summary else {}).get(CHANGE)
        return self.changes[int(number)] if number else None

    def _files(self, seen: Seen, missing: list[str]) -> list[str]:
        wrong = self._lacking(seen.metadata, seen.location)
        if not wrong and not missing:
            return []
        # What was dropped from the metadata meanwhile is nobody's loss.
        return self._lacking(*self.reload())

    def _needed_by(self, path: str, metadata: TableMetadata) -> str:
        """Which refs and how many snapshots cannot be read without the file."""
        snapshots = {one.snapshot_id for one in metadata.snapshots if path in self.lake.paths(one)}
        refs = sorted(f"{ref.snapshot_ref_type} {name}" for name, ref in metadata.refs.items() if ref.snapshot_id in snapshots)
        return f"snapshots that need it: {len(snapshots)}, refs: {', '.join(refs) or 'none'}"

    def _lacking(self, metadata: TableMetadata, location: str) -> list[str]:
        try:
            needed = self.lake.needed(metadata, location)
        except MissingFileError as error:
            return [f"file is missing: {error}"]
        there = self.listing()
        return [
            *(f"file is missing: {path}; {self._needed_by(path, metadata)}" for path in sorted(needed.keys() - there.keys())),
            *(
                f"file has {there[path]} bytes instead of {size}: {path}"
                for path, size in sorted(needed.items())
                if size is not None and path in there and there[path] != size
            ),
        ]


def _told(snapshot: Snapshot, by: str, problems: tuple[str, ...]) -> tuple[str, ...]:
    operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
    return tuple(f"snapshot {snapshot.snapshot_id} ({operation}, {by}) against its parent: {one}" for one in problems)


def _refs(seen: Seen, found: Mapping[int, list[Row]]) -> list[str]:
    refs = seen.metadata.refs
    wrong = [f"tag {name} is lost" for name, at in seen.tags.items() if at is not None and name not in refs]
    wrong += [
        f"tag {name} is at {refs[name].snapshot_id} instead of {at}"
        for name, at in seen.tags.items()
        if at is not None and name in refs and refs[name].snapshot_id != at
    ]
    for name, changes in seen.branches.items():
        if name not in refs:
            wrong.append(f"branch {name} is lost")
        elif rows := found.get(refs[name].snapshot_id):
            shown = {row.id: row.v for row in rows}
            lost = [key for change in changes for key, (_, after) in change.keys.items() if shown.get(key) != after]
            wrong += [f"branch {name} lost {len(lost)} rows of its own: {lost[:5]}"] if lost else []
    return wrong
