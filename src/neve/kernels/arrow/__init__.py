"""The arrow kernel: Parquet in, Parquet out, streaming, columns by field id, deleted rows left out, everything counted."""

from neve.kernels.arrow.model import ArrowInput as ArrowInput
from neve.kernels.arrow.model import ArrowOutput as ArrowOutput
from neve.kernels.arrow.model import BloomFilter as BloomFilter
from neve.kernels.arrow.model import Counts as Counts
from neve.kernels.arrow.model import RefusedError as RefusedError
from neve.kernels.arrow.model import Rewritten as Rewritten
from neve.kernels.arrow.model import SchemaMismatchError as SchemaMismatchError
from neve.kernels.arrow.model import WriteOptions as WriteOptions
from neve.kernels.arrow.refusing import refusal as refusal
from neve.kernels.arrow.rewriting import rewrite as rewrite
from neve.table.positions import PositionMap as PositionMap
