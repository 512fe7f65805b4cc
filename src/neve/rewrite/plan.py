"""The plan: what a run will do, as a value. `neve plan` prints it, `neve compact` runs it, `neve resume` finds it again.

Made by `rewrite.planner`. Groups point into `files`, which holds just the files that the plan names; whoever is not in a group
is in `skipped` by its partition, with the reason.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from neve.health.not_due import NotDue, nearest
from neve.health.queries import QueryGain
from neve.health.skipping import Clustering
from neve.policy.model import Policy
from neve.rewrite.group import Group, Price, RunKind
from neve.rewrite.groups import Groups
from neve.rewrite.kernel_options import NotApplied, RewriteOption
from neve.rewrite.preview import Preview
from neve.table.files import FileColumns
from neve.table.frozen import Frozen
from neve.table.layout import Layout
from neve.table.state import MAIN, TableName

FORMAT_VERSION = 1


class Skipped(Frozen):
    """A partition that is left alone, and why; `code` is the same for the same kind of reason.

    `not_due` has the rules that were checked there, each with its threshold, what it measured, and when it would be due.
    """

    partition: str
    spec_id: int
    files: int
    code: str
    reason: str
    not_due: tuple[NotDue, ...] = ()


class Preferred(Frozen):
    """What `adaptive` chose for a partition, and what it would have chosen else; scores are money, as `Score.net` has it."""

    partition: str
    spec_id: int
    strategy: str
    score: float
    runner_up: str | None = None
    runner_up_score: float | None = None


class Plan(Preview):
    """Everything a run needs to know of the table as it was when it was planned."""

    format_version: int = FORMAT_VERSION
    kind: RunKind = RunKind.COMPACT
    table: TableName
    table_uuid: str
    table_format_version: int
    branch: str = MAIN
    where: str | None = None
    snapshot_id: int | None
    sequence_number: int
    schema_id: int
    default_spec_id: int
    sort_order_id: int
    planned_at_ms: int
    metadata_from_cache: bool = False
    policy: Policy
    layout: Layout | None = None
    """The order of rows in the outputs of groups that are `ordered`."""
    clustering: Clustering | None = None
    """Of a clustering plan: depth and what queries read, now and predicted after its run; None where bounds are not known."""
    gain_per_month: float = 0.0
    """What readers save in a month, by prediction, in the currency of the price table; of partitions that have groups."""
    preferred: tuple[Preferred, ...] = ()
    queries: tuple[QueryGain, ...] = ()
    """What the queries that the policy states read now, and are predicted to read after the run."""
    options: tuple[RewriteOption, ...] = ()
    """Options that shape the output files and were set somewhere, with their origins."""
    not_applied: tuple[NotApplied, ...] = ()
    """Options that were configured and that the kernels of these groups do not apply."""
    groups: Annotated[Groups, Field(repr=False)]
    skipped: tuple[Skipped, ...]
    empty_reason: str | None
    files: Annotated[FileColumns, Field(repr=False)]

    @property
    def price(self) -> Price:
        """Of all groups together."""
        return self.groups.price

    @property
    def not_due(self) -> tuple[NotDue, ...]:
        """Of each rule that leaves partitions alone, the partition that is closest to being due."""
        if not self.skipped and self.empty_reason is not None:
            return (NotDue(rule="no-data", what=self.empty_reason, until="rows are written"),)
        return nearest(rule for skipped in self.skipped for rule in skipped.not_due)

    @property
    def input_files(self) -> int:
        """Files that the plan rewrites."""
        return len(self.groups.files)

    @property
    def output_files(self) -> int:
        """Files that it expects to write."""
        return int(self.groups.outputs.sum())

    @property
    def shape(self) -> dict[str, int]:
        """What a commit of the plan relies on besides the files, as `ports.TableWriter.shape` gives it."""
        return {
            "format version": self.table_format_version,
            "schema": self.schema_id,
            "partition spec": self.default_spec_id,
            "sort order": self.sort_order_id,
        }

    def paths(self, group: Group) -> list[str]:
        """The files of a group by their location."""
        return [str(path) for path in self.files.table.column("path").take(list(group.files)).to_pylist()]
