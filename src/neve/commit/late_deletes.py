"""late: moves deletes that came while a group was rewritten from its inputs to its outputs. Nothing is read again but deletes.

Called by `commit.rewrite_files` before each attempt. What is written here is named in that attempt alone; files of attempts
that did not land are the committer's to give up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neve.commit.late_rows import come_late, moved
from neve.ports import DeleteFiles
from neve.rewrite.live_files import DataFile, LiveFile
from neve.table.positions import Longs, PositionMap


@dataclass(frozen=True)
class WrittenGroup:
    """A group whose files exist and whose proof holds; `positions` tell where each row went, if its kernel could."""

    group_id: int
    inputs: tuple[LiveFile, ...]
    outputs: tuple[DataFile, ...]
    positions: PositionMap | None = None
    written_before: bool = False
    """Whether an earlier process wrote the files, so that yet another one may move them to the trash even now."""

    @property
    def output_paths(self) -> set[str]:
        """Where its files are."""
        return {file["file-path"] for file in self.outputs}

    @property
    def changes_spec(self) -> bool:
        """Whether its rows go to partitions of another spec."""
        return any(file["spec-id"] != self.inputs[0].data_file["spec-id"] for file in self.outputs)

    @property
    def input_bytes(self) -> int:
        """How much was read for it."""
        return sum(file.size_bytes for file in self.inputs)


def moves(
    group: WrittenGroup, live: Mapping[str, LiveFile], touched: Iterable[str], files: DeleteFiles
) -> dict[str, Longs] | None:
    """By output the rows that were deleted since the plan; None where that cannot be told, or a delete was taken back."""
    late: dict[int, Longs] = {}
    index = {file.path: i for i, file in enumerate(group.inputs)}
    for path in touched:
        planned, now = group.inputs[index[path]], live[path]
        before, after = (files.positions(file.position_delete_files, path) for file in (planned, now))
        dropped = group.positions.left_out(index[path], planned.records) if group.positions is not None else None
        lost = bool(planned.equality_deletes - now.equality_deletes)
        rows = come_late(before, after, dropped=dropped, lost_equality=lost)
        if rows is None or (len(rows) and group.positions is None):
            return None
        late[index[path]] = rows
    if group.positions is None:
        return {}
    return moved(group.positions, late, [file["file-path"] for file in group.outputs])
