"""quarantine: files on their way out are looked at again and go to the trash (`settle`), leave it for good (`purge`) or come
back (`restore`). Called by `compose`.

What is needed never leaves its place. Each operation decides on a step for every file; a dry run tells these steps, a run has
them carried out by `operations.quarantine_moves`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from shlex import quote
from typing import TypeVar

from neve.errors import BadRequestError, NeveError
from neve.health.not_due import NotDue
from neve.maintenance.quarantine import (
    Fate,
    Quarantined,
    QuarantineRecord,
    QuarantineStep,
    Sides,
    is_trash,
    second_look,
    way_back,
)
from neve.maintenance.record import Operation
from neve.maintenance.removal import Unreachable
from neve.operations.quarantine_moves import Decided, Moving, QuarantineRequest, QuarantineTools
from neve.operations.registered import naming_restore

PORTION = 20_000
"""Files that the table is asked about at a time: asking is a pass over its metadata, and the answer must not be old when the
last of them is moved."""
PROOF_SECONDS = 300
"""How long a purge relies on one check at most: another table may start to need a file without a change of this one."""
FRESH_MS = 10_000
"""How long a purge relies on a check without asking whether the table has changed. A table that changes all the time would
otherwise be checked before each file."""
BATCH = 500

_T = TypeVar("_T")

log = logging.getLogger(__name__)


def settle(
    request: QuarantineRequest, tools: QuarantineTools, *, grace_seconds: float, at_once: bool = False, delete: bool = False
) -> QuarantineRecord:
    """Looks at recorded files again: what is needed stays, the rest goes to the trash.

    `at_once` does not wait for the grace time; with `delete` files are deleted in buckets that keep versions.
    """
    if delete and not tools.files.keeps_versions(request.location):
        raise BadRequestError(
            f"Cannot delete files of {request.table}: its storage keeps no older versions, so none could be restored",
            hint="Leave --delete away: files go to the trash, and are purged later.",
        )
    moving = Moving(Operation.SETTLE, request, tools, in_place=Fate.NEEDED)

    def look_again() -> None:
        before = moving.started_ms + 1 if at_once else moving.started_ms - round(grace_seconds * 1000)
        for portion in _batches(moving.due(Fate.RECORDED, before), PORTION):
            with naming_restore(Operation.SETTLE, request, tools):
                proof = _judged(portion, tools)
            try:
                for batch in _batches(portion, BATCH):
                    moving.do(_second_look(batch, proof, tools, delete=delete), proof)
            except Exception:
                moving.call_back(partial(_needed_since, proof, moving, tools))
                raise
            moving.call_back(partial(_needed_since, proof, moving, tools))

    return moving.run(
        look_again,
        "no file has been in the quarantine for the grace time and waits",
        lambda: moving.waiting(Fate.RECORDED, grace_seconds, "quarantine-grace", "in the quarantine"),
    )


def purge(request: QuarantineRequest, tools: QuarantineTools, *, keep_seconds: float, rate: float) -> QuarantineRecord:
    """Removes files for good that have been in the trash long enough, so many in a second. What is needed by now comes back."""
    moving = Moving(Operation.PURGE, request, tools, in_place=Fate.NEEDED)
    at_a_time = max(1, min(BATCH, int(rate)))

    def clear() -> None:
        portions = max(at_a_time, min(PORTION, int(rate * PROOF_SECONDS)))
        for portion in _batches(moving.due(Fate.TRASHED, moving.started_ms - round(keep_seconds * 1000)), portions):
            left = portion
            while left:
                left = purge_by_one_proof(left)

    def purge_by_one_proof(files: list[Quarantined]) -> list[Quarantined]:
        """Returns the files that remain to be judged again because the table has changed."""
        with naming_restore(Operation.PURGE, request, tools):
            proof = _judged(files, tools)
        for batch in _batches((file for file in files if file.path not in proof.paths), BATCH):
            moving.do(_missed(batch, tools), proof)
        left, judged_ms = [file for file in files if file.path in proof.paths], tools.clock.now_ms()
        while left and (tools.clock.now_ms() - judged_ms < FRESH_MS or moving.is_current(proof)):
            batch, left = left[:at_a_time], left[at_a_time:]
            moving.do_within(len(batch) / rate, [(file, QuarantineStep.PURGE) for file in batch], proof)
        return left

    return moving.run(
        clear,
        "no file has been in the trash for as long as files are kept there",
        lambda: moving.waiting(Fate.TRASHED, keep_seconds, "trash-keep", "in the trash"),
    )


def restore(request: QuarantineRequest, tools: QuarantineTools) -> QuarantineRecord:
    """Puts every file of a run back that is not purged; those that were only recorded are forgotten. Overwrites nothing."""
    moving = Moving(Operation.RESTORE, request, tools, in_place=Fate.RESTORED)
    moving.counts["purged"] = _purged(request, tools)

    def bring_back() -> None:
        # In this order: a file that cannot be put back is RECORDED afterwards, and would be tried twice.
        for fate in (Fate.RECORDED, Fate.TRASHED):
            for batch in _batches(moving.due(fate), BATCH):
                moving.do(_way_back(batch, tools), _proof_of_trash(batch, tools))

    in_place = "every file of the run is in its place"
    rule = NotDue(rule="restore", what=in_place, until="files of the run are moved to the trash")
    return moving.run(bring_back, in_place, lambda: rule)


def _purged(request: QuarantineRequest, tools: QuarantineTools) -> int:
    """How many files of the run are gone. Refuses a run of which there is nothing else."""
    ours = Counter(file.fate for file in tools.store.quarantined(request.table_uuid, run_id=request.run_id))
    refused = f"Cannot restore run {str(request.run_id)[:8]}"
    if not ours:
        hint = f"`neve quarantine list {quote(str(request.table))}` names the runs that did."
        raise BadRequestError(f"{refused}: it put no file of {request.table} into the quarantine", hint=hint)
    if ours.keys() == {Fate.PURGED}:
        hint = "trash-keep says how long files can be restored."
        raise BadRequestError(f"{refused}: all of its files are purged ({ours[Fate.PURGED]:,})", hint=hint)
    return ours[Fate.PURGED]


def _judged(portion: Sequence[Quarantined], tools: QuarantineTools) -> Unreachable:
    """The check that every removal needs: which of these files, in their place and in the trash, nothing needs now."""
    writer, places = tools.writer, (place for file in portion for place in (file.path, file.trash_path) if place is not None)
    return Unreachable.judged(
        list(dict.fromkeys(places)),
        lambda asked: _needed(asked, tools),
        lambda: (writer.uuid(), writer.metadata_location()),
    )


def _needed_since(
    proof: Unreachable, moving: Moving, tools: QuarantineTools, moved: Sequence[Quarantined]
) -> list[Quarantined]:
    """Those that the table needs now, although the proof says that it did not: asked only if the table has changed since."""
    if moving.is_current(proof):
        return []
    needed = _needed([file.path for file in moved], tools)
    return [file for file in moved if file.path in needed]


def _proof_of_trash(files: Sequence[Quarantined], tools: QuarantineTools) -> Unreachable:
    """For what a restore takes out of the trash: another table may have imported it from there.

    Where that cannot be told, since a table cannot be read, files are restored all the same, and stay in the trash as well.
    """
    moved = [file for file in files if file.trash_path is not None and not file.is_version]
    try:
        return _judged(moved, tools) if moved else Unreachable.of_nothing()
    except NeveError as error:
        log.warning("files stay in the trash as well: %s", error)
        return Unreachable.of_nothing()


def _needed(asked: Collection[str], tools: QuarantineTools) -> set[str]:
    """Those that the table needs now. An answer that names what was not asked for is none to move files by."""
    needed = set(tools.reach.needed(asked))
    if strangers := needed.difference(asked):
        raise NeveError(f"Cannot tell which files are needed: the answer names {min(strangers)}, which was not asked for")
    return needed


def _second_look(files: Sequence[Quarantined], proof: Unreachable, tools: QuarantineTools, *, delete: bool) -> Decided:
    decided = []
    for file, sides in _sides(files, tools):
        # What lies in a trash directory is the purge's business, whoever took it for an orphan.
        step = second_look(sides, needed=file.path not in proof.paths or is_trash(file.path))
        versioned = step is QuarantineStep.TRASH and delete and tools.files.keeps_versions(file.path)
        decided.append((file, QuarantineStep.DELETE if versioned else step))
    return decided


def _missed(files: Sequence[Quarantined], tools: QuarantineTools) -> Decided:
    """Needed files that are in the trash."""
    steps = ((file, way_back(file, sides)) for file, sides in _sides(files, tools))
    return [(file, QuarantineStep.LOST if step is QuarantineStep.GONE else step) for file, step in steps]


def _way_back(files: Sequence[Quarantined], tools: QuarantineTools) -> Decided:
    moved = [file for file in files if file.trash_path is not None]
    untouched = [(file, QuarantineStep.STAY) for file in files if file.trash_path is None]
    return [*untouched, *((file, way_back(file, sides)) for file, sides in _sides(moved, tools))]


def _sides(files: Sequence[Quarantined], tools: QuarantineTools) -> Iterator[tuple[Quarantined, Sides]]:
    """Where files are. One that may be the store's older version is taken to be that, unless it is in its place."""
    here = tools.files.sizes([file.path for file in files])
    moved = [file for file in files if file.trash_path is not None and not file.is_version]
    there = dict(zip((file.path for file in moved), tools.files.sizes([str(file.trash_path) for file in moved]), strict=True))
    for file, size in zip(files, here, strict=True):
        version = (file.size_bytes or 0) if file.is_version and size is None else None
        sides = Sides(size, version if file.is_version else there.get(file.path))
        yield _sized(file, size if size is not None else there.get(file.path)), sides


def _sized(file: Quarantined, size_bytes: int | None) -> Quarantined:
    """The file with its size, where nobody knew that when it was recorded."""
    is_new = file.size_bytes is None and size_bytes is not None
    return file.model_copy(update={"size_bytes": size_bytes}) if is_new else file


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
