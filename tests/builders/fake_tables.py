"""An Iceberg table in memory that accepts and rejects commits by the rules of Iceberg, and fails as a test asks.

`FakeTable` is the table with its history, `FakeWriter` one client's view of it (`ports.TableWriter`), `FakeEngine` writes files
(`ports.Engine`). Rows are numbers, each of which is its own key; what readers see is computed by the specification's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from neve.commit.late_deletes import WrittenGroup
from neve.errors import CatalogUnreachableError, CommitConflictError, CommitUnknownError, StateError, TableGoneError
from neve.maintenance.quarantine import Candidate, FateChange, Quarantined
from neve.policy.model import Policy
from neve.rewrite.equality_rows import ResolveDelete, ResolvedFile, ResolveInput
from neve.rewrite.group import Tier
from neve.rewrite.live_files import EQUALITY, Ancestor, DataFile, DeleteKey, LiveFile, delete_key
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.rewrite.work_order import Counted, FailedOrder, Metrics, OpenedFile, OutputFile, WorkOrder, WorkResult
from neve.table.positions import Longs, PositionMap, Runs
from neve.table.state import Snapshot
from tests.builders.files import make_files
from tests.builders.table_states import make_state

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}


class Kind(StrEnum):
    POSITION = "position"
    EQUALITY = "equality"
    VECTOR = "vector"


@dataclass(frozen=True)
class Data:
    """A data file; its rows are in `FakeTable.contents`."""

    path: str
    partition: str
    number: int
    first_row_id: int | None = None


@dataclass(frozen=True)
class Delete:
    """A delete file. `rows` are what it deletes; those by position name the one file they are in."""

    key: DeleteKey
    kind: Kind
    partition: str
    number: int
    rows: frozenset[int]
    target: str | None = None

    def applies_to(self, file: Data) -> bool:
        if self.kind is Kind.EQUALITY:
            return self.partition == file.partition and self.number > file.number
        return self.target == file.path and self.number >= file.number


@dataclass(frozen=True)
class Version:
    """One snapshot, whole."""

    snapshot_id: int
    parent_id: int | None
    number: int
    operation: str
    summary: Mapping[str, str]
    data: Mapping[str, Data]
    deletes: Mapping[DeleteKey, Delete]
    removed_deletes: Mapping[DeleteKey, int]
    timestamp_ms: int = 0

    def deletes_of(self, file: Data) -> list[Delete]:
        return [delete for delete in self.deletes.values() if delete.applies_to(file)]


EMPTY = Version(0, None, 0, "none", {}, {}, {}, {})


@dataclass
class FakeTable:
    """The truth. Every method is a commit of somebody, on the newest state."""

    format_version: int = 2
    uuid: str | None = None
    """None, as for very old tables, unless a test is about it."""
    schema_id: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    history: dict[int, Version] = field(default_factory=dict)
    head: int | None = None
    last_number: int = 0
    contents: dict[str, frozenset[int]] = field(default_factory=dict)
    delete_contents: dict[DeleteKey, Delete] = field(default_factory=dict)
    """Every delete file that was ever written, committed or not."""
    names: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))
    gone: str | None = None
    """How the table was lost to whoever had loaded it: dropped, renamed or replaced by another one."""
    new_name: str | None = None
    """Where it is found after a rename."""
    now_ms: int = 0
    """What a clock shows to those who commit."""

    @property
    def now(self) -> Version:
        return EMPTY if self.head is None else self.history[self.head]

    def visible(self, snapshot_id: int | None = None) -> list[int]:
        """Every row that a reader sees, as often as it sees it."""
        version = self.now if snapshot_id is None else self.history[snapshot_id]
        rows: list[int] = []
        for file in version.data.values():
            gone = {row for delete in version.deletes_of(file) for row in delete.rows}
            rows += self.contents[file.path] - gone
        return sorted(rows)

    def append(self, *rows: int, partition: str = "p") -> str:
        path = f"/t/data/{partition}/{next(self.names)}.parquet"
        self.contents[path] = frozenset(rows)
        self._commit("append", added=[Data(path, partition, self._next_number(), self._row_id())])
        return path

    def delete_positions(self, path: str, *rows: int, operation: str = "delete") -> None:
        """A position delete of these rows, or in v3 the file's new vector, which takes the place of the one before."""
        partition = self.now.data[path].partition
        if self.format_version < 3:
            self._delete(Kind.POSITION, partition, rows, target=path, operation=operation)
            return
        before = [d for d in self.now.deletes_of(self.now.data[path]) if d.kind is Kind.VECTOR]
        known = {row for delete in before for row in delete.rows}
        replaces = [d.key for d in before]
        self._delete(Kind.VECTOR, partition, [*known, *rows], target=path, replaces=replaces, operation=operation)

    def delete_equal(self, *rows: int, partition: str = "p", operation: str = "delete", number: int | None = None) -> None:
        """An equality delete; a replace commit may give it a number of the past."""
        self._delete(Kind.EQUALITY, partition, rows, operation=operation, number=number)

    def upsert(self, old: int, new: int, partition: str = "p") -> None:
        """What a CDC writer commits: an equality delete and a data file at once, of one number."""
        path = f"/t/data/{partition}/{next(self.names)}.parquet"
        self.contents[path] = frozenset([new])
        key = (f"/t/data/{partition}/{next(self.names)}-deletes", 0)
        delete = Delete(key, Kind.EQUALITY, partition, self._next_number(), frozenset([old]))
        self.delete_contents[key] = delete
        self._commit("overwrite", added=[Data(path, partition, self._next_number(), self._row_id())], new_deletes=[delete])

    def rewrite_position_deletes(self, path: str) -> None:
        """A replace commit that adds deletes: the same rows under another name."""
        before = [d for d in self.now.deletes_of(self.now.data[path]) if d.kind is Kind.POSITION]
        rows = {row for delete in before for row in delete.rows}
        number = max((d.number for d in before), default=self.now.number)
        self._delete(
            Kind.POSITION,
            self.now.data[path].partition,
            rows,
            target=path,
            operation="replace",
            number=number,
            replaces=[d.key for d in before],
        )

    def rewrite_equality_deletes(self, partition: str) -> None:
        """A replace commit that adds deletes of the past: those of one number and partition under another name."""
        known = [d for d in self.now.deletes.values() if d.kind is Kind.EQUALITY and d.partition == partition]
        if known:
            number = known[0].number
            same = [d for d in known if d.number == number]
            rows = {row for delete in same for row in delete.rows}
            self._delete(Kind.EQUALITY, partition, rows, operation="replace", number=number, replaces=[d.key for d in same])

    def compact(self, *paths: str, number: int | None = None) -> str:
        """Somebody else's compaction of files of one partition, on the newest state."""
        files = [self.now.data[path] for path in paths]
        rows = {row for file in files for row in self._rows_of(file)}
        path = f"/t/data/{files[0].partition}/{next(self.names)}-theirs.parquet"
        self.contents[path] = frozenset(rows)
        self._commit("replace", added=[Data(path, files[0].partition, number or self._next_number())], removed=paths)
        return path

    def overwrite(self, path: str) -> None:
        """Somebody drops a file with its rows."""
        self._commit("overwrite", removed=[path], summary={"deleted-data-files": "1"})

    def roll_back(self, snapshot_id: int) -> None:
        self.head = snapshot_id

    def expire(self) -> None:
        """Every snapshot but the newest goes."""
        assert self.head is not None
        self.history = {self.head: self.history[self.head]}

    def upgrade(self) -> None:
        self.format_version = 3

    def rewrite(
        self,
        removed: Sequence[str],
        added: Sequence[Data],
        *,
        head: int,
        number: int | None,
        summary: Mapping[str, str],
        removed_deletes: Sequence[DeleteKey] = (),
        added_deletes: Sequence[DeleteKey] = (),
    ) -> None:
        """What Iceberg does: moves to the newest head by itself, and validates by history since `head`."""
        missing = [path for path in removed if path not in self.now.data]
        missing += [key[0] for key in removed_deletes if key not in self.now.deletes]
        if missing:
            raise CommitConflictError(f"Cannot commit the rewrite: Missing required files to delete: {missing[0]}")
        for version in self._since(head):
            if version.operation in ("overwrite", "delete"):
                self._refuse_new_deletes(version, removed, ignore_equality=number is not None)
        given = [replace(file, number=self._next_number() if number is None else number) for file in added]
        new = [replace(self.delete_contents[key], number=self._next_number()) for key in added_deletes]
        self._commit("replace", added=given, removed=removed, summary=summary, new_deletes=new, dropped=removed_deletes)

    def row_delta(
        self,
        added: Sequence[DeleteKey],
        removed: Sequence[DeleteKey],
        *,
        referenced: Iterable[str],
        head: int,
        summary: Mapping[str, str],
    ) -> None:
        """What Iceberg does: files must be live, what goes must be there, and a vector must not have got company."""
        since = list(self._since(head))
        if since and since[-1].parent_id != head:
            raise CommitConflictError("Cannot commit the deletes: Cannot determine history between starting snapshot and head")
        missing = [path for path in referenced if path not in self.now.data]
        missing += [key[0] for key in removed if key not in self.now.deletes]
        if missing:
            raise CommitConflictError(f"Cannot commit the deletes: Missing required files to delete: {missing[0]}")
        new = [replace(self.delete_contents[key], number=self._next_number()) for key in added]
        vectors = {delete.target for delete in new if delete.kind is Kind.VECTOR}
        for version in since:
            for delete in version.deletes.values():
                if delete.kind is Kind.VECTOR and delete.number == version.number and delete.target in vectors:
                    raise CommitConflictError(f"Cannot commit the deletes: Found concurrently added DV for {delete.target}")
        self._commit("delete" if new else "overwrite", new_deletes=new, dropped=removed, summary=summary)

    def _refuse_new_deletes(self, version: Version, removed: Sequence[str], *, ignore_equality: bool) -> None:
        new = [d for d in version.deletes.values() if d.number == version.number]
        for delete in new:
            hit = [path for path in removed if delete.applies_to(self.now.data[path])]
            if hit and not (ignore_equality and delete.kind is Kind.EQUALITY):
                raise CommitConflictError(f"Cannot commit the rewrite: found new delete for replaced data file: {hit[0]}")

    def _since(self, head: int) -> Iterator[Version]:
        version = self.history.get(self.head or 0)
        while version is not None and version.snapshot_id != head:
            yield version
            version = self.history.get(version.parent_id or 0)

    def _rows_of(self, file: Data) -> set[int]:
        return set(self.contents[file.path]) - {row for delete in self.now.deletes_of(file) for row in delete.rows}

    def _next_number(self) -> int:
        return self.last_number + 1

    def _row_id(self) -> int | None:
        return next(self.names) * 1000 if self.format_version >= 3 else None

    def _delete(
        self,
        kind: Kind,
        partition: str,
        rows: Iterable[int],
        *,
        target: str | None = None,
        operation: str = "delete",
        number: int | None = None,
        replaces: Sequence[DeleteKey] = (),
    ) -> None:
        key = (f"/t/data/{partition}/{next(self.names)}-deletes", 4 if kind is Kind.VECTOR else 0)
        new = Delete(key, kind, partition, number or self._next_number(), frozenset(rows), target)
        self.delete_contents[key] = new
        self._commit(operation, new_deletes=[new], dropped=replaces)

    def _commit(
        self,
        operation: str,
        *,
        added: Sequence[Data] = (),
        removed: Sequence[str] = (),
        new_deletes: Sequence[Delete] = (),
        dropped: Sequence[DeleteKey] = (),
        summary: Mapping[str, str] | None = None,
    ) -> None:
        before = self.now
        surviving = {path: file for path, file in before.data.items() if path not in removed}
        # Iceberg looks at what was there before, and not at what is being added.
        oldest = min((file.number for file in surviving.values()), default=self.last_number)
        kept = {
            key: delete
            for key, delete in before.deletes.items()
            if key not in dropped
            and not (removed and delete.number < oldest)
            and not (delete.kind is Kind.VECTOR and delete.target in removed)
        }
        gone = {key: delete.number for key, delete in before.deletes.items() if key not in kept}
        counts = {"removed-delete-files": str(len(gone))} if gone else {}
        if new_deletes:
            kept |= {delete.key: delete for delete in new_deletes}
            counts["added-delete-files"] = str(len(new_deletes))
        self.head = next(self.names)
        self.history[self.head] = Version(
            snapshot_id=self.head,
            parent_id=before.snapshot_id or None,
            number=self._next_number(),
            operation=operation,
            summary={**counts, **(summary or {})},
            data={**surviving, **{file.path: file for file in added}},
            deletes=kept,
            removed_deletes=gone,
            timestamp_ms=self.now_ms,
        )
        self.last_number += 1
        if self.format_version >= 3:
            self._give_row_ids()

    def _give_row_ids(self) -> None:
        """The first snapshot of v3 numbers the rows of every file."""
        version = self.now
        data = {
            path: file if file.first_row_id else replace(file, first_row_id=self._row_id())
            for path, file in version.data.items()
        }
        self.history[version.snapshot_id] = replace(version, data=data)


class Answer(StrEnum):
    """How the catalog answers a commit."""

    WELL = "well"
    CONFLICT = "refused"
    LOST_BEFORE = "unknown, and it did not land"
    LOST_AFTER = "unknown, and it landed"
    CONFLICT_AFTER = "refused by itself: it had landed, and was tried once more"
    HELD = "unknown, and it lands when the test says so"


class FakeWriter:
    """One client of the table. `answers` are used up, then all is well; `before_rewrite` runs between check and commit."""

    def __init__(self, table: FakeTable, *answers: Answer, before_rewrite: Sequence[Callable[[], object]] = ()) -> None:
        self.table = table
        self.answers = list(answers)
        self.before_rewrite = list(before_rewrite)
        self.refreshes_that_fail: set[int] = set()
        self.refreshes = 0
        self.sent: list[dict[str, Any]] = []
        self._held: list[tuple[int | None, Callable[[], None]]] = []
        self._load()

    def uuid(self) -> str | None:
        return self.table.uuid

    def location(self) -> str:
        return "/t"

    def metadata_location(self) -> str:
        return f"metadata of snapshot {self._head}"

    def missing(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if path not in self.table.contents}

    def refresh(self) -> None:
        self.refreshes += 1
        if self.refreshes in self.refreshes_that_fail:
            raise CatalogUnreachableError("Cannot refresh the table: 503 Service Unavailable")
        self._require_table()
        self._load()

    def follow(self) -> str | None:
        if self.table.new_name is not None:
            self.table.gone = None
        return self.table.new_name

    def _require_table(self) -> None:
        if self.table.gone is not None:
            raise TableGoneError(f"Cannot go on with c.db.t: it was {self.table.gone} during the run")

    def land(self) -> None:
        """Lets the requests that are in flight arrive; one that finds another head than it left fails where nobody listens."""
        for head, land in self._held:
            if head == self.table.head:
                with suppress(CommitConflictError):
                    land()
        self._held.clear()

    def _load(self) -> None:
        self._history, self._head = dict(self.table.history), self.table.head
        self._loaded = (self.table.format_version, self.table.schema_id)

    def head(self, branch: str = "main") -> int | None:  # noqa: ARG002
        return self._head

    def knows(self, snapshot_id: int) -> bool:
        return snapshot_id in self._history

    def shape(self) -> dict[str, int]:
        version, schema = self._loaded
        return {"format version": version, "schema": schema, "partition spec": 0, "sort order": 0}

    def properties(self) -> dict[str, str]:
        return dict(self.table.properties)

    def schema_json(self) -> dict[str, Any]:
        return SCHEMA

    def data_location(self, model: LiveFile, file_name: str) -> str:
        return f"{model.path.rpartition('/')[0]}/{file_name}"

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:  # noqa: ARG002
        if snapshot_id is None:
            return []
        version = self._history[snapshot_id]
        return [self._live(version, file) for file in version.data.values()]

    def _live(self, version: Version, file: Data) -> LiveFile:
        records = len(self.table.contents[file.path])
        described: DataFile = {
            "spec-id": 0,
            "content": "data",
            "file-path": file.path,
            "file-format": "parquet",
            "partition": [file.partition],
            "file-size-in-bytes": 1000,
            "record-count": records,
        }
        if file.first_row_id is not None:
            described["first-row-id"] = file.first_row_id
        return LiveFile(described, tuple(describe_delete(delete) for delete in version.deletes_of(file)))

    def delete_files(self, snapshot_id: int) -> list[DataFile]:
        return [describe_delete(delete) for delete in self._history[snapshot_id].deletes.values()]

    def sequence_numbers(self, snapshot_id: int) -> dict[str, int]:
        version = self._history[snapshot_id]
        return {path: file.number for path, file in version.data.items()} | {
            key[0]: delete.number for key, delete in version.deletes.items()
        }

    def schemas_json(self) -> list[dict[str, Any]]:
        return [SCHEMA]

    def ancestry(self, snapshot_id: int, until: int | None, *, most: int | None = None) -> list[Ancestor]:
        found: list[Ancestor] = []
        version = self._history.get(snapshot_id)
        while version is not None and version.snapshot_id != until and len(found) != most:
            removed = version.removed_deletes
            found.append(
                Ancestor(
                    version.snapshot_id,
                    version.parent_id,
                    version.operation,
                    version.summary,
                    version.timestamp_ms,
                    removed_deletes=lambda removed=removed: removed,  # type: ignore[misc]
                )
            )
            version = self._history.get(version.parent_id or 0)
        return found

    def rewrite(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        *,
        head: int,
        sequence_number: int | None,
        summary: Mapping[str, str],
        branch: str = "main",  # noqa: ARG002
        removed_deletes: Sequence[DataFile] = (),
        added_deletes: Sequence[DataFile] = (),
    ) -> None:
        self.sent.append({"sequence_number": sequence_number, "summary": summary, "head": head, "added": len(added)})
        if self.before_rewrite:
            self.before_rewrite.pop(0)()
        gone = [file["file-path"] for file in removed]
        new = [Data(file["file-path"], file["partition"][0], 0) for file in added]
        deletes = {
            "removed_deletes": [delete_key(file) for file in removed_deletes],
            "added_deletes": [delete_key(file) for file in added_deletes],
        }
        self._answer(head, lambda: self.table.rewrite(gone, new, head=head, number=sequence_number, summary=summary, **deletes))

    def row_delta(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        referenced: Iterable[str],
        head: int,
        summary: Mapping[str, str],
        branch: str = "main",  # noqa: ARG002
    ) -> None:
        files = list(referenced)
        self.sent.append({"added": added, "removed": removed, "referenced": files, "head": head, "summary": summary})
        if self.before_rewrite:
            self.before_rewrite.pop(0)()
        keys = [[delete_key(file) for file in deletes] for deletes in (added, removed)]
        self._answer(head, lambda: self.table.row_delta(*keys, referenced=files, head=head, summary=summary))

    def _answer(self, head: int, land: Callable[[], None]) -> None:
        answer = self.answers.pop(0) if self.answers else Answer.WELL
        if answer is Answer.CONFLICT:
            raise CommitConflictError("Cannot commit the rewrite: the table changed")
        if answer is Answer.HELD:
            self._held.append((head, land))
        if answer in (Answer.WELL, Answer.LOST_AFTER, Answer.CONFLICT_AFTER):
            land()
        if answer is Answer.CONFLICT_AFTER:
            raise CommitConflictError("Cannot commit the rewrite: Missing required files to delete")
        if answer is not Answer.WELL:
            raise CommitUnknownError("Cannot tell whether the commit landed: 502 Bad Gateway")

    def roll_back(self, snapshot_id: int, to: int, branch: str = "main") -> bool:  # noqa: ARG002
        if self.table.head != snapshot_id:
            return False
        self.table.roll_back(to)
        return True

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        return self.swap_properties({key: expected}, {key: value})

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        self._require_table()
        if any(self.table.properties.get(key) != value for key, value in expected.items()):
            return False
        kept = {key: value for key, value in self.table.properties.items() if key not in values}
        self.table.properties = kept | {key: value for key, value in values.items() if value is not None}
        return True

    def snapshots_with(self, key: str, value: str) -> list[int]:
        return [i for i, version in self._history.items() if version.summary.get(key) == value]


def describe_delete(delete: Delete) -> DataFile:
    """A delete as Iceberg's JSON has it, as far as anyone looks."""
    named = {"referenced-data-file": delete.target} if delete.target is not None else {"equality-ids": [1]}
    return {
        **named,
        "spec-id": 0,
        "partition": [delete.partition],
        "content": EQUALITY if delete.kind is Kind.EQUALITY else "position-deletes",
        "file-path": delete.key[0],
        "content-offset": delete.key[1],
        "file-format": "puffin" if delete.kind is Kind.VECTOR else "parquet",
        "file-size-in-bytes": 100,
        "content-size-in-bytes": 50,
        "record-count": len(delete.rows),
    }


class FakeDeletes:
    """Reads and writes deletes by position (`ports.DeleteFiles`); a row's position is its place among the file's rows."""

    def __init__(self, table: FakeTable) -> None:
        self.table = table
        self.written: list[DeleteKey] = []

    def positions(self, deletes: Sequence[DataFile], path: str) -> Longs:
        rows: set[int] = set()
        for described in deletes:
            delete = self.table.delete_contents[delete_key(described)]
            rows |= delete.rows if delete.target == path else set()
        return places(self.table.contents[path], rows)

    def each(self, deletes: Mapping[str, Sequence[DataFile]]) -> Iterator[tuple[str, Longs]]:
        return ((path, self.positions(of_file, path)) for path, of_file in deletes.items())

    def write(self, rows: Iterable[tuple[str, Longs]], homes: Mapping[str, DataFile], *, vectors: bool) -> list[DataFile]:
        made = []
        for path, positions in rows:
            there = sorted(self.table.contents[path])
            key = (f"{path.removesuffix('.parquet')}-deletes-{next(self.table.names)}", 4 if vectors else 0)
            delete = Delete(
                key,
                Kind.VECTOR if vectors else Kind.POSITION,
                homes[path]["partition"][0],
                0,
                frozenset(there[i] for i in positions),
                path,
            )
            self.table.delete_contents[key] = delete
            self.written.append(key)
            made.append(describe_delete(delete))
        return made


class FakeResolver:
    """Finds the rows that equality deletes remove (`ports.EqualityResolver`), into one Puffin file."""

    def __init__(self, table: FakeTable) -> None:
        self.table = table
        self.calls = 0
        self.lost: list[str] = []

    def unused(self) -> list[str]:
        given, self.lost = self.lost, []
        return given

    def resolve(
        self, data: Sequence[ResolveInput], deletes: Sequence[ResolveDelete], *, output_prefix: str, **_: Any
    ) -> list[ResolvedFile]:
        self.calls += 1
        found = []
        for i, one in enumerate(data):
            newer = [d for d in deletes if d.scope in (None, one.scope) and d.file.sequence_number > one.file.sequence_number]  # type: ignore[operator]
            keys = {row for delete in newer for row in self.table.delete_contents[delete.file.path, 0].rows}
            if rows := self.table.contents[one.file.path] & keys:
                key = (f"{output_prefix}-0.puffin", 4 + 40 * i)
                partition = one.file.path.split("/")[-2]
                self.table.delete_contents[key] = Delete(key, Kind.VECTOR, partition, 0, frozenset(rows), one.file.path)
                sizes = {"size_bytes": 100, "offset": key[1], "length": 40, "cardinality": len(rows)}
                found.append(ResolvedFile(data_path=one.file.path, path=key[0], **sizes))
        return found


def places(there: Iterable[int], rows: Iterable[int]) -> Longs:
    """Where these rows stand among all of a file's rows."""
    order = sorted(there)
    return np.array(sorted(order.index(row) for row in rows if row in order), np.int64)


def where_rows_went(inputs: Sequence[Iterable[int]], kept: Iterable[int]) -> PositionMap:
    """The map of a rewrite of files with these rows into one."""
    output = sorted(kept)
    one = np.ones(1, np.int64)
    pieces = [
        (i, Runs(np.array([at], np.int64), one), 0, output.index(row))
        for i, rows in enumerate(inputs)
        for at, row in enumerate(sorted(rows))
        if row in output
    ]
    return PositionMap.build(pieces)


class FakeQuarantine:
    """The list of files in memory (`ports.Quarantine`), as far as a run writes to it."""

    def __init__(self) -> None:
        self.recorded: dict[str, tuple[str, str, str]] = {}
        """Table uuid, run and reason by path."""
        self.is_down = False

    @property
    def paths(self) -> list[str]:
        return list(self.recorded)

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:  # noqa: ARG002
        if self.is_down:
            raise StateError("Cannot write to the state store: it does not answer")
        new = {file.path: (table_uuid, run_id, file.reason) for file in files}
        self.recorded |= new
        return len(new)

    def quarantined(self, table_uuid: str, **_: Any) -> Iterator[Quarantined]:
        raise NotImplementedError

    def settle_candidates(self, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:
        raise NotImplementedError


class Still:
    """A clock that stands."""

    def now_ms(self) -> int:
        return 10**12


def opened_as(output: OutputFile, **other: int) -> OpenedFile:
    """What a reader would find in an output that is as it was written."""
    found = {"rows": output.records, "row_groups": output.row_groups, "columns": 1, "size_bytes": output.size_bytes}
    return OpenedFile(reader="pyarrow", **found | other)


class FakeEngine:
    """Writes each order's visible rows into one file. `lost` are files of attempts that no result names."""

    def __init__(self, table: FakeTable, plan: Plan, *, failing: Iterable[int] = (), losing: Iterable[int] = ()) -> None:
        self.table, self.plan = table, plan
        self.failing, self.losing = set(failing), set(losing)
        self.lost: list[str] = []
        self.quarantine = FakeQuarantine()
        """That of whoever runs this engine."""
        self.reopened: list[int] = []
        self.after_last: Callable[[], None] = lambda: None

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        for order in orders:
            if order.group_id in self.failing:
                yield FailedOrder(group_id=order.group_id, reason="Cannot read a file: 500")
            else:
                yield self._written(order)
        self.after_last()

    def _written(self, order: WorkOrder) -> WorkResult:
        assert self.plan.snapshot_id is not None
        rows = rows_at(self.table, self.plan.snapshot_id, [file.path for file in order.inputs])
        if order.group_id in self.losing:
            rows = rows - {min(rows)}
        path = f"{order.output_prefix}-0.parquet"
        self.table.contents[path] = frozenset(rows)
        read = sum(file.records for file in order.inputs)
        metrics = {1: Metrics(values=len(rows), nulls=0)}
        output = OutputFile(path=path, size_bytes=2000, records=len(rows), row_groups=1, split_offsets=(4,), metrics=metrics)
        return WorkResult(
            order_id=order.order_id,
            group_id=order.group_id,
            inputs_digest=order.digest,
            kernel=order.kernels[-1],
            outputs=(output.seen_as(opened_as(output)),),
            rows_read=read,
            rows_dropped=read - len(rows),
            kept={1: Counted(values=len(rows), nulls=0)},
            positions=where_rows_went([self.table.contents[file.path] for file in order.inputs], rows),
            seconds=0.1,
            cpu_seconds=0.1,
            peak_memory_bytes=1,
        )

    def unused(self) -> list[str]:
        given, self.lost = self.lost, []
        return given

    def leftovers(self, prefixes: Iterable[str]) -> list[str]:
        begins = tuple(prefixes)
        return [path for path in self.table.contents if path.startswith(begins)]

    def open_outputs(self, result: WorkResult) -> WorkResult:
        self.reopened.append(result.group_id)
        return result.model_copy(update={"outputs": tuple(self._seen(output) for output in result.outputs)})

    def _seen(self, output: OutputFile) -> OutputFile:
        rows = self.table.contents.get(output.path)
        return output.seen_as("it is gone" if rows is None else opened_as(output, rows=len(rows)))


def rows_at(table: FakeTable, snapshot_id: int, paths: Iterable[str]) -> set[int]:
    """The rows of these files that were visible at a snapshot."""
    version = table.history[snapshot_id]
    rows: set[int] = set()
    for path in paths:
        file = version.data[path]
        rows |= table.contents[path] - {row for delete in version.deletes_of(file) for row in delete.rows}
    return rows


def plan_of(table: FakeTable) -> Plan:
    """The planner's own plan for this table: one group per partition, every file in it."""
    version = table.now
    partitions = sorted({file.partition for file in version.data.values()})
    rows: list[dict[str, Any]] = [
        {
            "path": file.path,
            "partition": partitions.index(file.partition),
            "records": len(table.contents[file.path]),
            "sequence_number": file.number,
        }
        for file in version.data.values()
    ]
    snapshot = Snapshot(
        snapshot_id=version.snapshot_id,
        parent_id=None,
        sequence_number=version.number,
        timestamp_ms=0,
        operation="append",
        summary={},
    )
    state = make_state(
        files=make_files(rows, partitions or [""]),
        default_sort_order_id=0,
        format_version=table.format_version,
        schema_id=table.schema_id,
        snapshot_id=version.snapshot_id,
        snapshots=(snapshot,),
        refs=(),
    )
    policy = Policy.model_validate({"min-input-files": 2})
    return plan(state, policy, now_ms=10**12, request=Request(tier=Tier.FULL, force=True))


def write_groups(table: FakeTable, plan: Plan, groups: Mapping[int, Sequence[str]]) -> list[WrittenGroup]:
    """These groups of files as an engine would have written them at the plan's snapshot."""
    assert plan.snapshot_id is not None
    known = {file.path: file for file in FakeWriter(table).scan(plan.snapshot_id)}
    written = []
    for group_id, paths in groups.items():
        rows = rows_at(table, plan.snapshot_id, paths)
        path = f"{paths[0].rpartition('/')[0]}/neve-{group_id}-{next(table.names)}.parquet"
        table.contents[path] = frozenset(rows)
        described = {**known[paths[0]].data_file, "file-path": path, "record-count": len(rows)}
        described.pop("first-row-id", None)
        went = where_rows_went([table.contents[path] for path in paths], rows)
        written.append(WrittenGroup(group_id, tuple(known[path] for path in paths), (described,) if rows else (), went))
    return written
