"""Groups as columns: a plan over a million files has tens of thousands of groups, and most are only ever counted.

Built by `rewrite.planner`; a `Group` is made when one is asked for. Files of all groups stand in one array, cut by offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from neve.rewrite.cost import Prices
from neve.rewrite.group import Group, Kernel, Price, Tier
from neve.table.files import Partition

Column = npt.NDArray[Any]

TIERS, KERNELS = tuple(Tier), tuple(Kernel)
_BY_GROUP = ("partition", "tier", "kernel", "kernel_reason", "ordered", "input_bytes", "input_rows", "outputs")
_COLUMNS = (*_BY_GROUP, "offsets", "files")


def gather(partition: Column, weights: Column, order: Column) -> Column:
    """The group of each file whose rows are brought into one order, numbered from 0 over all partitions in their order.

    A weight is the share of a group that a file may take up. One group for each partition, or evenly as many as it takes to
    overload none (unless by a file that is most of one); files follow one another by `order`.
    """
    by = np.lexsort((order, partition))
    weights, changes = weights[by], np.diff(partition[by], prepend=-1) != 0
    starts, rank = np.flatnonzero(changes), np.cumsum(changes) - 1
    if not len(starts):
        return rank
    totals, room = np.add.reduceat(weights, starts), 1 - np.maximum.reduceat(weights, starts)
    cuts = np.where(totals <= 1, 1, np.ceil(totals / np.maximum(room, 0.5)))
    before = np.cumsum(weights) - weights
    inside = before - before[starts][rank] + weights / 2  # the middle of a file decides where it goes
    local = np.minimum(inside * (cuts / totals)[rank], cuts[rank] - 1).astype(np.int64)
    result = np.empty(len(by), dtype=np.int64)
    result[by] = np.cumsum(changes | (np.diff(local, prepend=0) != 0)) - 1
    return result


@dataclass(frozen=True, eq=False)
class Groups(Sequence[Group]):
    """A sequence of `Group`. Codes point into TIERS, KERNELS, `partitions`, `reasons` (by partition) and `kernel_reasons`."""

    partitions: tuple[Partition, ...]
    reasons: tuple[str, ...]
    kernel_reasons: tuple[str, ...]
    partition: Column
    tier: Column
    kernel: Column
    kernel_reason: Column
    ordered: Column
    input_bytes: Column
    input_rows: Column
    outputs: Column
    prices: Prices
    offsets: Column
    files: Column

    def __len__(self) -> int:
        return len(self.partition)

    def __iter__(self) -> Iterator[Group]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Group: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Group, ...]: ...

    def __getitem__(self, index: int | slice) -> Group | tuple[Group, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        i = index % len(self)
        home = int(self.partition[i])
        return Group(
            group_id=i,
            partition=self.partitions[home].path,
            spec_id=self.partitions[home].spec_id,
            files=tuple(self.files[self.offsets[i] : self.offsets[i + 1]].tolist()),
            tier=TIERS[self.tier[i]],
            reason=self.reasons[home],
            kernel=KERNELS[self.kernel[i]],
            kernel_reason=self.kernel_reasons[self.kernel_reason[i]],
            input_bytes=int(self.input_bytes[i]),
            input_rows=int(self.input_rows[i]),
            outputs=int(self.outputs[i]),
            ordered=bool(self.ordered[i]),
            price=self.prices.at(i),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Groups) and self.to_json() == other.to_json()

    @property
    def price(self) -> Price:
        """Of all groups together."""
        return self.prices.total

    def take(self, rows: Column) -> Self:
        """Some of the groups, in that order."""
        lengths = np.diff(self.offsets)[rows]
        starts = np.repeat(self.offsets[:-1][rows], lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        files = self.files[starts + np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)]
        columns = {name: getattr(self, name)[rows] for name in _BY_GROUP}
        return type(self)(
            self.partitions,
            self.reasons,
            self.kernel_reasons,
            **columns,
            prices=self.prices.take(rows),
            offsets=offsets,
            files=files,
        )

    def to_json(self) -> dict[str, Any]:
        """Column lists, ready for JSON."""
        columns = {name: getattr(self, name).tolist() for name in _COLUMNS}
        partitions = [[p.spec_id, p.path] for p in self.partitions]
        texts = {"partitions": partitions, "reasons": list(self.reasons), "kernel_reasons": list(self.kernel_reasons)}
        return {**texts, **columns, "prices": self.prices.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of `to_json`."""
        if isinstance(value, cls):
            return value
        unordered = {"ordered": [0] * len(value["partition"])}  # as plans were before there were layouts
        columns = {name: np.array((unordered | value)[name], dtype=np.int64) for name in _COLUMNS}
        partitions = tuple(Partition(spec_id, path) for spec_id, path in value["partitions"])
        prices = Prices.from_json(value["prices"])
        return cls(partitions, tuple(value["reasons"]), tuple(value["kernel_reasons"]), **columns, prices=prices)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.from_json, serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v.to_json())
        )
