"""How orders are gathered into Spark jobs, and what a task leaves behind in its worker. No Spark is started."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from neve.core.plan_words import Kernel
from neve.core.units import MIB
from neve.core.work import InputFile, WorkOrder
from neve.engines.spark import rewrite


def sizes_of_waves(order_mib: list[int], *, cores: int, max_parallelism: int = 16) -> list[int]:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
    kernel: Any = None
    engine = rewrite.SparkEngine(spark, kernel, {}, max_parallelism=max_parallelism)
    orders = [order(number, mib) for number, mib in enumerate(order_mib)]
    waves = list(engine._waves(orders))
    assert [each for wave in waves for each in wave] == orders
    return [len(wave) for wave in waves]


def order(number: int, mib: int) -> WorkOrder:
    return WorkOrder(
        order_id=f"o{number}",
        group_id=number,
        kernels=(Kernel.COPY,),
        inputs=(InputFile(path=f"{number}.parquet", size_bytes=mib * MIB, records=1),),
        table_schema={"type": "struct", "fields": []},
        output_prefix="out",
    )


def test_large_orders_go_out_one_for_each_core() -> None:
    assert sizes_of_waves([512] * 5, cores=2) == [2, 2, 1]


def test_small_orders_go_out_together_until_a_job_is_worth_it() -> None:
    assert sizes_of_waves([1] * 200, cores=2) == [128, 72]


def test_a_large_cluster_gets_half_of_what_may_be_in_flight_with_each_of_two_waves() -> None:
    assert sizes_of_waves([1] * 20, cores=1000, max_parallelism=16) == [8, 8, 4]
    assert sizes_of_waves([1] * 2, cores=1000, max_parallelism=1) == [1, 1]


def test_no_orders_make_no_wave() -> None:
    assert sizes_of_waves([], cores=2) == []


def test_a_task_leaves_no_zip_finder_to_read_again_and_still_lets_modules_be_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = str(tmp_path / "modules.zip")
    with ZipFile(archive, "w") as file:
        file.writestr("neve_in_a_zip.py", "ANSWER = 42")
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimporter(archive))
    monkeypatch.syspath_prepend(archive)
    try:
        rewrite._ease_next_task()
        assert not [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
        assert gc.get_freeze_count() > 0
        assert __import__("neve_in_a_zip").ANSWER == 42
    finally:
        sys.modules.pop("neve_in_a_zip", None)
        gc.unfreeze()
        rewrite._freeze_modules.cache_clear()
