"""Whether a group that was written may still be committed, decided from the table's state and not from its history. Pure.

Iceberg's own validation reads the snapshots in between and both misses deletes that a replace commit adds and refuses deletes
that touch other files; so we compare what is live at the head with what the plan saw. Called by `flow.commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from neve.core.live import DeleteKey, LiveFile


class Fate(StrEnum):
    """What becomes of a group."""

    COMMIT = "commit"  # everything is as planned
    SUPERSEDED = "superseded"  # others replaced or removed its inputs: nothing of ours is needed any more
    REPLAN = "replan"  # its inputs have deletes that the rewrite did not apply


@dataclass(frozen=True)
class Verdict:
    """The fate of a group, with the reason in words."""

    fate: Fate
    reason: str


def judge(
    inputs: Mapping[str, frozenset[DeleteKey]],
    live: Mapping[str, LiveFile],
    *,
    keeps_sequence_number: bool,
    deletes_by_replace: bool,
) -> Verdict:
    """The verdict on one group; `inputs` are its files with the deletes that the plan saw and the kernel applied.

    A late equality delete may stay: the outputs keep the planned sequence number, so it applies to them as it did to the
    inputs. That needs the number to be kept, and the delete to be newer, which one added by a replace commit need not be.
    """
    gone = [path for path in inputs if path not in live]
    if gone:
        return Verdict(Fate.SUPERSEDED, f"{len(gone)} of {len(inputs)} inputs are no longer live, such as {gone[0]}")
    for path, applied in inputs.items():
        if applied - live[path].deletes:
            return Verdict(Fate.REPLAN, f"deletes of {path} were rewritten or undone meanwhile")
        late = live[path].deletes - applied
        if not late:
            continue
        if not late <= live[path].equality_deletes:
            return Verdict(Fate.REPLAN, f"rows of {path} were deleted meanwhile")
        if deletes_by_replace:
            return Verdict(Fate.REPLAN, f"equality deletes of {path} were rewritten meanwhile")
        if not keeps_sequence_number:
            return Verdict(Fate.REPLAN, f"a late equality delete applies to {path}, and no older file would keep it alive")
    return Verdict(Fate.COMMIT, "every input is live, with the deletes that were applied")


def keeps_sequence_number(planned: Iterable[str], removed: Iterable[str], live: Iterable[str], *, format_version: int) -> bool:
    """Whether outputs may take the plan's sequence number: only if a file as old as the plan stays live beside them.

    Iceberg drops delete files older than the oldest live data file and does not count the files being added: with nothing old
    left, a late equality delete would vanish and its rows come back. Format v1 has no sequence numbers.
    """
    if format_version < 2:
        return False
    return bool(set(planned) & set(live) - set(removed))


def lost_deletes(removed: Mapping[DeleteKey, int], sequence_number: int) -> str | None:
    """Whether a commit took deletes with it that came after its plan, in words; `removed` gives their sequence numbers."""
    late = sorted(path for (path, _), number in removed.items() if number > sequence_number)
    return f"it took {len(late)} deletes out of the table that are newer than its plan, such as {late[0]}" if late else None


def changed_shape(planned: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """What of the table's shape is no longer as planned, in words."""
    changed = [f"{name} {planned[name]} became {now[name]}" for name in planned if planned[name] != now[name]]
    return "; ".join(changed) or None
