"""quarantine: files on their way out are looked at again and go to the trash (`settle`), leave it for good (`purge`) or come
back (`restore`). Called by `compose`.

What is needed never leaves its place. Each operation decides on a step for every file; a dry run tells these steps, a run has
them carried out by `maintenance.moving`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from neve.core.maintenance import Operation
from neve.core.quarantine import Fate, Quarantined, QuarantineRecord, Sides, Step, is_trash, second_look, way_back
from neve.errors import BadRequestError, NeveError
from neve.maintenance.moving import Decided, Moving, QuarantineRequest, QuarantineTools

PORTION = 20_000
"""Files that the table is asked about at a time: asking is a pass over its metadata, and the answer must not be old when the
last of them is moved."""
BATCH = 500

_T = TypeVar("_T")


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
            needed = _needed(portion, tools)
            for batch in _batches(portion, BATCH):
                moving.do(_second_look(batch, needed, tools, delete=delete))

    return moving.run(look_again, "no file has been in the quarantine for the grace time and waits")


def purge(request: QuarantineRequest, tools: QuarantineTools, *, keep_seconds: float, rate: float) -> QuarantineRecord:
    """Removes files for good that have been in the trash long enough, so many in a second. What is needed by now comes back."""
    moving = Moving(Operation.PURGE, request, tools, in_place=Fate.NEEDED)
    at_a_time = max(1, min(BATCH, int(rate)))

    def clear() -> None:
        for portion in _batches(moving.due(Fate.TRASHED, moving.started_ms - round(keep_seconds * 1000)), PORTION):
            needed = _needed(portion, tools)
            for batch in _batches((file for file in portion if file.path in needed), BATCH):
                moving.do(_missed(batch, tools))
            for batch in _batches((file for file in portion if file.path not in needed), at_a_time):
                moving.do_within(len(batch) / rate, [(file, Step.PURGE) for file in batch])

    return moving.run(clear, "no file has been in the trash for as long as files are kept there")


def restore(request: QuarantineRequest, tools: QuarantineTools) -> QuarantineRecord:
    """Puts every file of a run back that is not purged; those that were only recorded are forgotten. Overwrites nothing."""
    moving = Moving(Operation.RESTORE, request, tools, in_place=Fate.RESTORED)
    moving.counts["purged"] = _purged(request, tools)

    def bring_back() -> None:
        # In this order: a file that cannot be put back is RECORDED afterwards, and would be tried twice.
        for fate in (Fate.RECORDED, Fate.TRASHED):
            for batch in _batches(moving.due(fate), BATCH):
                moving.do(_way_back(batch, tools))

    return moving.run(bring_back, "every file of the run is in its place")


def _purged(request: QuarantineRequest, tools: QuarantineTools) -> int:
    """How many files of the run are gone. Refuses a run of which there is nothing else."""
    ours = Counter(file.fate for file in tools.store.quarantined(request.table_uuid, run_id=request.run_id))
    refused = f"Cannot restore run {str(request.run_id)[:8]}"
    if not ours:
        hint = "neve quarantine list TABLE names the runs that did."
        raise BadRequestError(f"{refused}: it put no file of {request.table} into the quarantine", hint=hint)
    if ours.keys() == {Fate.PURGED}:
        hint = "trash-keep says how long files can be restored."
        raise BadRequestError(f"{refused}: all of its files are purged ({ours[Fate.PURGED]:,})", hint=hint)
    return ours[Fate.PURGED]


def _needed(portion: Sequence[Quarantined], tools: QuarantineTools) -> set[str]:
    """Those that the table needs now. An answer that names what was not asked for is none to move files by."""
    asked = [file.path for file in portion]
    needed = set(tools.reach.needed(asked))
    if strangers := needed.difference(asked):
        raise NeveError(f"Cannot tell which files are needed: the answer names {min(strangers)}, which was not asked for")
    return needed


def _second_look(files: Sequence[Quarantined], needed: set[str], tools: QuarantineTools, *, delete: bool) -> Decided:
    decided = []
    for file, sides in _sides(files, tools):
        # What lies in a trash directory is the purge's business, whoever took it for an orphan.
        step = second_look(sides, needed=file.path in needed or is_trash(file.path))
        versioned = step is Step.TRASH and delete and tools.files.keeps_versions(file.path)
        decided.append((file, Step.DELETE if versioned else step))
    return decided


def _missed(files: Sequence[Quarantined], tools: QuarantineTools) -> Decided:
    """Needed files that are in the trash."""
    steps = ((file, way_back(file, sides)) for file, sides in _sides(files, tools))
    return [(file, Step.LOST if step is Step.GONE else step) for file, step in steps]


def _way_back(files: Sequence[Quarantined], tools: QuarantineTools) -> Decided:
    moved = [file for file in files if file.trash_path is not None]
    untouched = [(file, Step.STAY) for file in files if file.trash_path is None]
    return [*untouched, *((file, way_back(file, sides)) for file, sides in _sides(moved, tools))]


def _sides(files: Sequence[Quarantined], tools: QuarantineTools) -> Iterator[tuple[Quarantined, Sides]]:
    """Where files are. One that may be the store's older version is taken to be that, unless it is in its place."""
    here = tools.files.sizes([file.path for file in files])
    moved = [file for file in files if file.trash_path is not None and not file.is_version]
    there = dict(zip((file.path for file in moved), tools.files.sizes([str(file.trash_path) for file in moved]), strict=True))
    for file, size in zip(files, here, strict=True):
        version = (file.size_bytes or 0) if file.is_version and size is None else None
        yield file, Sides(size, version if file.is_version else there.get(file.path))


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
