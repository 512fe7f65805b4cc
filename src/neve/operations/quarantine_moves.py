"""moving: carries the quarantine's steps out, each written down before it is done. Called by `operations.quarantine`.

A file that is about to move is RECORDED with its place in the trash: a kill in between leaves it on one of these sides or on
both, and the next run looks at both. Nothing is deleted outside of a trash directory but where the store keeps versions, and no
location is emptied for which there is no proof that the table's metadata does not name it (`maintenance.removal`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from uuid import uuid4

from neve.commit.lease import leased
from neve.context.table import TableContext
from neve.errors import TableGoneError
from neve.health.not_due import NotDue
from neve.maintenance.quarantine import (
    Fate,
    FateChange,
    FileChange,
    Quarantined,
    QuarantineRecord,
    QuarantineStep,
    StoredFile,
    is_trash,
    trash_path,
    waits_for,
)
from neve.maintenance.record import Operation
from neve.maintenance.removal import Unreachable
from neve.ports import FileStore, Reachability
from neve.rewrite.record import RunOutcome
from neve.table.properties import GC_ENABLED, files_may_be_removed
from neve.table.state import TableName
from neve.table.units import counted

log = logging.getLogger(__name__)

Decided = Sequence[tuple[Quarantined, QuarantineStep]]

_TOLD = 20
"""Failures whose reasons are logged, and are in the record."""


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
    """One operation under way. `files` and `reach` are of the context's table; what its entry loads, `reach` sees.

    `recorded_for` returns the other table, such as a copy with the same uuid, that a file was recorded for; None for this
    table's file.
    """

    def __init__(
        self,
        operation: Operation,
        request: QuarantineRequest,
        context: TableContext,
        *,
        files: FileStore,
        reach: Reachability,
        recorded_for: Callable[[Quarantined], str | None] = lambda _: None,
    ) -> None:
        self.operation, self.request, self.context, self.files, self.reach = operation, request, context, files, reach
        self._recorded_for = recorded_for
        self._in_place = Fate.RESTORED if operation is Operation.RESTORE else Fate.NEEDED
        self._run_id = uuid4().hex
        self.started_ms = context.clock.now_ms()
        self.counts = Counter[str]()
        """By the fields of the record."""
        self._seen = 0
        self._more = False
        self._reasons: list[str] = []
        self._runs: dict[str, None] = {}
        self._changes: list[FileChange] = []
        self._elsewhere = Counter[str]()
        self._moved: list[Quarantined] = []
        """Files that have left their place since `call_back` was called last."""
        self._assert_held: Callable[[], None] = lambda: None
        """Raises if another process has taken the table over (`commit.lease`)."""

    def run(self, work: Callable[[], None], nothing: str, rule: Callable[[], NotDue]) -> QuarantineRecord:
        """Carries the work out under the table's lease, or without it where it only tells; if there is nothing to do, the
        record has the rule."""
        request, context = self.request, self.context
        access = {"leases": context.leases, "writer": context.entry, "clock": context.clock}
        lease = leased(str(request.table), request.table_uuid, self._run_id, **access)  # type: ignore[arg-type]
        with nullcontext() if request.dry_run else lease as held:
            self._assert_held = held.assert_held if held is not None else self._assert_held
            context.entry.refresh()
            self._require_same_table()
            properties = context.entry.properties()
            if self.operation is not Operation.RESTORE and not files_may_be_removed(properties):
                kept = f"the table property {GC_ENABLED} is {properties[GC_ENABLED]}, so no file is removed"
                return self._record(kept, NotDue(rule=GC_ENABLED, what=kept, knob=GC_ENABLED, until="it is true"))
            work()
        return self._record(nothing, None if self._seen else rule())

    def _require_same_table(self) -> None:
        """Also in a dry run, which takes no lease: by the metadata of a table with the same name every file would go."""
        request, found = self.request, self.context.entry.uuid()
        if found is not None and found.lower() != request.table_uuid.lower():
            raise TableGoneError(
                f"Cannot {self.operation} files of {request.table}: it was replaced by another table, with uuid {found}",
                hint="Its files stay in the quarantine. Run the command again to see the table that has the name now.",
            )

    def due(self, fate: Fate, before_ms: int | None = None) -> Iterator[Quarantined]:
        """The files to be looked at, as far as the limit allows."""
        request = self.request
        words = {"fates": [fate], "run_id": request.run_id, "changed_before_ms": before_ms}
        recorded = self.context.quarantine.quarantined(request.table_uuid, **words)  # type: ignore[arg-type]
        files = filter(self._is_ours, recorded)
        yield from islice(files, request.limit)
        self._more = request.limit is not None and next(files, None) is not None

    def _is_ours(self, file: Quarantined) -> bool:
        """Whether this table's metadata can tell if the file is needed. Putting a file back needs no such answer."""
        other = self._recorded_for(file) if self.operation is not Operation.RESTORE else None
        if other is not None:
            self._elsewhere[other] += 1
        return other is None

    def do(self, decided: Decided, proof: Unreachable, seen: Mapping[str, StoredFile] | None = None) -> None:
        """Carries steps out, or tells them; what leaves its place must be covered by the proof, and be as it was seen."""
        self._seen += len(decided)
        for step, pairs in groupby(sorted(decided, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
            files = [file for file, _ in pairs]
            if self.request.dry_run:
                self._changes += [FileChange(path=f.path, step=step, reason=f.reason, size_bytes=f.size_bytes) for f in files]
                self._count_done(step, files)
            else:
                self._assert_held()
                self._count_done(step, self._carry_out(step, files, proof, seen or {}))
        if self.context.progress:
            self.context.progress(self.operation.value, self._seen, None)

    def _carry_out(
        self, step: QuarantineStep, files: list[Quarantined], proof: Unreachable, seen: Mapping[str, StoredFile]
    ) -> list[Quarantined]:
        """Those for which it was done."""
        match step:
            case QuarantineStep.STAY:
                return self._leave(files, proof)
            case QuarantineStep.REWRITTEN:
                self._settle((file, self._in_place, None) for file in files)
            case QuarantineStep.BACK:
                return self._put_back(files, {str(file.trash_path) for file in files} - proof.paths)
            case QuarantineStep.TRASH:
                request = self.request
                targets = {file.path: trash_path(file.path, file.run_id, request.location) for file in files}
                return self._discard(self._without_copies(files, proof), targets, proof, seen)
            case QuarantineStep.DELETE:
                targets = {file.path: file.path for file in files}
                return self._discard(self._without_copies(files, proof), targets, proof, seen)
            case QuarantineStep.DONE:
                self._settle((file, Fate.TRASHED, file.trash_path) for file in files)
            case QuarantineStep.PURGE:
                return self._purge(files, proof)
            case QuarantineStep.GONE:
                self._settle((file, Fate.PURGED, None) for file in files)
        return files

    def _leave(self, files: list[Quarantined], proof: Unreachable) -> list[Quarantined]:
        whole = self._without_copies(files, proof)
        self._settle((file, self._in_place, None) for file in whole)
        return whole

    def _put_back(self, files: list[Quarantined], in_use: Collection[str]) -> list[Quarantined]:
        """Gives files their place again. Those that something names in the trash, or may name there, stay there as well."""
        self._settle((file, Fate.RECORDED, file.trash_path) for file in files)
        paths = {str(file.trash_path): file.path for file in files if not file.is_version}
        failed = self.files.put_back([move for move in paths.items() if move[0] not in in_use])
        if shared := [move for move in paths.items() if move[0] in in_use]:
            log.warning("%s files are copied out of the trash, such as %s: they may be in use there", len(shared), shared[0][0])
            failed |= self.files.copy_back(shared)
        failures = {paths[trash]: why for trash, why in failed.items()}
        failures |= self.files.undelete([file.path for file in files if file.is_version])
        back = self._without(files, failures)
        self._settle((file, self._in_place, None) for file in back)
        return back

    def _discard(
        self, files: list[Quarantined], targets: dict[str, str], proof: Unreachable, seen: Mapping[str, StoredFile]
    ) -> list[Quarantined]:
        """To where they can be had again: a place in the trash, or, where that is their own, the store's older versions."""
        self._settle((file, Fate.RECORDED, targets[file.path]) for file in files)
        moves = [(file.path, targets[file.path]) for file in files if targets[file.path] != file.path]
        failures = self.files.move(moves, proof, seen)
        failures |= self.files.delete([file.path for file in files if targets[file.path] == file.path], proof)
        gone = self._without(files, failures)
        self._settle((file, Fate.TRASHED, targets[file.path]) for file in gone)
        self._moved += [file.model_copy(update={"fate": Fate.TRASHED, "trash_path": targets[file.path]}) for file in gone]
        return gone

    def call_back(self, needed: Callable[[Sequence[Quarantined]], list[Quarantined]]) -> None:
        """Puts those of the moved files back that are needed now: somebody committed them between the proof and the move.

        Storage knows no lease: a process that was paused in between moves files that are no longer its own to judge. So this
        is done without the lease as well. It overwrites nothing.
        """
        moved, self._moved = self._moved, []
        if back := self._put_back(needed(moved), ()) if moved else []:
            log.warning("%s files are needed again and were put back, such as %s", len(back), back[0].path)
            self.counts["files"] -= len(back)
            self.counts["size_bytes"] -= sum(file.size_bytes or 0 for file in back)
            self.counts["needed"] += len(back)

    def _purge(self, files: list[Quarantined], proof: Unreachable) -> list[Quarantined]:
        """What the store keeps as an older version is left to the store's own rules."""
        gone = self._without(files, self._delete_from_trash([file for file in files if not file.is_version], proof))
        self._settle((file, Fate.PURGED, None) for file in gone)
        return gone

    def _without_copies(self, files: list[Quarantined], proof: Unreachable) -> list[Quarantined]:
        """Files that are in their place, rid of what a move that was interrupted may have left in the trash."""
        copied = [file for file in files if file.trash_path is not None and not file.is_version]
        return self._without(files, self._delete_from_trash(copied, proof))

    def _delete_from_trash(self, files: list[Quarantined], proof: Unreachable) -> dict[str, str]:
        failures = {
            file.path: f"{file.trash_path} may be in use" for file in files if str(file.trash_path) not in proof.paths
        } | {file.path: f"{file.trash_path} is in no trash" for file in files if not is_trash(str(file.trash_path))}
        paths = {str(file.trash_path): file.path for file in files if file.path not in failures}
        return failures | {paths[trash]: why for trash, why in self.files.delete(list(paths), proof).items()}

    def _without(self, files: list[Quarantined], failures: dict[str, str]) -> list[Quarantined]:
        """The files for which nothing failed; the others are told, and stay as they were written down."""
        for path, why in failures.items():
            self._fail(path, why)
        return [file for file in files if file.path not in failures]

    def _fail(self, path: str, why: str) -> None:
        self.counts["failed"] += 1
        if len(self._reasons) < _TOLD:
            log.warning("%s %s: %s", self.operation, path, why)
            self._reasons.append(f"{path}: {why}")

    def _settle(self, changes: Iterable[tuple[Quarantined, Fate, str | None]]) -> None:
        changed = (FateChange(file.path, fate, trash, file.size_bytes) for file, fate, trash in changes)
        self.context.quarantine.settle_candidates(self.request.table_uuid, changed, self.context.clock.now_ms())

    def _count_done(self, step: QuarantineStep, files: list[Quarantined]) -> None:
        match step:
            case QuarantineStep.STAY | QuarantineStep.BACK if self._in_place is Fate.NEEDED:
                self.counts["needed"] += len(files)
            case QuarantineStep.REWRITTEN:
                self.counts["rewritten"] += len(files)
            case QuarantineStep.GONE:
                self.counts["missing"] += len(files)
            case QuarantineStep.LOST | QuarantineStep.REFUSE:
                for file in files:
                    self._fail(file.path, step.value)
            case _:
                self.counts["files"] += len(files)
                self.counts["not_moved"] += len(files) if step is QuarantineStep.STAY else 0
                self.counts["size_bytes"] += sum(file.size_bytes or 0 for file in files)
                self.counts["files_without_size"] += sum(file.size_bytes is None for file in files)
                self._runs |= dict.fromkeys(file.run_id for file in files)

    def is_current(self, proof: Unreachable) -> bool:
        """Whether the table's metadata is still that by which the proof was judged; loads the table."""
        self.context.entry.refresh()
        return self.context.entry.metadata_location() == proof.metadata_location

    def do_within(self, seconds: float, decided: Decided, proof: Unreachable) -> None:
        """The same, and waits until so much time has passed since it began: what took long before is not made up for."""
        clock, began_ms = self.context.clock, self.context.clock.now_ms()
        self.do(decided, proof)
        left = seconds_left(seconds, began_ms, clock.now_ms())
        if left and not self.request.dry_run:
            self.context.sleep(left)

    def waiting(self, fate: Fate, wait_seconds: float, knob: str, where: str) -> NotDue:
        """The rule for files that have to stay somewhere for a time: when the oldest of them has."""
        request = self.request
        oldest = next(self.context.quarantine.quarantined(request.table_uuid, fates=[fate], run_id=request.run_id), None)
        return waits_for(None if oldest is None else oldest.changed_ms, wait_seconds, self.started_ms, knob=knob, where=where)

    def _record(self, nothing: str, rule: NotDue | None) -> QuarantineRecord:
        request, outcome, missing = self.request, self._outcome(), self.counts["missing"]
        where = "is neither in its place" if missing == 1 else "are neither in their place"
        failure = next(iter(self._reasons), f"{counted(missing, 'file')} {where} nor in the trash")
        reason = {RunOutcome.NOTHING_TO_DO: nothing, RunOutcome.FAILED: failure}.get(outcome)
        return QuarantineRecord(
            run_id=None if request.dry_run else self._run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=self.operation,
            dry_run=request.dry_run,
            outcome=outcome,
            reason=reason,
            not_due=(rule,) if rule is not None and outcome is RunOutcome.NOTHING_TO_DO else (),
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            **self.counts,
            failures=tuple(self._reasons),
            more=self._more,
            runs=tuple(self._runs),
            changes=tuple(self._changes),
            elsewhere=dict(self._elsewhere),
        )

    def _outcome(self) -> RunOutcome:
        """A file that cannot be restored is a restore's failure; that one is missing is only told elsewhere."""
        if not self._seen:
            return RunOutcome.NOTHING_TO_DO
        lost = self.counts["purged"] + self.counts["missing"] if self.operation is Operation.RESTORE else 0
        if self.counts["failed"] or lost:
            return RunOutcome.PARTLY_DONE if self.counts["files"] or self.counts["needed"] else RunOutcome.FAILED
        return RunOutcome.DONE


def seconds_left(seconds: float, began_ms: int, now_ms: int) -> float:
    """What is left of a time that began at a moment; 0 once it has passed."""
    return max(0.0, seconds - (now_ms - began_ms) / 1000)
