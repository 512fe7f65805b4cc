"""The words of a plan: tiers, kernels, prices, and one group. `rewrite.groups` holds many of them as columns."""

from __future__ import annotations

from enum import StrEnum

from neve.table.frozen import Frozen


class RunKind(StrEnum):
    """What a plan is for: the word of the command line, of records and of the state store."""

    COMPACT = "compact"
    CLUSTER = "cluster"


class Tier(StrEnum):
    """How much of a partition a group rewrites."""

    MINOR = "minor"  # fragments become files
    MAJOR = "major"  # small files become good ones, deletes are applied, row groups re-encoded
    FULL = "full"  # the whole partition


class Kernel(StrEnum):
    """How a group is rewritten."""

    COPY = "copy"  # row groups are copied byte for byte
    ARROW = "arrow"  # decoded and encoded again in Arrow
    SPARK = "spark"  # through Iceberg's Spark reader and writer


class Price(Frozen):
    """What something takes: seconds of one core, bytes, requests, and money by the price table."""

    core_seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0
    money: float = 0.0

    def __add__(self, other: Price) -> Price:
        return Price(
            core_seconds=self.core_seconds + other.core_seconds,
            read_bytes=self.read_bytes + other.read_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
            requests=self.requests + other.requests,
            money=self.money + other.money,
        )


class Group(Frozen):
    """Files of one partition and spec that become `outputs` files together, `ordered` by the plan's layout or not."""

    group_id: int
    partition: str
    spec_id: int
    files: tuple[int, ...]
    tier: Tier
    reason: str
    kernel: Kernel
    kernel_reason: str
    input_bytes: int
    input_rows: int
    outputs: int
    ordered: bool = False
    price: Price
