"""What `operations.ttl` needs of an engine. Implemented by `spark.maintenance.ttl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from neve.maintenance.ttl import Tally, TtlLimits, TtlRule, TtlTarget
from neve.maintenance.ttl_proof import FooterFinding
from neve.rewrite.live_files import DataFile, LiveFile


class PastRows(Protocol):
    """Rows of a table that are past their time, in the files of a snapshot. Columns are found by field id, never by name."""

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: TtlLimits) -> list[LiveFile]:
        """Data files that may hold some, with the bounds of the rule's column."""
        ...

    def tallies(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: TtlLimits) -> Mapping[str, Tally]:
        """The rows of each of these files that are not deleted yet; files without any are left out."""
        ...

    def stored(self, files: Sequence[LiveFile], rule: TtlRule) -> Mapping[str, FooterFinding]:
        """What the footers of these files say of the rule's column, by path."""
        ...

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], target: TtlTarget) -> None:
        """Removes whole files from the table. Raises as `TableWriter.rewrite` does; a conflict if one of them is gone, and
        VerificationError, before anything is sent, if the table is not the target."""
        ...

    def delete(
        self, rule: TtlRule, limits: TtlLimits, summary: Mapping[str, str], target: TtlTarget, left_alone: Sequence[str] = ()
    ) -> None:
        """Deletes the rows one by one, the way that the table's properties ask for, but none of the files in `left_alone`.
        Raises as `drop` does."""
        ...
