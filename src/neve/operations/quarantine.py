"""quarantine: files on their way out are looked at again and go to the trash (`settle`), leave it for good (`purge`) or come
back (`restore`).

What is needed never leaves its place. Each operation decides on a step for every file; a dry run tells these steps, a run has
them carried out by `operations.quarantine_moves`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

from neve.context.runs import find_run
from neve.context.table import TableContext
from neve.errors import BadRequestError, NeveError, TableNotFoundError
from neve.health.not_due import NotDue
from neve.maintenance.orphans import is_checkpoint
from neve.maintenance.quarantine import (
    Fate,
    Quarantined,
    QuarantinedRun,
    QuarantineRecord,
    QuarantineStep,
    Sides,
    StoredFile,
    is_judged_file,
    is_trash,
    second_look,
    waiting_since_ms,
    waits_for,
    way_back,
)
from neve.maintenance.record import Operation
from neve.maintenance.removal import Unreachable
from neve.maintenance.steps import Judgement
from neve.operations.file_index import EveryTable, open_index, trust_of
from neve.operations.quarantine_moves import Decided, Moving, QuarantineRequest
from neve.operations.reachable import open_reachable
from neve.operations.requests import PurgeRequest, RestoreRequest, SettleRequest
from neve.operations.trash_needed import naming_restore
from neve.table.location import Spellings, inner_path
from neve.table.units import counted, exact_seconds

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.state.rows import Run

PORTION = 20_000
"""Files that the table is asked about at a time: asking is a pass over its metadata, and the answer must not be old when the
last of them is moved."""
PROOF_SECONDS = 300
"""How long a purge relies on one check at most: another table may start to need a file without a change of this one."""
FRESH_MS = 10_000
"""How long a purge relies on a check without asking whether the table has changed. A table that changes all the time would
otherwise be checked before each file."""
BATCH = 500
KIND = "quarantine"
"""What runs of `settle`, `purge` and `restore` are called in the state store."""
EXPIRED_STAYS = (
    "the expired snapshots are not restored, only their files. To read them, register an older metadata file of the table "
    "under another name"
)

_T = TypeVar("_T")

log = logging.getLogger(__name__)


def runs_of(context: TableContext) -> tuple[QuarantinedRun, ...]:
    """How many files each run put into the quarantine, by reason and fate."""
    return () if context.records is None else context.records.quarantined_runs(context.uuid)


def files_of(context: TableContext, run: str | None) -> Iterator[Quarantined]:
    """The files of all runs or of one, oldest first, as they are read."""
    run_id = _chosen(context, run) if run is not None else None
    return iter(()) if context.records is None else context.records.quarantined(context.uuid, run_id=run_id)


def run_settle(context: TableContext, request: SettleRequest) -> QuarantineRecord:
    """Checks recorded files again."""
    run_id = _chosen(context, request.run) if request.run is not None else None
    asked = _request(context, run_id, request.limit, dry_run=request.dry_run)
    words = {"at_once": request.at_once, "delete": request.delete}
    grace = context.policy().quarantine_grace_seconds
    return _run(context, Operation.SETTLE, asked, lambda moving: settle(moving, grace_seconds=grace, **words))


def run_purge(context: TableContext, request: PurgeRequest) -> QuarantineRecord:
    """Removes for good what has been in the trash long enough."""
    asked, policy = _request(context, None, request.limit, dry_run=request.dry_run), context.policy()
    terms = {"keep_seconds": policy.trash_keep_seconds, "rate": policy.purge_rate}
    return _run(context, Operation.PURGE, asked, lambda moving: purge(moving, **terms))


def table_of(connection: Connection, request: RestoreRequest) -> str:
    """The table that is named, else that of the run."""
    return request.table or find_run(connection.records(), connection.clock, request.run).table_name


def run_restore(context: TableContext, request: RestoreRequest) -> QuarantineRecord:
    """Puts the files of a run back. If a table is named, the run may have been killed before it was recorded."""
    found = find_run(context.records, context.clock, request.run) if request.table is None else None
    if found is not None and found.table_uuid != context.uuid:
        message = f"Cannot restore run {found.run_id[:8]}: {context.name} is another table than it was then"
        raise BadRequestError(message, hint=_hint_for_another_table(found, str(context.name)))
    run_id = found.run_id if found is not None else _chosen(context, request.run)
    known = context.records.run(run_id) if context.records is not None else None
    note = EXPIRED_STAYS if known is not None and known.kind == Operation.EXPIRE.value else None
    asked = _request(context, run_id, None, dry_run=request.dry_run)
    return _run(context, Operation.RESTORE, asked, lambda moving: restore(moving).model_copy(update={"note": note}))


def is_settle_due(context: TableContext) -> Judgement:
    """Whether a recorded file has waited for the grace time."""
    return _waited(context, Fate.RECORDED, "quarantine-grace", context.policy().quarantine_grace_seconds, "in the quarantine")


def is_purge_due(context: TableContext) -> Judgement:
    """Whether a file has been in the trash long enough."""
    return _waited(context, Fate.TRASHED, "trash-keep", context.policy().trash_keep_seconds, "in the trash")


def _waited(context: TableContext, fate: Fate, knob: str, wait: float, where: str) -> Judgement:
    records, now = context.records, context.clock.now_ms()
    before = waiting_since_ms(now, wait)
    if records is not None and next(records.quarantined(context.uuid, fates=[fate], changed_before_ms=before), None):
        there = sum(row.files for row in records.quarantined_runs(context.uuid) if row.fate is fate)
        return Judgement(due=True, why=f"{counted(there, 'file')} {where}, some for {exact_seconds(wait)}")
    oldest = next(records.quarantined(context.uuid, fates=[fate]), None) if records is not None else None
    return Judgement.unmet(waits_for(oldest.changed_ms if oldest else None, wait, now, knob=knob, where=where))


def _chosen(context: TableContext, run: str) -> str:
    """The run whose id begins so, of those that have files of the table in the quarantine."""
    found = sorted({row.run_id for row in runs_of(context) if row.run_id.startswith(run)})
    if len(found) == 1:
        return found[0]
    table = context.table
    message = f"Cannot choose run {run!r}: {len(found) or 'no'} runs with files of {table} in the quarantine begin so"
    raise BadRequestError(message, hint=f"`neve quarantine list {quote(table)}` names them.")


def _request(context: TableContext, run_id: str | None, limit: int | None, *, dry_run: bool) -> QuarantineRequest:
    if not dry_run:
        context.require_free()
    return QuarantineRequest(context.name, context.uuid, context.state.location, run_id, limit, dry_run)


def _run(
    context: TableContext, operation: Operation, asked: QuarantineRequest, carry_out: Callable[[Moving], QuarantineRecord]
) -> QuarantineRecord:
    """Carries an operation out, and records it unless there was nothing to do."""
    from neve.storage.files import RealDirectories
    from neve.storage.moves import StoredFiles

    entry, connection = context.entry, context.connection
    with ExitStack() as resources:
        reach = open_reachable(context, entry)
        index = open_index(connection, context.store, resources)
        everywhere = EveryTable(context.name, reach, index, RealDirectories, trust_of(connection))
        owners = _Owners(context, entry.location())
        files = StoredFiles(context.storage_properties())
        moving = Moving(operation, asked, context, files=files, reach=everywhere, recorded_for=owners.other_table)
        record = carry_out(moving)
    return record if record.dry_run else context.recorded(record, KIND)


class _Owners:
    """Tells for which table a file was recorded. Asked once per operation: a name that was free may be a table by the next."""

    def __init__(self, context: TableContext, location: str) -> None:
        self._context, self._location = context, location
        self._runs: dict[str, Run | None] = {}
        self._gone: dict[str, bool] = {}

    def other_table(self, file: Quarantined) -> str | None:
        """Returns the name of the other table that a file was recorded for, None for a file of this table.

        A copy of a table has the same uuid, and this table's metadata does not name what the copy needs. A file outside of this
        table's location is this table's only if it was recorded under the same name, or under one that no table has any more.
        """
        if _is_inside(file.path, self._location):
            return None
        if file.run_id not in self._runs:
            self._runs[file.run_id] = self._context.store.run(file.run_id)
        run = self._runs[file.run_id]
        if run is None:
            return "an unknown table"
        return None if run.table_name == str(self._context.name) or self._is_gone(run) else run.table_name

    def _is_gone(self, run: Run) -> bool:
        """Whether a configured catalog says that the run's table is not under that name any more."""
        if run.table_name not in self._gone:
            self._gone[run.table_name] = self._has_no(run.table_name, run.table_uuid)
        return self._gone[run.table_name]

    def _has_no(self, table: str, uuid: str) -> bool:
        connection = self._context.connection
        try:
            if str(connection.name(table)) != table:
                return False  # its catalog is not configured, so that the name would be looked up in another one
            return TableContext(connection, table).uuid != uuid
        except TableNotFoundError:
            return True
        except NeveError:
            return False  # a catalog that does not answer says nothing


def _is_inside(path: str, location: str) -> bool:
    spellings = Spellings.of()
    return spellings.parse(location.rstrip("/")).holds(spellings.parse(path))


def _hint_for_another_table(run: Run, table: str) -> str:
    return (
        "If its table was renamed, add --table with the new name. If it was dropped and created again, "
        f"`neve orphans {quote(table)} --dropped-table {run.table_uuid}` takes over what it left, and then "
        f"`neve restore {run.run_id[:8]} --table {quote(table)}` brings the files back."
    )


def settle(moving: Moving, *, grace_seconds: float, at_once: bool = False, delete: bool = False) -> QuarantineRecord:
    """Looks at recorded files again: what is needed stays, the rest goes to the trash.

    `at_once` does not wait for the grace time; with `delete` files are deleted in buckets that keep versions.
    """
    if delete and not moving.files.keeps_versions(moving.request.location):
        raise BadRequestError(
            f"Cannot delete files of {moving.request.table}: its storage keeps no older versions, so none could be restored",
            hint="Leave --delete away: files go to the trash, and are purged later.",
        )

    def look_again() -> None:
        before = moving.started_ms + 1 if at_once else waiting_since_ms(moving.started_ms, grace_seconds)
        for portion in _batches(moving.due(Fate.RECORDED, before), PORTION):
            with naming_restore(moving):
                proof = _judged(portion, moving)
            try:
                for batch in _batches(portion, BATCH):
                    decided, seen = _second_look(batch, proof, moving, delete=delete)
                    moving.do(decided, proof, seen)
            except Exception:
                moving.call_back(partial(_needed_since, proof, moving))
                raise
            moving.call_back(partial(_needed_since, proof, moving))

    return moving.run(
        look_again,
        "no file has been in the quarantine for the grace time and waits",
        lambda: moving.waiting(Fate.RECORDED, grace_seconds, "quarantine-grace", "in the quarantine"),
    )


def purge(moving: Moving, *, keep_seconds: float, rate: float) -> QuarantineRecord:
    """Removes files for good that have been in the trash long enough, so many in a second. What is needed by now comes back."""
    at_a_time = max(1, min(BATCH, int(rate)))

    def clear() -> None:
        portions = max(at_a_time, min(PORTION, int(rate * PROOF_SECONDS)))
        for portion in _batches(moving.due(Fate.TRASHED, waiting_since_ms(moving.started_ms, keep_seconds)), portions):
            left = portion
            while left:
                left = purge_by_one_proof(left)

    def purge_by_one_proof(files: list[Quarantined]) -> list[Quarantined]:
        """Returns the files that remain to be judged again because the table has changed."""
        with naming_restore(moving):
            proof = _judged(files, moving)
        for batch in _batches((file for file in files if file.path not in proof.paths), BATCH):
            moving.do(_missed(batch, moving), proof)
        left, judged_ms = [file for file in files if file.path in proof.paths], moving.context.clock.now_ms()
        while left and (moving.context.clock.now_ms() - judged_ms < FRESH_MS or moving.is_current(proof)):
            batch, left = left[:at_a_time], left[at_a_time:]
            moving.do_within(len(batch) / rate, [(file, QuarantineStep.PURGE) for file in batch], proof)
        return left

    return moving.run(
        clear,
        "no file has been in the trash for as long as files are kept there",
        lambda: moving.waiting(Fate.TRASHED, keep_seconds, "trash-keep", "in the trash"),
    )


def restore(moving: Moving) -> QuarantineRecord:
    """Puts every file of a run back that is not purged; those that were only recorded are forgotten. Overwrites nothing."""
    moving.counts["purged"] = _purged(moving)

    def bring_back() -> None:
        # In this order: a file that cannot be put back is RECORDED afterwards, and would be tried twice.
        for fate in (Fate.RECORDED, Fate.TRASHED):
            for batch in _batches(moving.due(fate), BATCH):
                moving.do(_way_back(batch, moving), _proof_of_trash(batch, moving))

    in_place = "every file of the run is in its place"
    rule = NotDue(rule="restore", what=in_place, until="files of the run are moved to the trash")
    return moving.run(bring_back, in_place, lambda: rule)


def _purged(moving: Moving) -> int:
    """How many files of the run are gone. Refuses a run of which there is nothing else."""
    request, store = moving.request, moving.context.quarantine
    ours = Counter(file.fate for file in store.quarantined(request.table_uuid, run_id=request.run_id))
    refused = f"Cannot restore run {str(request.run_id)[:8]}"
    if not ours:
        hint = f"`neve quarantine list {quote(str(request.table))}` names the runs that did."
        raise BadRequestError(f"{refused}: it put no file of {request.table} into the quarantine", hint=hint)
    if ours.keys() == {Fate.PURGED}:
        hint = "trash-keep says how long files can be restored."
        raise BadRequestError(f"{refused}: all of its files are purged ({ours[Fate.PURGED]:,})", hint=hint)
    return ours[Fate.PURGED]


def _judged(portion: Sequence[Quarantined], moving: Moving) -> Unreachable:
    """The check that every removal needs: which of these files, in their place and in the trash, nothing needs now."""
    entry = moving.context.entry
    places = (place for file in portion for place in (file.path, file.trash_path) if place is not None)

    def identity() -> tuple[str | None, str]:
        entry.refresh()
        return entry.uuid(), entry.metadata_location()

    return Unreachable.judged(list(dict.fromkeys(places)), lambda asked: _needed(asked, moving), identity)


def _needed_since(proof: Unreachable, moving: Moving, moved: Sequence[Quarantined]) -> list[Quarantined]:
    """Those that the table needs now, although the proof says that it did not: asked only if the table has changed since."""
    if moving.is_current(proof):
        return []
    needed = _needed([file.path for file in moved], moving)
    return [file for file in moved if file.path in needed]


def _proof_of_trash(files: Sequence[Quarantined], moving: Moving) -> Unreachable:
    """For what a restore takes out of the trash: another table may have imported it from there.

    Where that cannot be told, since a table cannot be read, files are restored all the same, and stay in the trash as well.
    """
    moved = [file for file in files if file.trash_path is not None and not file.is_version]
    try:
        return _judged(moved, moving) if moved else Unreachable.of_nothing()
    except NeveError as error:
        log.warning("files stay in the trash as well: %s", error)
        return Unreachable.of_nothing()


def _needed(asked: Collection[str], moving: Moving) -> set[str]:
    """Those that the table needs now. An answer that names what was not asked for is none to move files by."""
    needed = set(moving.reach.needed(asked))
    if strangers := needed.difference(asked):
        raise NeveError(f"Cannot tell which files are needed: the answer names {min(strangers)}, which was not asked for")
    return needed


def _second_look(
    files: Sequence[Quarantined], proof: Unreachable, moving: Moving, *, delete: bool
) -> tuple[Decided, dict[str, StoredFile]]:
    """What is to be done with files, and how they were seen in their place."""
    decided, seen = [], dict[str, StoredFile]()
    for file, sides, found in _looked_at(files, moving):
        needed = file.path not in proof.paths or _is_of_others(file.path, moving)
        step = second_look(sides, needed=needed, rewritten=found is not None and not is_judged_file(file, found))
        versioned = step is QuarantineStep.TRASH and delete and moving.files.keeps_versions(file.path)
        decided.append((file, QuarantineStep.DELETE if versioned else step))
        seen |= {file.path: found} if found is not None else {}
    return decided, seen


def _is_of_others(path: str, moving: Moving) -> bool:
    """Whether a file stays whoever took it for an orphan: one in a trash directory, or of a stream's checkpoint."""
    return is_trash(path) or is_checkpoint(inner_path(moving.request.location, path) or "")


def _missed(files: Sequence[Quarantined], moving: Moving) -> Decided:
    """Needed files that are in the trash."""
    steps = ((file, way_back(file, sides)) for file, sides in _sides(files, moving))
    return [(file, QuarantineStep.LOST if step is QuarantineStep.GONE else step) for file, step in steps]


def _way_back(files: Sequence[Quarantined], moving: Moving) -> Decided:
    moved = [file for file in files if file.trash_path is not None]
    untouched = [(file, QuarantineStep.STAY) for file in files if file.trash_path is None]
    return [*untouched, *((file, way_back(file, sides)) for file, sides in _sides(moved, moving))]


def _sides(files: Sequence[Quarantined], moving: Moving) -> Iterator[tuple[Quarantined, Sides]]:
    return ((file, sides) for file, sides, _ in _looked_at(files, moving))


def _looked_at(files: Sequence[Quarantined], moving: Moving) -> Iterator[tuple[Quarantined, Sides, StoredFile | None]]:
    """Where files are, and what is in their place. One that may be the store's older version is taken to be that, unless it is
    in its place."""
    here = moving.files.stat([file.path for file in files])
    moved = [file for file in files if file.trash_path is not None and not file.is_version]
    copies = moving.files.stat([str(file.trash_path) for file in moved])
    there = {file.path: copy.size_bytes for file, copy in zip(moved, copies, strict=True) if copy is not None}
    for file, found in zip(files, here, strict=True):
        size = found.size_bytes if found is not None else None
        version = (file.size_bytes or 0) if file.is_version and size is None else None
        sides = Sides(size, version if file.is_version else there.get(file.path))
        yield _sized(file, size if size is not None else there.get(file.path)), sides, found


def _sized(file: Quarantined, size_bytes: int | None) -> Quarantined:
    """The file with its size, where nobody knew that when it was recorded."""
    is_new = file.size_bytes is None and size_bytes is not None
    return file.model_copy(update={"size_bytes": size_bytes}) if is_new else file


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
