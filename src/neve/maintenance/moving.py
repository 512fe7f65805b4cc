"""moving: carries the quarantine's steps out, each written down before it is done. Called by `maintenance.quarantine`.

A file that is about to move is RECORDED with its place in the trash: a kill in between leaves it on one of these sides or on
both, and the next run looks at both. Nothing is deleted outside of a trash directory but where the store keeps versions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from uuid import uuid4

from neve.core.maintenance import Operation
from neve.core.model import TableName
from neve.core.quarantine import Change, Fate, Quarantined, QuarantineRecord, Step, is_trash, trash_path
from neve.core.record import RunOutcome
from neve.flow.lease import leased
from neve.flow.tools import Sleeper
from neve.ports import Clock, FileStore, Leases, Progress, Quarantine, Reachability, TableWriter

log = logging.getLogger(__name__)

Decided = Sequence[tuple[Quarantined, Step]]

_TOLD = 20
"""Failures whose reasons are logged, and are in the record."""
_GC = "gc.enabled"


@dataclass(frozen=True)
class QuarantineTools:
    """Made by `compose` for one table."""

    store: Quarantine
    files: FileStore
    reach: Reachability
    writer: TableWriter
    clock: Clock
    sleep: Sleeper
    leases: Leases | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class QuarantineRequest:
    """Which files are meant: all of a table, or those of one run, and at most so many."""

    table: TableName
    table_uuid: str
    location: str
    run_id: str | None = None
    limit: int | None = None
    dry_run: bool = False


class Moving:
    """One operation under way."""

    def __init__(self, operation: Operation, request: QuarantineRequest, tools: QuarantineTools, *, in_place: Fate) -> None:
        self._operation, self._request, self._tools, self._in_place = operation, request, tools, in_place
        self._run_id = uuid4().hex
        self.started_ms = tools.clock.now_ms()
        self.counts = Counter[str]()
        """By the fields of the record."""
        self._seen = 0
        self._more = False
        self._reasons: list[str] = []
        self._runs: dict[str, None] = {}
        self._changes: list[Change] = []

    def run(self, work: Callable[[], None], nothing: str) -> QuarantineRecord:
        """Carries the work out under the table's lease, or without it where it only tells."""
        request, tools = self._request, self._tools
        words = {"leases": tools.leases, "writer": tools.writer, "clock": tools.clock}
        lease = leased(str(request.table), request.table_uuid, self._run_id, **words)  # type: ignore[arg-type]
        with nullcontext() if request.dry_run else lease:
            tools.writer.refresh()
            if self._operation is not Operation.RESTORE and tools.writer.properties().get(_GC, "true").lower() == "false":
                return self._record(f"the table property {_GC} is false, so that no file of the table is removed")
            work()
        return self._record(nothing)

    def due(self, fate: Fate, before_ms: int | None = None) -> Iterator[Quarantined]:
        """The files to be looked at, as far as the limit allows."""
        request = self._request
        words = {"fates": [fate], "run_id": request.run_id, "changed_before_ms": before_ms}
        files = self._tools.store.quarantined(request.table_uuid, **words)  # type: ignore[arg-type]
        yield from islice(files, request.limit)
        self._more = request.limit is not None and next(files, None) is not None

    def do(self, decided: Decided) -> None:
        """Carries steps out, or tells them."""
        self._seen += len(decided)
        for step, pairs in groupby(sorted(decided, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
            files = [file for file, _ in pairs]
            if self._request.dry_run:
                self._changes += [Change(path=f.path, step=step, reason=f.reason, size_bytes=f.size_bytes) for f in files]
                self._count_done(step, files)
            else:
                self._count_done(step, self._carry_out(step, files))
        if self._tools.progress:
            self._tools.progress(self._operation.value, self._seen, None)

    def _carry_out(self, step: Step, files: list[Quarantined]) -> list[Quarantined]:
        """Those for which it was done."""
        match step:
            case Step.STAY:
                return self._leave(files)
            case Step.BACK:
                return self._put_back(files)
            case Step.TRASH:
                request = self._request
                targets = {file.path: trash_path(file.path, file.run_id, request.location) for file in files}
                return self._discard(self._without_copies(files), targets)
            case Step.DELETE:
                return self._discard(self._without_copies(files), {file.path: file.path for file in files})
            case Step.DONE:
                self._settle((file, Fate.TRASHED, file.trash_path) for file in files)
            case Step.PURGE:
                return self._purge(files)
            case Step.GONE:
                self._settle((file, Fate.PURGED, None) for file in files)
        return files

    def _leave(self, files: list[Quarantined]) -> list[Quarantined]:
        whole = self._without_copies(files)
        self._settle((file, self._in_place, None) for file in whole)
        return whole

    def _put_back(self, files: list[Quarantined]) -> list[Quarantined]:
        self._settle((file, Fate.RECORDED, file.trash_path) for file in files)
        paths = {str(file.trash_path): file.path for file in files if not file.is_version}
        failures = {paths[trash]: why for trash, why in self._tools.files.move(list(paths.items())).items()}
        failures |= self._tools.files.undelete([file.path for file in files if file.is_version])
        back = self._without(files, failures)
        self._settle((file, self._in_place, None) for file in back)
        return back

    def _discard(self, files: list[Quarantined], targets: dict[str, str]) -> list[Quarantined]:
        """To where they can be had again: a place in the trash, or, where that is their own, the store's older versions."""
        self._settle((file, Fate.RECORDED, targets[file.path]) for file in files)
        moves = [(file.path, targets[file.path]) for file in files if targets[file.path] != file.path]
        failures = self._tools.files.move(moves)
        failures |= self._tools.files.delete([file.path for file in files if targets[file.path] == file.path])
        gone = self._without(files, failures)
        self._settle((file, Fate.TRASHED, targets[file.path]) for file in gone)
        return gone

    def _purge(self, files: list[Quarantined]) -> list[Quarantined]:
        """What the store keeps as an older version is left to the store's own rules."""
        gone = self._without(files, self._delete_from_trash([file for file in files if not file.is_version]))
        self._settle((file, Fate.PURGED, None) for file in gone)
        return gone

    def _without_copies(self, files: list[Quarantined]) -> list[Quarantined]:
        """Files that are in their place, rid of what a move that was interrupted may have left in the trash."""
        copied = [file for file in files if file.trash_path is not None and not file.is_version]
        return self._without(files, self._delete_from_trash(copied))

    def _delete_from_trash(self, files: list[Quarantined]) -> dict[str, str]:
        failures = {file.path: f"{file.trash_path} is in no trash" for file in files if not is_trash(str(file.trash_path))}
        paths = {str(file.trash_path): file.path for file in files if file.path not in failures}
        return failures | {paths[trash]: why for trash, why in self._tools.files.delete(list(paths)).items()}

    def _without(self, files: list[Quarantined], failures: dict[str, str]) -> list[Quarantined]:
        """The files for which nothing failed; the others are told, and stay as they were written down."""
        for path, why in failures.items():
            self._fail(path, why)
        return [file for file in files if file.path not in failures]

    def _fail(self, path: str, why: str) -> None:
        self.counts["failed"] += 1
        if len(self._reasons) < _TOLD:
            log.warning("%s %s: %s", self._operation, path, why)
            self._reasons.append(f"{path}: {why}")

    def _settle(self, changes: Iterable[tuple[Quarantined, Fate, str | None]]) -> None:
        told = ((file.path, fate, trash) for file, fate, trash in changes)
        self._tools.store.settle_doomed(self._request.table_uuid, told, self._tools.clock.now_ms())

    def _count_done(self, step: Step, files: list[Quarantined]) -> None:
        match step:
            case Step.STAY | Step.BACK if self._in_place is Fate.NEEDED:
                self.counts["needed"] += len(files)
            case Step.GONE:
                self.counts["missing"] += len(files)
            case Step.LOST | Step.REFUSE:
                for file in files:
                    self._fail(file.path, step.value)
            case _:
                self.counts["files"] += len(files)
                self.counts["size_bytes"] += sum(file.size_bytes or 0 for file in files)
                self._runs |= dict.fromkeys(file.run_id for file in files)

    def do_within(self, seconds: float, decided: Decided) -> None:
        """The same, and waits until so much time has passed since it began: what took long before is not made up for."""
        began_ms = self._tools.clock.now_ms()
        self.do(decided)
        left = seconds - (self._tools.clock.now_ms() - began_ms) / 1000
        if left > 0 and not self._request.dry_run:
            self._tools.sleep(left)

    def _record(self, nothing: str) -> QuarantineRecord:
        request, outcome = self._request, self._outcome()
        failure = next(iter(self._reasons), f"{self.counts['missing']:,} files are neither in their place nor in the trash")
        reason = {RunOutcome.NOTHING_TO_DO: nothing, RunOutcome.FAILED: failure}.get(outcome)
        return QuarantineRecord(
            run_id=self._run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=self._operation,
            dry_run=request.dry_run,
            outcome=outcome,
            reason=reason,
            started_ms=self.started_ms,
            finished_ms=self._tools.clock.now_ms(),
            **self.counts,
            failures=tuple(self._reasons),
            more=self._more,
            runs=tuple(self._runs),
            changes=tuple(self._changes),
        )

    def _outcome(self) -> RunOutcome:
        """A file that cannot be restored is a restore's failure; that one is missing is only told elsewhere."""
        if not self._seen:
            return RunOutcome.NOTHING_TO_DO
        lost = self.counts["purged"] + self.counts["missing"] if self._operation is Operation.RESTORE else 0
        if self.counts["failed"] or lost:
            return RunOutcome.PARTLY_DONE if self.counts["files"] or self.counts["needed"] else RunOutcome.FAILED
        return RunOutcome.DONE
