"""Files that lost field ids: whatever a kernel makes of them, Spark reads the same rows before and after.

The files have their ids in Arrow's schema as well, which Iceberg does not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState
from tests.builders.arrow_files import field, parquet, schema, struct
from tests.builders.damaged_tables import DamagedTable
from tests.builders.footer_mutations import Seed
from tests.builders.parquet_files import with_field_ids
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
MAPPING = [
    {"field-id": 2, "names": ["id"]},
    {"field-id": 1, "names": ["name"]},
    {"field-id": 3, "names": ["s"], "fields": [{"field-id": 4, "names": ["x"]}]},
]
"""Swaps two columns of one type in `SWAPPED`, so that finding them by place, by name and by id gives different rows."""
SWAPPED = schema(field(1, "id", "long"), field(2, "name", "long"), field(3, "s", struct(field(4, "x", "int"))))
IDS: dict[str, tuple[int | None, ...]] = {
    "all": (1, 2, 3, 4),
    "one column": (1, None, 3, 4),
    "a struct": (1, 2, None, 4),
    "a field of a struct": (1, 2, 3, None),
    "every column but a nested one": (None, None, None, 4),
    "none": (None, None, None, None),
    "negative": (-1, -2, -3, -4),
}
ROWS = [{"id": i, "name": i + 100, "s": {"x": i + 200} if i % 3 else None} for i in range(40)]
KERNELS: tuple[Kernel | None, ...] = (Kernel.COPY, Kernel.ARROW, Kernel.SPARK)
Make = Callable[[], DamagedTable]


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.lost_ids")
    data = parquet(ROWS, SWAPPED, store_schema=True)
    seed = Seed("ids", data, data, SWAPPED)
    return lambda: DamagedTable(Bench(spark, warehouse, "lost_ids", f"t{next(NUMBERS)}"), [seed], tmp_path)


@pytest.mark.parametrize("has_mapping", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_rewrite_changes_no_row_that_is_read_from_files_without_some_field_ids(
    make: Make, kernel: Kernel, has_mapping: bool
) -> None:
    table = make()
    (seed,) = table.seeds
    with table.adding() as delta:
        for (name, ids), both in product(IDS.items(), (False, True)):
            data = with_field_ids(seed.data, *ids)
            partner = data if both else seed.data
            table.add(delta, name, Seed(name, seed.data, partner, SWAPPED), data, has_deletes=False)
    if has_mapping:
        mapping = json.dumps(MAPPING)
        table.bench.spark.sql(
            f"ALTER TABLE {table.bench.sql_name} SET TBLPROPERTIES ('schema.name-mapping.default' = '{mapping}')"
        )
    before = table.bench.rows()
    record = table.bench.compact(kernel)
    assert table.bench.rows() == before
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * len(IDS) * 2
