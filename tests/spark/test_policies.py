"""A knob that a policy sets shapes the files of a compaction typed by hand, and a setting of the call goes before it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from neve.api import Neve
from neve.policy.document import PolicyDocument
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.policies import PolicyChange
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("flags", "codec"), [({}, "GZIP"), ({"compression-codec": "snappy"}, "SNAPPY")])
def test_compactions_typed_by_hand_write_as_the_policy_says_unless_the_call_says_otherwise(
    spark: SparkSession, warehouse: Path, tmp_path: Path, flags: dict[str, str], codec: str
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    document = PolicyDocument.model_validate({"name": "p", "tables": "*.governed.*", "set": {"compression-codec": "gzip"}})
    with StateStore.open(url) as store:
        store.policies.apply([PolicyChange(kind="policy", name="p", document=document)], by="ana", now_ms=1)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.governed")
    bench = Bench(spark, warehouse, "governed", codec.lower())
    bench.sql("CREATE TABLE {} (id BIGINT) USING iceberg")
    for start in range(0, 30, 10):
        bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + 10}, 1, 1)")
    with Neve.open(load_settings(flags={"state.url": url, **flags}, environ={}), warehouse=str(warehouse), environ={}) as neve:
        neve.connection.session = spark
        record = neve.compact(f"governed.{codec.lower()}", force=True)
    files = [task.file.file_path.removeprefix("file://") for task in bench.load().scan().plan_files()]
    assert record.outcome == "done"
    assert [pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in files] == [codec]
