"""deletes: keeps a table's deletes few and cheap without rewriting data: converts, merges and prunes them.

Called by `compose`. The same for all three: which data files get one delete of their own (`core.upkeep`), what it holds, one
commit that adds these and removes what they replace. The head is looked at anew before each attempt, and deletes that came in
between are taken along; what equality deletes mean was found out once and holds, since the rows of a file do not change.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.live import EQUALITY, DataFile, DeleteKey, LiveFile, delete_key
from neve.core.model import MAIN, RUN_ID, TableName
from neve.core.positions import Longs
from neve.core.record import RunOutcome
from neve.core.upkeep import (
    Upkeep,
    UpkeepRecord,
    by_position,
    concerned,
    convertible,
    dangling,
    deletes_of,
    names_rows,
    still_resolved,
    superseded,
    targets,
)
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitUnknownError,
    StorageError,
)
from neve.flow.commit import COMMIT_ID, Retry, take_back, taken_over
from neve.flow.lease import leased
from neve.flow.resolve import resolve
from neve.flow.tools import Tools
from neve.ports import DeleteFiles

log = logging.getLogger(__name__)

_NOTHING = {
    Upkeep.CONVERT: "no equality delete applies to a file that can be converted",
    Upkeep.REWRITE: "every data file has at most one delete by position, and that is its own",
    Upkeep.PRUNE: "every delete applies to a live file",
}


@dataclass(frozen=True)
class UpkeepRequest:
    """What is asked for."""

    table: TableName
    table_uuid: str
    operation: Upkeep
    branch: str = MAIN
    dry_run: bool = False


def keep_up(request: UpkeepRequest, tools: Tools) -> UpkeepRecord:
    """Carries one operation out. Raises where something could not be read; a commit that lost is in the record."""
    if tools.deletes is None:
        raise BadRequestError(f"Cannot {request.operation} deletes of {request.table}: there is nothing to read them with")
    run = _Upkeep(request, tools, tools.deletes, uuid4().hex, tools.clock.now_ms())
    if request.dry_run:
        return run.tell()
    table = (str(request.table), request.table_uuid)
    with leased(*table, run.run_id, leases=tools.leases, writer=tools.writer, clock=tools.clock):
        return run.carry_out()


@dataclass(frozen=True)
class _Found:
    """The table at one head."""

    head: int | None
    live: Mapping[str, LiveFile]
    deletes: Mapping[DeleteKey, DataFile]
    vectors: bool

    def superseded(self, done: Mapping[str, LiveFile], deletes: Iterable[DataFile]) -> dict[DeleteKey, DataFile]:
        return superseded(self.live.values(), done, deletes)


@dataclass(frozen=True)
class _Change:
    """What one attempt sends. `done` are the data files for which the removed deletes are not needed any more."""

    found: _Found
    done: Mapping[str, LiveFile]
    removed: Mapping[DeleteKey, DataFile]
    added: Sequence[DataFile] = ()

    @property
    def paths(self) -> set[str]:
        return {delete["file-path"] for delete in self.added}


@dataclass
class _Upkeep:
    request: UpkeepRequest
    tools: Tools
    files: DeleteFiles
    run_id: str
    started_ms: int
    resolved: dict[str, LiveFile] = field(default_factory=dict)
    """Data files as they were when their equality deletes were resolved."""
    found_rows: dict[str, DataFile] = field(default_factory=dict)
    """What was found for them, as a vector; nothing for those that lose no row."""
    written: set[str] = field(default_factory=set)
    sent: list[_Change] = field(default_factory=list)
    """Attempts that landed or may have: their files stay."""
    commit_id: str = field(default_factory=lambda: uuid4().hex)
    failure: str = ""
    seen: _Found = field(init=False)
    """The last that was found."""

    def look(self) -> _Found:
        """The newest head."""
        writer = self.tools.writer
        writer.refresh()
        head = writer.head(self.request.branch)
        live = {file.path: file for file in writer.scan(head, statistics=False)}
        deletes = writer.delete_files(head) if head is not None else []
        vectors = writer.shape()["format version"] >= 3
        self.seen = _Found(head, live, {delete_key(delete): delete for delete in deletes}, vectors)
        return self.seen

    def tell(self) -> UpkeepRecord:
        """What would be done."""
        found = self.look()
        done = self._chosen(found)
        change = _Change(found, done, self._goes(found, done))
        if not change.removed:
            return self._nothing(found)
        at_most = len(concerned(done.values(), change.removed.keys()))
        return self._told(change, RunOutcome.DONE).model_copy(update={"data_files": at_most})

    def carry_out(self) -> UpkeepRecord:
        """Under the lease."""
        found = self.look()
        chosen = self._chosen(found)
        if not self._goes(found, chosen):
            return self._nothing(found)
        try:
            if self._converts:
                self._resolve(found, chosen)
            return self._commit()
        finally:
            kept = {path for change in self.sent for path in change.paths}
            self.tools.engine.discard(sorted(self.written - kept))

    def _commit(self) -> UpkeepRecord:
        retry = Retry.of(self.tools.writer.properties())
        for attempt in range(retry.attempts):
            if attempt:
                self.tools.sleep(retry.wait_seconds(attempt - 1, random.random()))  # noqa: S311
            try:
                if (record := self._attempt(self.look() if attempt or self._converts else self.seen)) is not None:
                    return record
            except (CatalogUnreachableError, StorageError) as error:
                self.failure = str(error)
            log.warning("%s of deletes, attempt %s: %s", self.request.operation, attempt + 1, self.failure)
        return (self._found_late(retry) if self.sent else None) or self._failed(self.failure)

    def _found_late(self, retry: Retry) -> UpkeepRecord | None:
        """What became of the tries, should the catalog not have answered after the last."""
        for check in range(retry.checks):
            self.tools.sleep(retry.wait_seconds(retry.attempts - 1 + check, random.random()))  # noqa: S311
            with suppress(CatalogUnreachableError, StorageError):
                return self._settled(self.look())
        return None

    @property
    def _converts(self) -> bool:
        return self.request.operation is Upkeep.CONVERT

    def _chosen(self, found: _Found) -> dict[str, LiveFile]:
        wanted = targets(self.request.operation, found.live.values(), vectors=found.vectors)
        return {file.path: file for file in wanted}

    def _resolve(self, found: _Found, chosen: Mapping[str, LiveFile]) -> None:
        self._progress("resolve")
        self.found_rows = resolve(chosen, self.tools, head=found.head or 0)
        self.resolved = dict(chosen)
        self.written |= {vector["file-path"] for vector in self.found_rows.values()}

    def _attempt(self, found: _Found) -> UpkeepRecord | None:
        """None if it is to be tried again."""
        if (record := self._settled(found)) is not None:
            return record
        if (other := taken_over(self.tools.writer, self.run_id, self.tools.clock)) is not None:
            return self._failed(other)
        change = self._change(found)
        if not change.removed:
            return self._nothing(found, "others changed the files or their deletes meanwhile")
        self._progress("commit")
        self.sent.append(change)
        certain = self._send(change)
        record = self._settled(self.look())
        # A snapshot of ours that is on no way to the head, since somebody rolled it back, still names the files.
        if record is None and certain and not self.tools.writer.snapshots_with(COMMIT_ID, self.commit_id):
            self.sent.pop()
        return record

    def _change(self, found: _Found) -> _Change:
        """What is to be sent onto this head, with what is new there taken along."""
        done = self._chosen(found)
        if self._converts:
            known = still_resolved(self.resolved, found.live)
            done = {path: file for path, file in done.items() if path in known}
        goes = self._goes(found, done)
        done = {file.path: file for file in concerned(done.values(), goes.keys())}
        homes = self._homes(done)
        added = self._deletes_for(found, homes) if homes else []
        replaced = found.superseded(homes, deletes_of(homes.values(), names_rows).values())
        return _Change(found, done, goes | replaced, added)

    def _goes(self, found: _Found, done: Mapping[str, LiveFile]) -> dict[DeleteKey, DataFile]:
        """The deletes that it is all about, as far as they may go once these files are done."""
        if self._converts:
            known, meant = (deletes_of(files.values(), convertible) for files in (self.resolved or done, done))
            return found.superseded(done, [delete for key, delete in meant.items() if key in known])
        loose = dangling(found.deletes.values(), found.live.values())
        if self.request.operation is Upkeep.PRUNE:
            return loose
        goes = found.superseded(done, deletes_of(done.values(), names_rows).values())
        return goes and goes | {key: delete for key, delete in loose.items() if delete["content"] != EQUALITY}

    def _homes(self, done: Mapping[str, LiveFile]) -> dict[str, LiveFile]:
        """Those that get a delete of their own."""
        return {path: file for path, file in done.items() if not self._converts or path in self.found_rows}

    def _deletes_for(self, found: _Found, homes: Mapping[str, LiveFile]) -> list[DataFile]:
        """One for each file. A vector that was found for a file without others is taken as it is."""
        as_it_is, sources = [], dict[str, Sequence[DataFile]]()
        shared: dict[int, Sequence[DataFile]] = {}
        for path, file in homes.items():
            others, vector = shared.setdefault(id(file.own), by_position(file)), self.found_rows.get(path)
            if vector is not None and found.vectors and not others:
                as_it_is.append(vector)
            else:
                sources[path] = others if vector is None else [*others, vector]
        described = {path: homes[path].data_file for path in sources}
        new = self.files.write(self._counted(sources), described, vectors=found.vectors) if sources else []
        self.written |= {delete["file-path"] for delete in new}
        return [*as_it_is, *new]

    def _counted(self, sources: Mapping[str, Sequence[DataFile]]) -> Iterator[tuple[str, Longs]]:
        for done, rows in enumerate(self.files.each(sources)):
            self._progress("write", done, len(sources))
            yield rows

    def _send(self, change: _Change) -> bool:
        """Whether it certainly failed, should it not be found in the table."""
        writer, head = self.tools.writer, change.found.head or 0
        summary, removed = {RUN_ID: self.run_id, COMMIT_ID: self.commit_id}, list(change.removed.values())
        branch = self.request.branch
        self.failure = "the commit answered, but is not to be found"
        try:
            if self.request.operation is Upkeep.PRUNE:
                writer.rewrite([], [], head=head, sequence_number=None, summary=summary, branch=branch, removed_deletes=removed)
            else:
                writer.row_delta(change.added, removed, referenced=change.done, head=head, summary=summary, branch=branch)
        except CommitConflictError as error:
            self.failure = str(error)
            return True
        except CommitUnknownError as error:
            self.failure = str(error)
        return False

    def _settled(self, found: _Found) -> UpkeepRecord | None:
        """The record, if an attempt is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        if not self.sent or found.head is None:
            return None
        ancestors = self.tools.writer.ancestry(found.head, self.sent[0].found.head)
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == self.commit_id), None)
        change = self._which(ours.snapshot_id if ours is not None else None, found)
        if change is None:
            return None
        if ours is None:
            return self._told(change, RunOutcome.DONE)
        self.sent = [change]  # what it removed is gone, so that no other attempt can land any more
        if (wrong := self._objection(change, ours.parent_id)) is not None:
            take_back(self.tools.writer, [ours], wrong, head=found.head, branch=self.request.branch, run_id=self.run_id)
            return self._failed(f"snapshot {ours.snapshot_id} was taken back, for {wrong}")
        return self._told(change, RunOutcome.DONE, snapshots=(ours.snapshot_id,))

    def _which(self, ours: int | None, found: _Found) -> _Change | None:
        """The attempt that landed: the same id goes with each, so where they differ the files tell."""
        there = self.tools.writer.delete_files(ours) if ours is not None else found.deletes.values()
        paths = {delete["file-path"] for delete in there}
        # They may share files that were found once for all, so that the one with the most counts.
        change = max(self.sent, key=lambda change: len(change.paths & paths))
        return change if ours is not None or change.paths & paths else None

    def _objection(self, change: _Change, base: int | None) -> str | None:
        """What is wrong with a commit that landed on another head than was judged: Iceberg's own retries move it there."""
        writer = self.tools.writer
        if base == change.found.head:
            return None
        if base is None or not writer.knows(base):
            return "the snapshot that it was committed on is expired, so that it cannot be judged any more"
        live = {file.path: file for file in writer.scan(base, statistics=False)}
        needed = concerned([file for path, file in live.items() if path not in change.done], change.removed.keys())
        return f"it took deletes out of the table that {needed[0].path} needs" if needed else None

    def _nothing(self, found: _Found, reason: str | None = None) -> UpkeepRecord:
        told = self._told(_Change(found, {}, {}), RunOutcome.NOTHING_TO_DO)
        return told.model_copy(update={"reason": reason or _NOTHING[self.request.operation]})

    def _failed(self, reason: str) -> UpkeepRecord:
        return self._told(_Change(self.seen, {}, {}), RunOutcome.FAILED).model_copy(update={"reason": reason})

    def _told(self, change: _Change, outcome: RunOutcome, snapshots: tuple[int, ...] = ()) -> UpkeepRecord:
        request, found = self.request, change.found
        return UpkeepRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            branch=request.branch,
            operation=request.operation,
            dry_run=request.dry_run,
            outcome=outcome,
            started_ms=self.started_ms,
            finished_ms=self.tools.clock.now_ms(),
            snapshot_before=found.head,
            snapshots=snapshots,
            data_files=len(change.added),
            rows=sum(delete["record-count"] for delete in change.added),
            deletes_before=len(found.deletes),
            equality_before=_equality(found.deletes.values()),
            deletes_removed=len(change.removed),
            equality_removed=_equality(change.removed.values()),
        )

    def _progress(self, stage: str, done: int = 0, total: int | None = None) -> None:
        if self.tools.progress:
            self.tools.progress(stage, done, total)


def _equality(deletes: Iterable[DataFile]) -> int:
    return sum(1 for delete in deletes if delete["content"] == EQUALITY)
