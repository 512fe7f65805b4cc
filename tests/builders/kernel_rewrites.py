"""Rewrites tables of format v3 with one kernel, without planning or proof, and commits the result through Iceberg."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from neve.kernels.orders import run_order
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import LiveFile, describe_output
from neve.rewrite.work_order import InputFile, WorkOrder, WorkResult, WriteSettings
from neve.spark.table.bridge import TableBridge
from neve.storage.files import Storage
from neve.table.metrics import for_manifest, metrics_modes
from neve.table.state import TableName
from tests.builders.spark_tables import Bench


def rewrite(bench: Bench, kernel: Kernel, *, forgotten: frozenset[str] = frozenset()) -> list[WorkResult]:
    """Rewrites all files of each partition into one, and commits that; the rows of `forgotten` files have no ids."""
    bridge = TableBridge(bench.spark, TableName(catalog="local", namespace=(bench.namespace,), name=bench.name))
    head = bridge.head()
    assert head is not None
    files = sorted(bridge.scan(head), key=partition_of)
    tasks = bridge.scan_tasks(head, [file.path for file in files])
    numbers = {task.file().location(): int(task.file().dataSequenceNumber()) for task in tasks}
    for file in files:
        if file.path in forgotten:
            del file.data_file["first-row-id"]
    results, added = [], []
    for _, found in groupby(files, key=partition_of):
        group = list(found)
        results.append(run_order(order_of(bridge, group, numbers, kernel), Storage({})))
        added += [described(bridge, group[0], results[-1])]
    bridge.rewrite([file.data_file for file in files], added, head=head, sequence_number=None, summary={})
    return results


def partition_of(file: LiveFile) -> str:
    return json.dumps(file.data_file.get("partition"))


def order_of(bridge: TableBridge, group: list[LiveFile], numbers: dict[str, int], kernel: Kernel) -> WorkOrder:
    inputs = [
        InputFile(
            path=file.path,
            size_bytes=file.size_bytes,
            records=file.records,
            sequence_number=numbers[file.path],
            first_row_id=file.data_file.get("first-row-id"),
        )
        for file in group
    ]
    return WorkOrder(
        order_id="o",
        group_id=0,
        kernels=(kernel,),
        inputs=tuple(inputs),
        table_schema=bridge.schema_json(),
        output_prefix=bridge.data_location(group[0], "neve"),
        write=WriteSettings(min_chunk_bytes=0),
        row_lineage=True,
    )


def described(bridge: TableBridge, model: LiveFile, result: WorkResult) -> dict[str, Any]:
    (output,) = result.outputs
    schema = bridge.schema_json()
    metrics = for_manifest({i: m.plain for i, m in output.metrics.items()}, schema, metrics_modes(schema, {}))
    return describe_output(model, output, metrics)
