"""ttl: removes rows that are past their time, whole files by metadata first, then what is left of them row by row.

Called by `compose`. The cutoff is fixed before anything is looked at, so that a preview and an enforcement on the same snapshot
count the same. A file goes only if its metadata proves every row past; rows go by a predicate, so that nothing younger is ever
touched, whoever writes meanwhile. Commits are settled by looking at the table. No file is deleted: other refs have them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.live import Ancestor, LiveFile
from neve.core.maintenance import Operation
from neve.core.model import MAIN, RUN_ID, TableName
from neve.core.record import RunOutcome
from neve.core.ttl import Limits, TtlCounts, TtlRecord, TtlRule, Verdict, limits_of, verdict
from neve.core.units import counted
from neve.errors import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitUnknownError,
    StorageError,
    VerificationError,
)
from neve.flow.commit import COMMIT_ID, Retry, take_back, taken_over
from neve.flow.lease import leased
from neve.flow.tools import Tools
from neve.ports import PastRows

log = logging.getLogger(__name__)

_DROPPED = {"files_dropped": "deleted-data-files", "rows_dropped": "deleted-records"}
"""What the snapshot of a drop says of itself, by our names."""


@dataclass(frozen=True)
class TtlRequest:
    """What is asked for. `previewed` are the counts that a preview with the same cutoff told of a snapshot."""

    table: TableName
    table_uuid: str
    rule: TtlRule
    cutoff_ms: int
    max_files: int
    branch: str = MAIN
    dry_run: bool = False
    previewed_by: str | None = None
    previewed: tuple[int | None, TtlCounts] | None = None


def expire_rows(request: TtlRequest, tools: Tools, rows: PastRows) -> TtlRecord:
    """Previews or enforces. Raises where something could not be read or counted; a commit that lost is in the record."""
    run = _Ttl(request, tools, rows, uuid4().hex, tools.clock.now_ms(), limits_of(request.rule, request.cutoff_ms))
    if request.dry_run:
        return run.preview()
    table = (str(request.table), request.table_uuid)
    with leased(*table, run.run_id, leases=tools.leases, writer=tools.writer, clock=tools.clock):
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


class _GivenUp(Exception):  # noqa: N818 - ends a run with a record that says why
    pass


@dataclass
class _Ttl:
    request: TtlRequest
    tools: Tools
    rows: PastRows
    run_id: str
    started_ms: int
    limits: Limits
    snapshots: list[int] = field(default_factory=list)
    begun_on: int | None = None

    def preview(self) -> TtlRecord:
        """What would go."""
        found = self._look()
        counts = self._counts(found)
        return self._told(found, counts, RunOutcome.NOTHING_TO_DO if counts.nothing else RunOutcome.DONE)

    def enforce(self) -> TtlRecord:
        """Under the lease."""
        found = self._look()
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
        except _GivenUp as failure:
            outcome = RunOutcome.FAILED if done.nothing else RunOutcome.PARTLY_DONE
            return self._told(found, done, outcome).model_copy(update={"reason": str(failure)})
        return self._told(found, done, RunOutcome.DONE)

    def _look(self) -> _Found:
        """The newest head, judged."""
        self._progress("look")
        request, writer = self.request, self.tools.writer
        writer.refresh()
        head = writer.head(request.branch)
        self.begun_on = head if self.begun_on is None else self.begun_on
        specs = {spec.spec_id: spec for spec in self.tools.specs}
        past, unsure = [], []
        for file in self.rows.candidates(head, request.rule, self.limits) if head is not None else ():
            found = verdict(file, request.rule, self.limits, specs.get(int(file.data_file["spec-id"])))
            if found is Verdict.PAST:
                past.append(file)
            elif found is Verdict.UNSURE:
                unsure.append(file.path)
        return self._limited(head, past, unsure)

    def _limited(self, head: int | None, past: list[LiveFile], unsure: list[str]) -> _Found:
        """As much as one run may do. Rows wait until all whole files are gone: a delete by predicate would open these too."""
        limit = self.request.max_files
        chosen, over = tuple(past[:limit]), len(past) - limit
        if over > 0:
            return _Found(head, chosen, (), over + len(unsure), f"one run drops {counted(limit, 'file')} at most (max-files)")
        if unsure and self.request.rule.by == "file":
            return _Found(head, chosen, (), len(unsure), "files that may hold younger rows stay whole (ttl-by)")
        if len(unsure) > limit:
            return _Found(head, chosen, (), len(unsure), f"one run opens {counted(limit, 'file')} at most (max-files)")
        return _Found(head, chosen, tuple(unsure))

    def _counts(self, found: _Found) -> TtlCounts:
        self._progress("count")
        inside = self._inside(found.head, found.unsure)
        return TtlCounts(
            files_dropped=len(found.past),
            rows_dropped=sum(file.records for file in found.past),
            bytes_dropped=sum(file.size_bytes for file in found.past),
            files_touched=len(inside),
            rows_deleted=sum(inside.values()),
            files_left=found.left,
        )

    def _inside(self, head: int | None, unsure: tuple[str, ...]) -> Mapping[str, int]:
        if head is None or not unsure:
            return {}
        return self.rows.counts(head, unsure, self.request.rule, self.limits)

    def _check_preview(self, found: _Found, planned: TtlCounts) -> None:
        """On the snapshot that was previewed, with its cutoff, nothing else may come out."""
        snapshot, counts = self.request.previewed or (None, planned)
        if snapshot == found.head and counts != planned:
            raise VerificationError(
                f"Cannot enforce the limit of {self.request.table}: of the snapshot that was previewed, other counts came out",
                hint="If max-files or ttl-by was changed since, preview again: neve ttl without --enforce.",
            )

    def _drop(self, done: TtlCounts) -> TtlCounts:
        """Whole files, in one commit; counted by what the snapshot says of itself."""
        gone: tuple[LiveFile, ...] = ()

        def send(summary: Mapping[str, str]) -> bool:
            nonlocal gone
            gone = self._look().past
            if gone:
                self.rows.drop([file.data_file for file in gone], summary, self.request.branch)
            return bool(gone)

        ours = self._commit("drop", send)
        if ours is None:
            return done  # others removed them meanwhile
        self.snapshots.append(ours.snapshot_id)
        told = {name: int(ours.summary.get(key, 0)) for name, key in _DROPPED.items()}
        # The snapshot's own size has the vectors of these files in it.
        return done.model_copy(update={**told, "bytes_dropped": sum(file.size_bytes for file in gone)})

    def _delete(self, done: TtlCounts) -> TtlCounts:
        """Row by row, in one commit. Counted on the snapshot that it was committed on, and compared with what it took out."""
        gone: Mapping[str, int] = {}

        def send(summary: Mapping[str, str]) -> bool:
            nonlocal gone
            found = self._look()
            if not (inside := self._inside(found.head, found.unsure)):
                return False
            self.rows.delete(self.request.rule, self.limits, summary, self.request.branch)
            gone = inside  # should Iceberg drop whole files after all, its snapshot does not carry our id
            return True

        ours = self._commit("delete", send)
        if ours is not None:
            self.snapshots.append(ours.snapshot_id)
        if ours is not None and ours.parent_id is not None and self.tools.writer.knows(ours.parent_id):
            # Where writers need not wait for a delete, rows that came meanwhile are left for another time.
            before, left = self._past_at(ours.parent_id), self._past_at(ours.snapshot_id)
            gone = {path: rows - left.get(path, 0) for path, rows in before.items() if rows > left.get(path, 0)}
            self._prove(ours, sum(gone.values()))
        return done.model_copy(update={"files_touched": len(gone), "rows_deleted": sum(gone.values())})

    def _past_at(self, snapshot_id: int) -> Mapping[str, int]:
        """Rows past their time, by file."""
        paths = [file.path for file in self.rows.candidates(snapshot_id, self.request.rule, self.limits)]
        return self.rows.counts(snapshot_id, paths, self.request.rule, self.limits)

    def _prove(self, ours: Ancestor, past: int) -> None:
        """As many rows left the table as left it that were past. Otherwise the commit is taken back."""
        lost, exact = _rows_lost(ours.summary)
        if lost < past or (exact and lost != past):
            wrong = f"{counted(lost, 'row')} left the table and {past:,} of them were past their time"
            head, branch = self.tools.writer.head(self.request.branch), self.request.branch
            take_back(self.tools.writer, [ours], wrong, head=head, branch=branch, run_id=self.run_id)
            self.snapshots.remove(ours.snapshot_id)
            raise _GivenUp(f"snapshot {ours.snapshot_id} was taken back, for {wrong}")

    def _commit(self, stage: str, send: Callable[[Mapping[str, str]], bool]) -> Ancestor | None:
        """Sends until it has landed; None once there is nothing left to send. Raises _GivenUp with the last failure.

        What is sent asks for files that are live, or for rows that are there: of several tries one at most does anything.
        """
        commit_id, retry, failure = uuid4().hex, Retry.of(self.tools.writer.properties()), ""
        summary = {RUN_ID: self.run_id, COMMIT_ID: commit_id}
        for attempt in range(retry.attempts):
            if attempt:
                log.warning("run %s, %s, attempt %s: %s", self.run_id, stage, attempt, failure)
                self.tools.sleep(retry.wait_seconds(attempt - 1, random.random()))  # noqa: S311
            try:
                self.tools.writer.refresh()
                if attempt and (landed := self._landed(commit_id)) is not None:
                    return landed
                if (other := taken_over(self.tools.writer, self.run_id, self.tools.clock)) is not None:
                    raise _GivenUp(other)
                self._progress(stage)
                if not send(summary):
                    return None
                failure = "the commit answered, but is not to be found"
            except (CommitConflictError, CommitUnknownError, CatalogUnreachableError, StorageError) as error:
                failure = str(error)
            with suppress(CatalogUnreachableError, StorageError):
                self.tools.writer.refresh()
                if (landed := self._landed(commit_id)) is not None:
                    return landed
        return self._found_late(commit_id, retry, failure)

    def _found_late(self, commit_id: str, retry: Retry, failure: str) -> Ancestor:
        """What became of the tries, should the catalog not have answered after the last."""
        for check in range(retry.checks):
            self.tools.sleep(retry.wait_seconds(retry.attempts - 1 + check, random.random()))  # noqa: S311
            with suppress(CatalogUnreachableError, StorageError):
                self.tools.writer.refresh()
                if (landed := self._landed(commit_id)) is not None:
                    return landed
                break
        raise _GivenUp(failure)

    def _landed(self, commit_id: str) -> Ancestor | None:
        head = self.tools.writer.head(self.request.branch)
        ancestors = self.tools.writer.ancestry(head, self.begun_on) if head is not None else []
        return next((ancestor for ancestor in ancestors if ancestor.summary.get(COMMIT_ID) == commit_id), None)

    def _told(self, found: _Found, counts: TtlCounts, outcome: RunOutcome) -> TtlRecord:
        request = self.request
        nothing = "no row is past its time" if outcome is RunOutcome.NOTHING_TO_DO else None
        return TtlRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            branch=request.branch,
            operation=Operation.TTL,
            dry_run=request.dry_run,
            outcome=outcome,
            reason=found.reason or nothing,
            started_ms=self.started_ms,
            finished_ms=self.tools.clock.now_ms(),
            snapshot_before=self.begun_on,
            snapshots=tuple(self.snapshots),
            rule=request.rule,
            cutoff_ms=request.cutoff_ms,
            counts=counts,
            previewed_by=request.previewed_by,
            files=tuple(file.path for file in found.past),
        )

    def _progress(self, stage: str) -> None:
        if self.tools.progress:
            self.tools.progress(stage, 0, None)


def _rows_lost(summary: Mapping[str, str]) -> tuple[int, bool]:
    """Rows that a DELETE took out, by its snapshot; exact unless files were rewritten that had deletes, whose rows went too."""

    def number(key: str) -> int:
        return int(summary.get(key, 0))

    rewritten = number("deleted-records") - number("added-records")
    by_position = number("added-position-deletes") - number("removed-position-deletes")
    had_deletes = number("total-delete-files") or number("removed-delete-files")
    return rewritten + by_position, not (number("deleted-data-files") and had_deletes)
