"""deletes: keeps a table's deletes few and cheap without rewriting data: converts, merges and prunes them.

The same for all three: which data files get one delete of their own (`maintenance.delete_files`), what it
holds, one commit that adds these and removes what they replace. The head is looked at anew before each attempt, and deletes
that came in between are taken along; what equality deletes mean was found out once and holds, since the rows of a file do not
change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from neve.commit.failure import Failure
from neve.commit.gaps import wait_for_gap
from neve.commit.lease import leased
from neve.commit.protocol import COMMIT_ID, Change, Retry, Settled, Terms, commit_or_raise, take_back
from neve.commit.unused_files import set_aside
from neve.context.runs import keep_record
from neve.context.table import TableContext
from neve.errors import (
    BadRequestError,
    CommitNotSentError,
    NeveError,
)
from neve.health.not_due import NotDue
from neve.maintenance.delete_files import (
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
from neve.maintenance.delete_work import DeleteWork, by_deletes
from neve.maintenance.steps import Judgement
from neve.operations.inspect import read
from neve.operations.requests import DeletesRequest
from neve.operations.resolve_deletes import resolve
from neve.ports import DeleteFiles
from neve.rewrite.live_files import EQUALITY, DataFile, DeleteKey, LiveFile, delete_key
from neve.rewrite.record import RunOutcome
from neve.table.depth import Depth
from neve.table.nested_keys import compared, nested_columns, reason
from neve.table.positions import Longs
from neve.table.state import RUN_ID
from neve.table.units import counted

log = logging.getLogger(__name__)

KIND = "deletes"
"""What such a run is called in the state store."""

_NOTHING = {
    Upkeep.CONVERT: (
        "no equality delete applies to a file that can be converted",
        ("Parquet data files that equality deletes in Parquet files apply to", "a writer deletes by equality"),
    ),
    Upkeep.REWRITE: (
        "every data file has at most one delete by position, and that is its own",
        ("data files with several position deletes, or with one that is shared", "rows are deleted by position"),
    ),
    Upkeep.PRUNE: (
        "every delete applies to a live file",
        ("deletes that apply to no live file", "data files are rewritten or dropped without their deletes"),
    ),
}
"""By operation, why there is nothing to do, what was counted, and what makes it due."""


def run(context: TableContext, request: DeletesRequest) -> UpkeepRecord:
    """Converts, rewrites or prunes delete files, or shows what that would do."""
    if request.operation not in list(Upkeep):
        raise BadRequestError(f"Cannot {request.operation} deletes: there are {', '.join(Upkeep)}")
    if not request.dry_run:
        context.require_free()
    record = maintain_deletes(context, request)
    if record.run_id is not None:
        keep_record(context.store, context.timed(record), KIND)
    return record


def is_due(context: TableContext, operation: str) -> Judgement:
    """Whether the table has deletes that this operation changes, by metadata alone."""
    state = read(context.reader(), Depth.FILES)
    return by_deletes(DeleteWork.of(state, state.files) if state.files is not None else DeleteWork(), Upkeep(operation))


is_convert_due, is_rewrite_due, is_prune_due = (partial(is_due, operation=operation) for operation in Upkeep)


def maintain_deletes(context: TableContext, request: DeletesRequest) -> UpkeepRecord:
    """Carries one operation out. Raises where something could not be read; a commit that lost is in the record."""
    run = _Upkeep(request, context, context.deletes, uuid4().hex, context.clock.now_ms())
    if request.dry_run:
        return run.tell().unrecorded()
    table = (str(context.name), context.uuid)
    with leased(*table, run.run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        run.assert_held = lease.assert_held
        record = run.carry_out()
    return record if record.leaves_traces or run.has_set_aside else record.unrecorded()


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


@dataclass(eq=False)
class _Upkeep(Change["_Change", UpkeepRecord]):
    request: DeletesRequest
    context: TableContext
    files: DeleteFiles
    run_id: str
    started_ms: int
    resolved: dict[str, LiveFile] = field(default_factory=dict)
    """Data files as they were when their equality deletes were resolved."""
    found_rows: dict[str, DataFile] = field(default_factory=dict)
    """What was found for them, as a vector; nothing for those that lose no row."""
    written: set[str] = field(default_factory=set)
    commit_id: str = field(default_factory=lambda: uuid4().hex)
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""
    left_alone: str | None = None
    has_set_aside: bool = False
    """Whether files are in the quarantine under the run's id."""
    seen: _Found = field(init=False)
    """The last that was found."""
    _is_fresh: bool = False
    """Whether `seen` may still be the newest head."""

    def __post_init__(self) -> None:
        super().__init__()

    def look(self) -> _Found:
        """The newest head."""
        writer = self.context.writer
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
        try:
            chosen = self._chosen(found)
            if not self._goes(found, chosen):
                return self._nothing(found)
            if self._converts:
                self._resolve(found, chosen)
            return self._commit()
        except Exception as error:
            if isinstance(error, NeveError) and not isinstance(error, CommitNotSentError):
                raise
            return self._crashed(error)
        finally:
            self._set_unused_aside()

    def _set_unused_aside(self) -> None:
        """Records what was written and came to nothing in the quarantine, unless another process has the table by now."""
        kept = {path for change in self.open for path in change.paths}
        lost = self.context.resolver.unused() if self._converts else []
        if unused := [*sorted(self.written - kept), *lost]:
            try:
                self.assert_held()
            except Exception as error:  # Ctrl-C may have ended the JVM
                log.warning("files are left for orphan removal, such as %s: %s", unused[0], error)
                return
            why = f"{self.operation} of delete files did not use it"
            self.has_set_aside = True
            set_aside(unused, why, self.context, table_uuid=self.context.uuid, run_id=self.run_id)

    def _crashed(self, error: Exception) -> UpkeepRecord:
        """The end after an exception that nobody expected. What was sent may have landed, so its files stay."""
        log.warning("%s of deletes raised", self.operation, exc_info=error)
        failure = Failure.of(error)
        reason = f"{failure.reason}; the outcome of its commit is unknown" if self.open else failure.reason
        return self._failed(reason).model_copy(update={"traceback": failure.traceback})

    def _commit(self) -> UpkeepRecord:
        context, request = self.context, self.request
        limit = context.policy().gap_wait_seconds
        waited = wait_for_gap(context.writer, request.branch, clock=context.clock, sleep=context.sleep, limit_seconds=limit)
        self._is_fresh = not (waited or self._converts)
        what = f"{request.operation} of delete files of {self.context.name}"
        retry = Retry.of(context.writer.properties())
        ended = commit_or_raise(self, Terms(what, retry, context.clock, context.sleep, self.assert_held))
        if ended.settled is not None:
            return ended.settled.result
        return self._failed(ended.failure)

    def refresh(self) -> None:
        """Looks at the newest head, unless that was done just before."""
        if not self._is_fresh:
            self.look()
        self._is_fresh = False

    def prepare(self) -> _Change | Settled[UpkeepRecord]:
        """What is to be sent onto the newest head."""
        change = self._change(self.seen)
        if not change.removed:
            return Settled(self._nothing(self.seen, "others changed the files or their deletes meanwhile"))
        self._progress("commit")
        return change

    def is_named(self) -> bool:
        """Whether a snapshot has our commit id, also one that was rolled back."""
        return bool(self.context.writer.snapshots_with(COMMIT_ID, self.commit_id))

    @property
    def operation(self) -> Upkeep:
        """Which of the three it is."""
        return Upkeep(self.request.operation)

    @property
    def _converts(self) -> bool:
        return self.operation is Upkeep.CONVERT

    def _chosen(self, found: _Found) -> dict[str, LiveFile]:
        wanted = targets(self.operation, found.live.values(), vectors=found.vectors)
        return {file.path: file for file in (self._provable(wanted) if self._converts else wanted)}

    def _provable(self, files: Sequence[LiveFile]) -> list[LiveFile]:
        """Without those that an equality delete on a nested column applies to: nobody can tell which rows that deletes."""
        deletes = deletes_of(files, convertible)
        nested = nested_columns(self.context.writer.schemas_json()) if deletes else {}
        names = {key: found for key, one in deletes.items() if (found := compared([one["equality-ids"]], nested))}
        bad = {file.path for file in concerned(files, names.keys())} if names else set()
        if bad:
            why = reason({name for found in names.values() for name in found})
            self.left_alone = f"{counted(len(bad), 'data file')}: {why}"
        return [file for file in files if file.path not in bad]

    def _resolve(self, found: _Found, chosen: Mapping[str, LiveFile]) -> None:
        self._progress("resolve")
        self.found_rows = resolve(chosen, self.context, head=found.head or 0)
        self.resolved = dict(chosen)
        self.written |= {vector["file-path"] for vector in self.found_rows.values()}

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
        return _Change(found, done, goes | self._replaced(found, homes), added)

    def _goes(self, found: _Found, done: Mapping[str, LiveFile]) -> dict[DeleteKey, DataFile]:
        """The deletes that it is all about, as far as they may go once these files are done."""
        if self._converts:
            known, meant = (deletes_of(files.values(), convertible) for files in (self.resolved or done, done))
            return found.superseded(done, [delete for key, delete in meant.items() if key in known])
        loose = dangling(found.deletes.values(), found.live.values())
        if self.operation is Upkeep.PRUNE:
            return loose
        goes = found.superseded(done, deletes_of(done.values(), names_rows).values())
        return goes and goes | {key: delete for key, delete in loose.items() if delete["content"] != EQUALITY}

    def _homes(self, done: Mapping[str, LiveFile]) -> dict[str, LiveFile]:
        """Those that get a delete of their own."""
        return {path: file for path, file in done.items() if not self._converts or path in self.found_rows}

    def _replaced(self, found: _Found, homes: Mapping[str, LiveFile]) -> dict[DeleteKey, DataFile]:
        """Position deletes whose rows the new deletes of these files hold: a file has one deletion vector at most."""
        return found.superseded(homes, deletes_of(homes.values(), names_rows).values())

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

    def send(self, change: _Change) -> None:
        """Sends one attempt."""
        writer, head = self.context.writer, change.found.head or 0
        summary, removed = {RUN_ID: self.run_id, COMMIT_ID: self.commit_id}, list(change.removed.values())
        branch = self.request.branch
        if self.operation is Upkeep.PRUNE:
            writer.rewrite([], [], head=head, sequence_number=None, summary=summary, branch=branch, removed_deletes=removed)
        else:
            writer.row_delta(change.added, removed, referenced=change.done, head=head, summary=summary, branch=branch)

    def landed(self) -> Settled[UpkeepRecord] | None:
        """The record, if an attempt is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        found = self.seen
        if not self.open or found.head is None:
            return None
        ancestors = self.context.writer.ancestry(found.head, self.open[0].found.head)
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == self.commit_id), None)
        change = self._which(ours.snapshot_id if ours is not None else None, found)
        if change is None:
            return None
        if ours is None:
            return Settled(self._told(change, RunOutcome.DONE))
        if self.context.writer.snapshots_with(COMMIT_ID, self.commit_id) == [ours.snapshot_id]:
            self.open[:] = [change]  # what it removed is gone, so that no other attempt can land; none was rolled back
        if (wrong := self._objection(change, ours.parent_id)) is not None:
            take_back(self.context.writer, [ours], wrong, head=found.head, branch=self.request.branch, run_id=self.run_id)
            return Settled(self._failed(f"snapshot {ours.snapshot_id} was taken back, for {wrong}"))
        return Settled(self._told(change, RunOutcome.DONE, snapshots=(ours.snapshot_id,)))

    def _which(self, ours: int | None, found: _Found) -> _Change | None:
        """The attempt that landed: the same id goes with each, so where they differ the files tell."""
        there = self.context.writer.delete_files(ours) if ours is not None else found.deletes.values()
        paths = {delete["file-path"] for delete in there}
        # They may share files that were found once for all, so that the one with the most counts.
        change = max(self.open, key=lambda change: len(change.paths & paths))
        return change if ours is not None or change.paths & paths else None

    def _objection(self, change: _Change, base: int | None) -> str | None:
        """What is wrong with a commit that landed on another head than was judged: Iceberg's own retries move it there."""
        writer = self.context.writer
        if base == change.found.head:
            return None
        if base is None or not writer.knows(base):
            return "the snapshot that it was committed on is expired, so that it cannot be judged any more"
        live = {file.path: file for file in writer.scan(base, statistics=False)}
        needed = concerned([file for path, file in live.items() if path not in change.done], change.removed.keys())
        return f"it took deletes out of the table that {needed[0].path} needs" if needed else None

    def _nothing(self, found: _Found, why: str | None = None) -> UpkeepRecord:
        told = self._told(_Change(found, {}, {}), RunOutcome.NOTHING_TO_DO)
        because, (what, until) = _NOTHING[self.operation]
        rule = NotDue(rule=self.operation, what=what, measured=0, threshold=1, until=until)
        if self.left_alone:
            because = f"left alone are {self.left_alone}"
            rule = NotDue(rule="unprovable", what=self.left_alone, until="the writer deletes by top-level columns")
        if why is not None:
            because, rule = why, NotDue(rule="changed", what=why, until="the operation runs again")
        return told.model_copy(update={"reason": because, "not_due": (rule,)})

    def _failed(self, reason: str) -> UpkeepRecord:
        return self._told(_Change(self.seen, {}, {}), RunOutcome.FAILED).model_copy(update={"reason": reason})

    def _told(self, change: _Change, outcome: RunOutcome, snapshots: tuple[int, ...] = ()) -> UpkeepRecord:
        request, found = self.request, change.found
        return UpkeepRecord(
            run_id=self.run_id,
            table=str(self.context.name),
            table_uuid=self.context.uuid,
            branch=request.branch,
            operation=self.operation,
            dry_run=request.dry_run,
            outcome=outcome,
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            snapshot_before=found.head,
            snapshots=snapshots,
            data_files=len(change.added),
            rows=sum(delete["record-count"] for delete in change.added),
            deletes_before=len(found.deletes),
            equality_before=_equality(found.deletes.values()),
            deletes_removed=len(change.removed),
            equality_removed=_equality(change.removed.values()),
            left_alone=self.left_alone,
        )

    def _progress(self, stage: str, done: int = 0, total: int | None = None) -> None:
        self.context.report(stage, done, total)


def _equality(deletes: Iterable[DataFile]) -> int:
    return sum(1 for delete in deletes if delete["content"] == EQUALITY)
