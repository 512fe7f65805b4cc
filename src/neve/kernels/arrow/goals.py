"""How large the next row group and the current file should become. Arithmetic only.

Sizes are estimated from the stored bytes of the inputs, corrected by what earlier row groups really took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neve.kernels.arrow.model import WriteOptions

_OVER_TARGET = 0.25
"""A last piece smaller than this share of the target is spread over the files before it, not left as a file of its own."""


@dataclass
class Goals:
    """Follows a rewrite: `to_come` stored bytes of inputs are not yet written."""

    options: WriteOptions
    to_come: float
    consumed: float = 0.0
    produced: float = 0.0

    @property
    def ratio(self) -> float:
        """Bytes written per stored byte read; 1 until something was written."""
        return self.produced / self.consumed if self.consumed else 1.0

    def wrote(self, stored: float, produced: int) -> None:
        """Takes note of a row group."""
        self.to_come -= stored
        self.consumed += stored
        self.produced += produced

    def file_bytes(self, written: int) -> float:
        """The size that the current file should reach, so that it and those after it come out alike."""
        rest = self._rest(written)
        return rest / self._files(rest)

    def row_group_bytes(self, written: int) -> float:
        """The size of the next row group of a file that has so many bytes already."""
        left = max(self.file_bytes(written) - written, 1.0)
        return left / max(math.ceil(left / self.options.row_group_bytes - _OVER_TARGET), 1)

    def is_full(self, written: int) -> bool:
        """Whether another file should begin; a remainder of a few per cent is not worth a row group."""
        rest = self._rest(written)
        return self._files(rest) > 1 and written >= 0.95 * self.file_bytes(written)

    def _rest(self, written: int) -> float:
        return written + max(self.to_come, 0.0) * self.ratio

    def _files(self, rest: float) -> int:
        return max(math.ceil(rest / self.options.target_bytes - _OVER_TARGET), 1)
