"""What a proposal is good for: the money that readers save in a month, and what the rewrite costs. Pure, by partition.

One measure for all strategies, so that they can be compared: `rewrite.cost` says what a scan takes before and after, the policy
how often there is one, and of the reads a part is taken to look for few values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.row_groups import ROW_GROUP_BYTES
from neve.rewrite.cost import Scanned, predict
from neve.rewrite.group import Kernel
from neve.rewrite.groups import KERNELS
from neve.rewrite.kernel_choice import GroupTraits, choose_kernels
from neve.rewrite.packing import bins_wanted
from neve.rewrite.strategies.proposal import Proposal
from neve.rewrite.strategies.view import SELECTIVE_SHARE, View
from neve.table.files import UNKNOWN

Column = npt.NDArray[Any]

MONTH_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class Score:
    """By partition: money that readers save in a month (`gain`), the price of the rewrite (`cost`), the part of it that comes
    again because its outputs are not finished yet (`fixed`), and what readers have paid for waiting so far (`debt`)."""

    gain: Column
    cost: Column
    fixed: Column
    debt: Column

    def net(self, seconds: float) -> Column:
        """What is left of the gain after so long."""
        left: Column = self.gain * seconds / MONTH_SECONDS - self.cost
        return left


def score(view: View, proposal: Proposal) -> Score:
    """Of all that a proposal would rewrite in each partition; 0 where it wants nothing."""
    return _Scoring(view, proposal).score()


class _Scoring:
    """The sums over candidates that gain and cost share."""

    def __init__(self, view: View, proposal: Proposal) -> None:
        self.view, self.proposal = view, proposal
        self.rows = np.flatnonzero(proposal.files & view.files.is_data)
        self.home = view.files.columns.column("partition")[self.rows]
        self.sizes = view.files.columns.column("size_bytes")
        self.groups = np.maximum(view.files.row_groups, 1)
        self.slowed = view.files.has_deletes & view.files.is_data
        self.files, self.bytes = self._chosen(), self._chosen(self.sizes)
        self.outputs = np.where(self.files > 0, bins_wanted(self.bytes, view.policy.target_file_size_bytes), 0)

    def score(self) -> Score:
        """Everything together."""
        view, rates, kernel = self.view, self.view.rates, self._kernels()
        prices = predict(kernel, input_files=self.files, input_bytes=self.bytes, outputs=self.outputs, rates=rates)
        some = self.files > 0
        before = self._before()
        saved = self._read(before, view.depth) - self._read(self._after(before, kernel), self._depth_after())
        gain = np.where(some, saved * view.interest * view.policy.reads_per_day / 86400, 0.0)
        throughput = np.array([rates.of(name).bytes_per_second for name in KERNELS])[kernel]
        fixed = prices.money - self._lasting_bytes() / throughput * rates.core_hour / 3600
        cost = np.where(some, prices.money, 0.0)
        return Score(gain * MONTH_SECONDS, cost, np.where(some, fixed, 0.0), gain * self._waited())

    def _lasting_bytes(self) -> Column:
        """What has to be rewritten some day anyway, and only once: small files that become good ones. Not so files to which
        deletes will apply again, files of good size that are rewritten for their order, and outputs that stay small."""
        small = (self.sizes < self.view.policy.small_bytes) & ~self.slowed
        finished = self.bytes >= self.view.policy.small_bytes * self.outputs
        return np.where(finished, self._chosen(small * self.sizes), 0)

    def _chosen(self, weights: Column | None = None) -> Column:
        """By partition the candidates, or the sum of something over them."""
        of_rows = weights[self.rows] if weights is not None else None
        return np.bincount(self.home, weights=of_rows, minlength=len(self.view))

    def _kernels(self) -> Column:
        """As if the candidates of a partition were one group."""
        view, files = self.view, self.view.files
        known = self._chosen(files.row_groups == UNKNOWN) == 0
        traits = GroupTraits(
            tier=self.proposal.tier,
            all_parquet=self._chosen(~files.columns.is_parquet) == 0,
            has_deletes=self._chosen(self.slowed) > 0,
            splits=self.files < self.outputs,
            files=self.files,
            columns=view.state.columns,
            is_remote=view.state.is_remote,
            bytes=self.bytes,
            row_groups=np.where(known, self._chosen(self.groups), 0),
            ordered=self.proposal.ordered,
            inputs_sorted=self._chosen(~view.in_order) == 0,
            changes_spec=view.changes_spec,
        )
        return choose_kernels(traits, view.policy).kernel

    def _before(self) -> Scanned:
        view = self.view
        return Scanned(
            files=view.partitions.data_files,
            row_groups=view.total(view.files.is_data * self.groups),
            deletes=view.partitions.delete_files,
            bytes=view.partitions.bytes,
            slowed_bytes=view.total(self.slowed * self.sizes),
        )

    def _after(self, before: Scanned, kernel: Column) -> Scanned:
        """Deletes are gone where all files that they apply to are rewritten, else as many as bytes of such files are left."""
        rewritten = self._chosen(self.slowed * self.sizes)
        slowed, copied = before.slowed_bytes - rewritten, kernel == KERNELS.index(Kernel.COPY)
        groups = self._chosen(self.groups)
        return Scanned(
            files=before.files - self.files + self.outputs,
            row_groups=before.row_groups - np.where(copied, 0, groups - np.maximum(self.outputs, self.bytes / ROW_GROUP_BYTES)),
            deletes=before.deletes * slowed / np.maximum(before.slowed_bytes, 1),
            bytes=before.bytes - rewritten * np.minimum(self.view.hidden, 1),
            slowed_bytes=slowed,
        )

    def _read(self, scanned: Scanned, depth: Column) -> Column:
        """The money of one read: of everything, or of the files that hold the values it looks for."""
        share = np.where(np.isnan(depth), 1.0, np.minimum(depth / np.maximum(scanned.files, 1), 1.0))
        read: Column = scanned.money(self.view.rates) * (1 - SELECTIVE_SHARE + SELECTIVE_SHARE * share)
        return read

    def _depth_after(self) -> Column:
        """As told, where files are brought into order; else files that were joined count as one."""
        joined = np.maximum(self.view.depth - (self.files - self.outputs), np.minimum(self.view.depth, 1))
        after: Column = np.where(np.isnan(self.proposal.depth_after), joined, self.proposal.depth_after)
        return after

    def _waited(self) -> Column:
        """Seconds that readers have suffered from the candidates, on average: since they were written or, where deletes apply
        to them, since these were. Those of unknown age count for the payback."""
        view, longest = self.view, self.view.policy.payback_seconds
        ages = np.clip(np.nan_to_num(view.ages, nan=longest), 0, longest)
        of_deletes = view.total(np.where(view.files.is_data, 0, ages)) / np.maximum(view.partitions.delete_files, 1)
        home = view.files.columns.column("partition")
        suffered = np.where(self.slowed, np.minimum(of_deletes[home], ages), ages) if len(home) else ages
        mean: Column = self._chosen(suffered) / np.maximum(self.files, 1)
        return mean
