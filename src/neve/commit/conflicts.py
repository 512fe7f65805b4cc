"""Whether a group that was written may still be committed, decided from the table's state and not from its history. Pure.

Iceberg's own validation reads the snapshots in between and both misses deletes that a replace commit adds and refuses deletes
that touch other files; so we compare what is live at the head with what the plan saw. Called by `commit.rewrite_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from neve.rewrite.live_files import DeleteKey, LiveFile


class GroupFate(StrEnum):
    """What becomes of a group."""

    COMMIT = "commit"  # everything is as planned
    MOVE = "move"  # as planned, once deletes that came since are moved to the outputs
    SUPERSEDED = "superseded"  # others replaced or removed its inputs: nothing of ours is needed any more
    REPLAN = "replan"  # its inputs have deletes that the rewrite did not apply


class LateEquality(StrEnum):
    """What becomes of equality deletes that came after the plan."""

    STAYS = "they apply to the outputs as to the inputs"
    TOO_OLD = "equality deletes were rewritten meanwhile"
    OTHER_SPEC = "a late equality delete applies, and not to files of another partition spec"
    VANISHES = "a late equality delete applies, and no file that stays would keep it alive"


@dataclass(frozen=True)
class GroupVerdict:
    """The fate of a group, with the reason in words; `touched` are inputs whose deletes are not those that were applied."""

    fate: GroupFate
    reason: str
    touched: tuple[str, ...] = ()


def judge(planned: Iterable[LiveFile], live: Mapping[str, LiveFile], *, late_equality: LateEquality) -> GroupVerdict:
    """The verdict on one group; `planned` are its inputs with the deletes that the plan saw and the kernel applied.

    A late equality delete may stay where it is: the outputs keep the planned sequence number, so that it applies to them as it
    did to the inputs. Whether that is so is the table's matter (`LateEquality`). What came or went by position is read and
    moved; what these rows are stands in the delete files, so that it is not decided here.
    """
    planned = list(planned)
    if gone := no_longer_live(planned, live):
        return GroupVerdict(GroupFate.SUPERSEDED, f"{len(gone)} of {len(planned)} inputs are no longer live, such as {gone[0]}")
    touched = []
    for file in planned:
        if late_equality is not LateEquality.STAYS and came_late(file, live):
            return GroupVerdict(GroupFate.REPLAN, f"{late_equality}: {file.path}")
        if has_other_deletes(file, live):
            touched.append(file.path)
    if touched:
        return GroupVerdict(GroupFate.MOVE, f"deletes of {touched[0]} changed meanwhile", tuple(touched))
    return GroupVerdict(GroupFate.COMMIT, "every input is live, with the deletes that were applied")


def no_longer_live(planned: Iterable[LiveFile], live: Mapping[str, LiveFile]) -> list[str]:
    """Paths of planned files that others have replaced or removed."""
    return [file.path for file in planned if file.path not in live]


def has_other_deletes(planned: LiveFile, live: Mapping[str, LiveFile]) -> bool:
    """Whether a file has position deletes that it had not when it was planned, or has lost deletes since."""
    now = live.get(planned.path)
    if now is None or now is planned:
        return False
    return bool(planned.deletes - now.deletes or now.position_deletes - planned.deletes)


def came_late(planned: LiveFile, live: Mapping[str, LiveFile]) -> frozenset[DeleteKey]:
    """Equality deletes that a file has now and had not when it was planned."""
    now = live.get(planned.path)
    if now is None or now is planned or not now.has_deletes:
        return frozenset()
    return now.equality_deletes - planned.equality_deletes


def late_equality(
    planned: Iterable[LiveFile],
    live: Mapping[str, LiveFile],
    *,
    plan_number: int,
    numbers: Callable[[], Mapping[str, int]],
) -> LateEquality:
    """What becomes of equality deletes that came after the plan, if these inputs are replaced by files of the plan's age.

    Iceberg drops delete files older than the oldest data file that stays, and does not count the files being added: unless
    one stays that is at least as old, a late delete would vanish and its rows come back. And a replace commit may add deletes
    that are as old as the plan, which would not apply to the outputs. `numbers` gives the sequence numbers of live files.
    """
    removed = {file.path: file for file in planned}
    late = {path for file in removed.values() for path, _ in came_late(file, live)}
    if not late:
        return LateEquality.STAYS
    known = numbers()
    oldest = min(known.get(path, 0) for path in late)
    if oldest <= plan_number:
        return LateEquality.TOO_OLD
    stays = any(known.get(path, oldest + 1) <= oldest for path in live if path not in removed)
    return LateEquality.STAYS if stays else LateEquality.VANISHES


def keeps_sequence_number(planned: Iterable[str], removed: Iterable[str], live: Iterable[str], *, format_version: int) -> bool:
    """Whether a file as old as the plan stays live beside the outputs: then they may take the plan's number without a thought.

    Whatever equality delete comes between check and commit is kept alive by that file. Format v1 has no sequence numbers.
    """
    if format_version < 2:
        return False
    return bool(set(planned) & set(live) - set(removed))


def ours_to_drop(planned: Iterable[LiveFile], live: Mapping[str, LiveFile]) -> set[DeleteKey]:
    """Deletes that concern only files being replaced, given as they were planned: these deletes go with the files.

    Not so equality deletes that came late, which the rewrite did not apply: they concern the outputs.
    """
    gone, attached = set(), set[DeleteKey]()
    for file in planned:
        now = live[file.path]
        gone.add(file.path)
        attached |= now.deletes - (now.equality_deletes - file.equality_deletes)
    for path, file in live.items():
        if attached and path not in gone:
            attached -= file.deletes
    return attached


def lost_deletes(removed: Mapping[DeleteKey, int], sequence_number: int, meant: Collection[DeleteKey] = ()) -> set[DeleteKey]:
    """Deletes that a commit took with it although they came after its plan; `removed` gives their sequence numbers.

    `meant` are those that it took on purpose: their rows were moved.
    """
    return {key for key, number in removed.items() if number > sequence_number and key not in meant}


def changed_shape(planned: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """What of the table's shape is no longer as planned, in words."""
    changed = [f"{name} {planned[name]} became {now[name]}" for name in planned if planned[name] != now[name]]
    return "; ".join(changed) or None
