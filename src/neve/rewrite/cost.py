"""What a group will take, by a formula simple enough to check by hand and a table of throughputs and prices.

    core seconds = fixed + bytes / throughput of the kernel + files x per-file seconds
    requests     = inputs x reads per file + outputs x writes per file
    money        = core seconds x price of a core second + requests by kind

and what one scan takes, by which gains are reckoned:

    core seconds = files opened x seconds to open one + bytes / throughput of a scan, a fifth more where deletes are applied
    requests     = files opened + row groups

The table comes from the settings (`cost`); measured runs will refine it later. Called by `rewrite.planner` and
`rewrite.strategies`; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from neve.rewrite.group import Kernel, Price
from neve.table.frozen import Frozen
from neve.table.units import MIB

Column = npt.NDArray[Any]

READS_PER_FILE = 2
WRITES_PER_FILE = 2


class Throughput(Frozen):
    """How fast one core works with a kernel."""

    bytes_per_second: float
    seconds_per_file: float


class Rates(Frozen):
    """The table: throughputs by kernel, and prices. The defaults are those of a plain cloud core and S3's list price."""

    copy_kernel: Throughput = Throughput(bytes_per_second=400 * MIB, seconds_per_file=0.001)
    arrow_kernel: Throughput = Throughput(bytes_per_second=40 * MIB, seconds_per_file=0.002)
    spark_kernel: Throughput = Throughput(bytes_per_second=12 * MIB, seconds_per_file=0.004)
    group_seconds: float = 0.05
    scan_bytes_per_second: float = 100 * MIB
    open_seconds: float = 0.02
    core_hour: float = 0.05
    thousand_reads: float = 0.0004
    thousand_writes: float = 0.005

    def of(self, kernel: Kernel) -> Throughput:
        """The throughput of a kernel."""
        return {Kernel.COPY: self.copy_kernel, Kernel.ARROW: self.arrow_kernel, Kernel.SPARK: self.spark_kernel}[kernel]


@dataclass(frozen=True)
class Scanned:
    """What one scan of a partition reads, a row for each partition. Deletes are files too; `slowed_bytes` are those of data
    files to which deletes apply."""

    files: Column
    row_groups: Column
    deletes: Column
    bytes: Column
    slowed_bytes: Column

    def money(self, rates: Rates) -> Column:
        """What the scan costs."""
        opened = self.files + self.deletes
        seconds = opened * rates.open_seconds + (self.bytes + self.slowed_bytes / 5) / rates.scan_bytes_per_second
        requests = opened + self.row_groups + self.deletes
        cost: Column = seconds * rates.core_hour / 3600 + requests / 1000 * rates.thousand_reads
        return cost


def scan_seconds(files: Column, size: Column, parallelism: int, rates: Rates) -> Column:
    """How long a scan by so many tasks takes, each of which reads whole files."""
    tasks = np.minimum(np.maximum(files, 1), parallelism)
    taken: Column = np.ceil(files / tasks) * rates.open_seconds + size / (tasks * rates.scan_bytes_per_second)
    return taken


@dataclass(frozen=True, eq=False)
class Prices:
    """One price per group, as columns."""

    core_seconds: Column
    read_bytes: Column
    written_bytes: Column
    requests: Column
    money: Column

    def at(self, i: int) -> Price:
        """One of them."""
        return Price(**{name: column[i].item() for name, column in vars(self).items()})

    @property
    def total(self) -> Price:
        """Their sum."""
        return Price(**{name: column.sum().item() for name, column in vars(self).items()})

    def take(self, rows: Column) -> Self:
        """Some of them, in that order."""
        return type(self)(**{name: column[rows] for name, column in vars(self).items()})

    def to_json(self) -> dict[str, Any]:
        """Column lists."""
        return {name: column.tolist() for name, column in vars(self).items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        types = {"core_seconds": np.float64, "money": np.float64}
        return cls(**{name: np.array(column, dtype=types.get(name, np.int64)) for name, column in value.items()})


def predict(kernel: Column, *, input_files: Column, input_bytes: Column, outputs: Column, rates: Rates) -> Prices:
    """The price of each group; `kernel` holds positions in `Kernel`."""
    speeds = [rates.of(name) for name in Kernel]
    throughput = np.array([speed.bytes_per_second for speed in speeds])[kernel]
    per_file = np.array([speed.seconds_per_file for speed in speeds])[kernel]
    seconds = rates.group_seconds + input_bytes / throughput + input_files * per_file
    reads, writes = input_files * READS_PER_FILE, outputs * WRITES_PER_FILE
    money = seconds * rates.core_hour / 3600 + reads / 1000 * rates.thousand_reads + writes / 1000 * rates.thousand_writes
    return Prices(core_seconds=seconds, read_bytes=input_bytes, written_bytes=input_bytes, requests=reads + writes, money=money)
