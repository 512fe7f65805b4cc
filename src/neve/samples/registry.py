"""The list of believable bad tables, by name. Used by the demo, the tests and the benchmarks.

Same seed and scale, same rows and same number of files, wherever it is built; snapshot ids, file names and commit times differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from neve.errors import BadRequestError
from neve.samples import evolution, row_level, shapes, streams, writers
from neve.samples.target import Target

if TYPE_CHECKING:
    from pyiceberg.table import Table


class SampleWriter(Protocol):
    """Creates the table and fills it."""

    def __call__(self, target: Target, name: str, *, seed: int, scale: float) -> None:
        """`scale` multiplies the rows of each commit; the number of commits stays."""
        ...


@dataclass(frozen=True)
class Sample:
    """One kind of bad table."""

    name: str
    description: str
    write: SampleWriter
    needs_spark: bool = False

    def build(self, target: Target, *, seed: int = 1, scale: float = 1.0, replace: bool = False) -> Table:
        """Writes the table and loads it. `replace` deletes a table of that name first, its files included."""
        if self.needs_spark:
            target.session(f"build sample {self.name!r}")
        identifier = target.identifier(self.name)
        target.catalog.create_namespace_if_not_exists(identifier[:-1])
        if target.catalog.table_exists(identifier):
            self._make_room(target, replace=replace)
        self.write(target, self.name, seed=seed, scale=scale)
        target.refresh(self.name)
        return target.load(self.name)

    def _make_room(self, target: Target, *, replace: bool) -> None:
        if not replace:
            raise BadRequestError(
                f"Cannot build sample {self.name!r}: table {target.namespace}.{self.name} is there already",
                hint="Drop it, choose another namespace, or build with replace=True.",
            )
        target.purge(self.name)


SAMPLES: dict[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample("stream", "an append stream: 50 micro-batches, partitioned by event type", streams.write_stream),
        Sample("events", "two weeks of days, the newest in crumbs, one in a single huge file", streams.write_events),
        Sample("cdc", "upserts and deletes: position and equality delete files", row_level.write_cdc, needs_spark=True),
        Sample("wide", "200 columns in small files", shapes.write_wide),
        Sample("nested", "every type: structs, lists, maps, decimals, timestamps, uuid, binary", shapes.write_nested),
        Sample("evolved", "a schema evolved half way: add, drop, rename, reorder, widen", evolution.write_evolved),
        Sample("respecced", "a partition spec replaced half way: month, then day and region", evolution.write_respecced),
        Sample("v1", "format version 1, partitioned by country", shapes.write_v1),
        Sample("v3", "format version 3: deletion vectors and row lineage", row_level.write_v3, needs_spark=True),
        Sample(
            "mixed_writers",
            "files by Spark and by pyiceberg, with required and with nullable physical columns",
            writers.write_mixed_writers,
            needs_spark=True,
        ),
        Sample("floats", "NaN, infinities and negative zero", shapes.write_floats),
        Sample("scattered", "orders to be clustered by city and amount, and not yet so", streams.write_scattered),
    )
}
