"""ttl: removes rows that are past their time, whole files by metadata first, then what is left of them row by row.

The cutoff is fixed before anything is looked at, so that a preview and an enforcement on the same snapshot
count the same. A file goes only if its metadata and its own footer prove every row past; rows go by a predicate, so that
nothing younger is ever touched, whoever writes meanwhile. Commits are settled by looking at the table. No file is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from uuid import uuid4

from neve.commit.lease import leased
from neve.commit.protocol import COMMIT_ID, Change, Retry, Settled, Terms, commit_or_raise, take_back
from neve.context.runs import keep_record
from neve.context.table import TableContext
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    StorageError,
    VerificationError,
)
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.maintenance.steps import Judgement
from neve.maintenance.ttl import (
    FileVerdict,
    Tally,
    TtlCounts,
    TtlLimits,
    TtlRecord,
    UnprovedFile,
    limits_of,
    next_past,
    verdict,
    wrongly_removed,
)
from neve.maintenance.ttl_proof import why_unproved
from neve.operations.inspect import read
from neve.operations.requests import TtlRequest
from neve.operations.ttl_terms import TtlTerms, newest, previews, terms_of
from neve.ports import Clock
from neve.rewrite.live_files import Ancestor, LiveFile
from neve.rewrite.record import RunOutcome
from neve.table.depth import Depth
from neve.table.state import RUN_ID, PartitionSpec
from neve.table.units import counted, exact_seconds
from neve.ttl_ports import PastRows

log = logging.getLogger(__name__)

_DROPPED = {"files_dropped": "deleted-data-files", "rows_dropped": "deleted-records"}
"""What the snapshot of a drop says of itself, by our names."""


def run(context: TableContext, request: TtlRequest) -> TtlRecord:
    """Previews, and records that unless it is a dry run; or enforces what was previewed."""
    if request.enforce and request.dry_run:
        raise BadRequestError(f"Cannot enforce the limit of {context.table} and only tell of it: leave one of them out")
    if request.enforce:
        context.require_free()
    terms = terms_of(context, enforce=request.enforce)
    record = keep_all(terms, context.clock) if terms.cutoff_ms is None else _with_next(context, _expired(context, terms))
    if request.dry_run:
        return record.unrecorded().model_copy(update={"recorded": False})
    keep_record(context.store, context.timed(record), Operation.TTL.value)
    return record


def is_due(context: TableContext) -> Judgement:
    """Whether a limit is set whose removals somebody has seen; how many rows there are only Spark can count."""
    if context.policy().ttl_seconds is None:
        return Judgement.unmet(NotDue(rule="ttl", what="ttl is not set", knob="ttl", until="it is set"))
    terms = terms_of(context, enforce=False)
    if terms.cutoff_ms is None:
        what, until = f"every row is kept: {terms.unknown}", "the last write is known"
        return Judgement.unmet(NotDue(rule="ttl-since", what=what, knob="ttl-since", until=until))
    if newest(previews(context), terms.rule) is None:
        until = f"`neve ttl {quote(str(context.name))}` has shown what would go"
        return Judgement.unmet(NotDue(rule="preview", what="the limit was never previewed", knob="ttl", until=until))
    return Judgement(due=True, why=f"rows are kept for {exact_seconds(terms.rule.keep_seconds)}")


def _expired(context: TableContext, terms: TtlTerms) -> TtlRecord:
    from neve.spark.maintenance.ttl import SparkPastRows

    def terms_again() -> TtlTerms:
        return terms_of(context.fresh(), enforce=not terms.dry_run)

    return expire_rows(terms, context, SparkPastRows(context.spark, context.writer), terms_again=terms_again)


def _with_next(context: TableContext, record: TtlRecord) -> TtlRecord:
    """The record, with when the next row is past its time if none is now."""
    if record.outcome is not RunOutcome.NOTHING_TO_DO or record.cutoff_ms is None or record.not_due:
        return record
    field_id = record.rule.field_id
    files = read(context.reader(), Depth.FILES, bounds=[field_id]).files
    lowers = files.bounds.column(f"{field_id}.lower").to_pylist() if files is not None and files.bounds is not None else []
    rule = next_past(record.rule, lowers, record.cutoff_ms, context.clock.now_ms())
    return record.model_copy(update={"not_due": (rule,)})


def keep_all(terms: TtlTerms, clock: Clock) -> TtlRecord:
    """The record of a run that removes nothing since its cutoff is unknown."""
    now, why = clock.now_ms(), terms.unknown or "the cutoff is unknown"
    return TtlRecord(
        run_id=uuid4().hex,
        table=str(terms.table),
        table_uuid=terms.table_uuid,
        branch=terms.branch,
        operation=Operation.TTL,
        dry_run=terms.dry_run,
        outcome=RunOutcome.NOTHING_TO_DO,
        reason=f"every row is kept: {why}",
        not_due=(NotDue(rule="ttl-since", what=why, knob="ttl-since", until="the last write is known"),),
        started_ms=now,
        finished_ms=now,
        rule=terms.rule,
        cutoff_ms=None,
    )


def expire_rows(
    terms: TtlTerms, context: TableContext, rows: PastRows, *, terms_again: Callable[[], TtlTerms] | None = None
) -> TtlRecord:
    """Previews or enforces. Raises where something could not be read or counted; a commit that lost is in the record.

    `terms_again` is called under the lease: since the terms were made Spark has started, and somebody may have changed the
    limit, or rolled back the write that it counts from.
    """
    run_id, started_ms = uuid4().hex, context.clock.now_ms()
    if terms.cutoff_ms is None:
        return keep_all(terms, context.clock)
    if terms.dry_run:
        return _Ttl(terms, context, rows, run_id, started_ms, limits_of(terms.rule, terms.cutoff_ms)).preview()
    table = (str(terms.table), terms.table_uuid)
    with leased(*table, run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        context.writer.refresh()
        if terms_again is not None:
            terms = terms_again()
        if terms.cutoff_ms is None:
            return keep_all(terms, context.clock)
        run = _Ttl(terms, context, rows, run_id, started_ms, limits_of(terms.rule, terms.cutoff_ms))
        run.assert_held = lease.assert_held
        return run.enforce()


@dataclass(frozen=True)
class _Found:
    """The table at one head."""

    head: int | None
    past: tuple[LiveFile, ...] = ()
    """To be dropped in this run."""
    unsure: tuple[str, ...] = ()
    """To be looked into."""
    left: int = 0
    reason: str | None = None
    rule: NotDue | None = None
    """Why files are left, if they are."""
    unproved: tuple[UnprovedFile, ...] = ()
    """That metadata says are past, and their footers do not."""

    @property
    def left_alone(self) -> list[str]:
        """Files of which no row may be deleted."""
        return [file.path for file in self.unproved if file.left]


def _too_many(files: int, limit: int) -> NotDue:
    return NotDue(
        rule="limit",
        what="files to open for single rows",
        measured=files,
        threshold=limit,
        comparison="up to",
        knob="max-files",
        until="the limit is raised",
    )


def _not_due(rule: str, what: str, until: str, knob: str | None = None) -> NotDue:
    return NotDue(rule=rule, what=what, knob=knob, until=until)


def _explained(found: _Found) -> _Found:
    """With why files are not dropped that metadata says are past, unless another reason is known."""
    if not found.unproved or found.reason is not None:
        return found
    told, first = counted(len(found.unproved), "file"), found.unproved[0].reason
    what = f"not dropped by metadata alone: {told}, the first since {first}"
    rule = _not_due("footer", what, "their rows are past as readers see them")
    return replace(found, rule=rule, reason=what if found.left_alone else None)


@dataclass(frozen=True)
class _Removed:
    """One attempt; `rows` by file, where single rows are deleted."""

    rows: Mapping[str, int] = field(default_factory=dict)


class _GivenUp(Exception):  # noqa: N818 - ends a run with a record that says why
    pass


@dataclass
class _Ttl:
    terms: TtlTerms
    context: TableContext
    rows: PastRows
    run_id: str
    started_ms: int
    limits: TtlLimits
    snapshots: list[int] = field(default_factory=list)
    begun_on: int | None = None
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""

    def preview(self) -> TtlRecord:
        """What would go."""
        found = self.look()
        counts = self._counts(found)
        return self._told(found, counts, RunOutcome.NOTHING_TO_DO if counts.nothing else RunOutcome.DONE)

    def enforce(self) -> TtlRecord:
        """Under the lease."""
        found = self.look()
        planned = self._counts(found)
        self._check_preview(found, planned)
        if planned.nothing:
            return self._told(found, planned, RunOutcome.NOTHING_TO_DO)
        done = TtlCounts(files_left=planned.files_left)
        try:
            if found.past:
                done = self._drop(done)
            if planned.rows_deleted:
                done = self._delete(done)
        except (_GivenUp, BadRequestError) as failure:
            if done.nothing and isinstance(failure, BadRequestError):
                raise  # once files are gone, a refusal of the rest is recorded
            outcome = RunOutcome.FAILED if done.nothing else RunOutcome.PARTLY_DONE
            return self._told(found, done, outcome).model_copy(update={"reason": str(failure)})
        return self._told(found, done, RunOutcome.DONE)

    def look(self) -> _Found:
        """The newest head, judged."""
        self.report("look")
        terms, writer = self.terms, self.context.writer
        writer.refresh()
        head = writer.head(terms.branch)
        self.begun_on = head if self.begun_on is None else self.begun_on
        specs = {spec.spec_id: spec for spec in self.context.specs}
        past, unsure = [], []
        for file in self.rows.candidates(head, terms.rule, self.limits) if head is not None else ():
            judged = verdict(file, terms.rule, self.limits, specs.get(int(file.data_file["spec-id"])))
            if judged is FileVerdict.PAST:
                past.append(file)
            elif judged is FileVerdict.UNSURE:
                unsure.append(file.path)
        proved, unproved = self._proved_whole(sorted(past, key=lambda file: file.path), specs)
        over = len(past) - len(proved) - len(unproved)
        unsure += [file.path for file in unproved if not file.left]
        limited = self._limited(_Found(head, tuple(proved), unproved=tuple(unproved)), over, unsure)
        return _explained(replace(limited, left=limited.left + len(limited.left_alone)))

    def _proved_whole(
        self, past: list[LiveFile], specs: Mapping[int, PartitionSpec]
    ) -> tuple[list[LiveFile], list[UnprovedFile]]:
        """As many of the files as one run may drop, by what their own footers say, and those that these do not confirm.

        Metadata of imported files may be wrong, and only a footer shows it. Only files that would be dropped are opened.
        """
        terms, proved, doubtful, at = self.terms, list[LiveFile](), list[UnprovedFile](), 0
        while at < len(past) and len(proved) < terms.max_files:
            part = past[at : at + terms.max_files - len(proved)]
            at, stored = at + len(part), self.rows.stored(part, terms.rule)
            for file in part:
                spec = specs.get(int(file.data_file["spec-id"]))
                doubt = why_unproved(file, stored[file.path], terms.rule, self.limits, spec)
                proved.append(file) if doubt is None else doubtful.append(doubt)
        return proved, doubtful

    def _limited(self, found: _Found, over: int, unsure: list[str]) -> _Found:
        """As much as one run may do. Rows wait until all whole files are gone: a delete by predicate would open these too."""
        limit = self.terms.max_files
        if over > 0:
            return replace(found, left=over + len(unsure), reason=f"one run drops {counted(limit, 'file')} at most (max-files)")
        if unsure and self.terms.rule.by == "file":
            reason, until = "files that may hold younger rows stay whole (ttl-by)", "all of their rows are past"
            return replace(found, left=len(unsure), reason=reason, rule=_not_due("ttl-by", reason, until, "ttl-by"))
        if len(unsure) > limit:
            reason = f"one run opens {counted(limit, 'file')} at most (max-files)"
            return replace(found, left=len(unsure), reason=reason, rule=_too_many(len(unsure), limit))
        if unsure and (broken := next((file for file in found.unproved if file.unreadable), None)) is not None:
            # The delete would read it as well, and fail.
            reason = f"no rows are deleted while a file cannot be read: {broken.reason}"
            return replace(found, left=len(unsure), reason=reason, rule=_not_due("unreadable", reason, "the file is restored"))
        return replace(found, unsure=tuple(unsure))

    def _counts(self, found: _Found) -> TtlCounts:
        self.report("count")
        inside = self.inside(found.head, found.unsure)
        return TtlCounts(
            files_dropped=len(found.past),
            rows_dropped=sum(file.records for file in found.past),
            bytes_dropped=sum(file.size_bytes for file in found.past),
            files_touched=len(inside),
            rows_deleted=sum(inside.values()),
            files_left=found.left,
        )

    def inside(self, head: int | None, unsure: tuple[str, ...]) -> Mapping[str, int]:
        if head is None or not unsure:
            return {}
        found = self.rows.tallies(head, unsure, self.terms.rule, self.limits)
        return {path: tally.past for path, tally in found.items() if tally.past}

    def _check_preview(self, found: _Found, planned: TtlCounts) -> None:
        """On the snapshot that was previewed, with its cutoff, nothing else may come out."""
        snapshot, counts = self.terms.previewed or (None, planned)
        if snapshot == found.head and counts != planned:
            raise VerificationError(
                f"Cannot enforce the limit of {self.terms.table}: of the snapshot that was previewed, other counts came out",
                hint=f"If max-files or ttl-by was changed since, preview again: `neve ttl {quote(str(self.terms.table))}`.",
            )

    def _drop(self, done: TtlCounts) -> TtlCounts:
        """Whole files, in one commit; counted by what the snapshot says of itself."""
        change = _Drop(self)
        ours = self._commit(change)
        if ours is None:
            return done  # others removed them meanwhile
        self.snapshots.append(ours.snapshot_id)
        told = {name: int(ours.summary.get(key, 0)) for name, key in _DROPPED.items()}
        # The snapshot's own size has the vectors of these files in it.
        return done.model_copy(update={**told, "bytes_dropped": sum(file.size_bytes for file in change.files)})

    def _delete(self, done: TtlCounts) -> TtlCounts:
        """Row by row, in one commit. Counted on the snapshot that it was committed on, and compared with what it took out."""
        change = _Delete(self)
        ours = self._commit(change)
        if ours is not None:
            self.snapshots.append(ours.snapshot_id)
        if ours is not None and ours.parent_id is not None and self.context.writer.knows(ours.parent_id):
            return done.model_copy(update=self._proved_or_undone(ours, ours.parent_id))
        return done.model_copy(update={"files_touched": len(change.rows), "rows_deleted": sum(change.rows.values())})

    def _proved_or_undone(self, ours: Ancestor, parent: int) -> dict[str, int]:
        """What the delete removed. One whose rows cannot be counted is rolled back too, while nothing was committed on it."""
        try:
            return self._proved(ours, parent)
        except (CatalogUnreachableError, StorageError, VerificationError) as error:
            if not self.context.writer.roll_back(ours.snapshot_id, parent, self.terms.branch):
                raise
            self.snapshots.remove(ours.snapshot_id)
            raise _GivenUp(f"snapshot {ours.snapshot_id} was rolled back: its rows could not be counted: {error}") from error

    def _proved(self, ours: Ancestor, parent: int) -> dict[str, int]:
        """Counts what a delete removed, by the rows of every file that it changed. If any other row left, it is rolled back.

        Counted by rows and not by the snapshot's summary: that counts a row twice which two deletes name, and does not tell
        which column the statement went by.
        """
        before, after = self._changed(parent, ours.snapshot_id)
        old, new = self._tallies(parent, before), self._tallies(ours.snapshot_id, after)
        past = sum(tally.past for tally in old.values()) - sum(tally.past for tally in new.values())
        if wrong := wrongly_removed(old.values(), new.values()):
            self._roll_back(ours, f"{counted(past + wrong, 'row')} left the table and {past:,} of them were past their time")
        # Where writers need not wait for a delete, rows that came meanwhile are left for another time.
        touched = [path for path, tally in old.items() if tally.past > (new[path].past if path in new else 0)]
        return {"files_touched": len(touched), "rows_deleted": past}

    def _changed(self, parent: int, ours: int) -> tuple[list[str], list[str]]:
        """The files of either snapshot that the other does not have, or has with other deletes."""
        old, new = ({f.path: f for f in self.context.writer.scan(at, statistics=False)} for at in (parent, ours))
        same = {path for path in old.keys() & new.keys() if old[path].deletes == new[path].deletes}
        return sorted(old.keys() - same), sorted(new.keys() - same)

    def _tallies(self, snapshot_id: int, paths: list[str]) -> Mapping[str, Tally]:
        return self.rows.tallies(snapshot_id, paths, self.terms.rule, self.limits)

    def _roll_back(self, ours: Ancestor, wrong: str) -> None:
        head, branch = self.context.writer.head(self.terms.branch), self.terms.branch
        take_back(self.context.writer, [ours], wrong, head=head, branch=branch, run_id=self.run_id)
        self.snapshots.remove(ours.snapshot_id)
        raise _GivenUp(f"snapshot {ours.snapshot_id} was rolled back: {wrong}")

    def _commit(self, change: _RowRemoval) -> Ancestor | None:
        """Returns the snapshot of a change; None if there is nothing left to remove. Raises _GivenUp with the last failure."""
        writer, context = self.context.writer, self.context
        terms = Terms(
            f"run {self.run_id}, {change.stage}", Retry.of(writer.properties()), context.clock, context.sleep, self.assert_held
        )
        try:
            ended = commit_or_raise(change, terms)
        except VerificationError as error:  # the table is not the one that was planned for; a retry would not change that
            raise _GivenUp(str(error)) from error
        if ended.settled is None:
            raise _GivenUp(ended.failure)
        return ended.settled.result

    def _told(self, found: _Found, counts: TtlCounts, outcome: RunOutcome) -> TtlRecord:
        terms = self.terms
        nothing = "no row is past its time" if outcome is RunOutcome.NOTHING_TO_DO else None
        return TtlRecord(
            run_id=self.run_id,
            table=str(terms.table),
            table_uuid=terms.table_uuid,
            branch=terms.branch,
            operation=Operation.TTL,
            dry_run=terms.dry_run,
            outcome=outcome,
            reason=found.reason or nothing,
            not_due=(found.rule,) if nothing and found.rule is not None else (),
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            snapshot_before=self.begun_on,
            snapshots=tuple(self.snapshots),
            rule=terms.rule,
            cutoff_ms=terms.cutoff_ms,
            counts=counts,
            previewed_by=terms.previewed_by,
            files=tuple(file.path for file in found.past),
            unproved=found.unproved,
        )

    def report(self, stage: str) -> None:
        self.context.report(stage)


class _RowRemoval(Change[_Removed, Ancestor | None]):
    """One commit that removes rows. It asks for files that are live, or for rows that exist, so at most one attempt does
    anything."""

    stage: str

    def __init__(self, run: _Ttl) -> None:
        super().__init__()
        self._run, self._commit_id = run, uuid4().hex

    @property
    def summary(self) -> dict[str, str]:
        """Identifies the snapshot."""
        return {RUN_ID: self._run.run_id, COMMIT_ID: self._commit_id}

    def refresh(self) -> None:
        self._run.context.writer.refresh()

    def landed(self) -> Settled[Ancestor | None] | None:
        run, writer = self._run, self._run.context.writer
        head = writer.head(run.terms.branch)
        ancestors = writer.ancestry(head, run.begun_on) if head is not None else []
        ours = next((ancestor for ancestor in ancestors if ancestor.summary.get(COMMIT_ID) == self._commit_id), None)
        return Settled(ours) if ours is not None else None

    def is_named(self) -> bool:
        return bool(self._run.context.writer.snapshots_with(COMMIT_ID, self._commit_id))


class _Drop(_RowRemoval):
    """Drops files in which every row is past its time."""

    stage = "drop"
    files: tuple[LiveFile, ...] = ()

    def prepare(self) -> _Removed | Settled[Ancestor | None]:
        self._run.report(self.stage)
        self.files = self._run.look().past
        return _Removed() if self.files else Settled(None)

    def send(self, sent: _Removed) -> None:  # noqa: ARG002
        self._run.rows.drop([file.data_file for file in self.files], self.summary, self._run.terms.target)


class _Delete(_RowRemoval):
    """Deletes rows by the predicate of the rule."""

    stage = "delete"

    def __init__(self, run: _Ttl) -> None:
        super().__init__(run)
        self.rows: Mapping[str, int] = {}
        self.left_alone: list[str] = []

    def prepare(self) -> _Removed | Settled[Ancestor | None]:
        self._run.report(self.stage)
        found = self._run.look()
        inside = self._run.inside(found.head, found.unsure)
        self.left_alone = found.left_alone
        return _Removed(inside) if inside else Settled(None)

    def send(self, sent: _Removed) -> None:
        run = self._run
        run.rows.delete(run.terms.rule, run.limits, self.summary, run.terms.target, self.left_alone)
        self.rows = sent.rows
