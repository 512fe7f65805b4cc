"""The plan: what a run will do, as a value. `neve plan` prints it, `neve compact` runs it, `neve resume` finds it again.

Made by `flow.plan`. Groups point into `files`, which holds just the files that the plan names; whoever is not in a group is in
`skipped` by its partition, with the reason.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from neve.core.files import FileColumns
from neve.core.groups import Groups
from neve.core.layout import Layout
from neve.core.model import MAIN, Frozen, TableName
from neve.core.plan_words import Group, Price
from neve.core.policy import Policy
from neve.core.queries import QueryGain

FORMAT_VERSION = 1


class Skipped(Frozen):
    """A partition that is left alone, and why; `code` is the same for the same kind of reason."""

    partition: str
    spec_id: int
    files: int
    code: str
    reason: str


class Preferred(Frozen):
    """What `adaptive` chose for a partition, and what it would have chosen else; scores are money, as `Score.net` has it."""

    partition: str
    spec_id: int
    strategy: str
    score: float
    runner_up: str | None = None
    runner_up_score: float | None = None


class Plan(Frozen):
    """Everything a run needs to know of the table as it was when it was planned."""

    format_version: int = FORMAT_VERSION
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
    policy: Policy
    layout: Layout | None = None
    """The order of rows in the outputs of groups that are `ordered`."""
    gain_per_month: float = 0.0
    """What readers save in a month, by prediction, in the currency of the price table; of partitions that have groups."""
    preferred: tuple[Preferred, ...] = ()
    queries: tuple[QueryGain, ...] = ()
    """What the queries that the policy states read now, and are predicted to read after the run."""
    groups: Annotated[Groups, Field(repr=False)]
    skipped: tuple[Skipped, ...]
    empty_reason: str | None
    files: Annotated[FileColumns, Field(repr=False)]

    @property
    def price(self) -> Price:
        """Of all groups together."""
        return self.groups.price

    @property
    def input_files(self) -> int:
        """Files that the plan rewrites."""
        return len(self.groups.files)

    @property
    def output_files(self) -> int:
        """Files that it expects to write."""
        return int(self.groups.outputs.sum())

    def paths(self, group: Group) -> list[str]:
        """The files of a group by their location."""
        return [str(path) for path in self.files.table.column("path").take(list(group.files)).to_pylist()]
