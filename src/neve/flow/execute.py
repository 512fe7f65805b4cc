"""execute: turns groups into work orders and hands out what becomes of them. Nothing is visible to readers yet.

Called by `flow.run`. Groups of the `copy` and `arrow` kernels travel as orders; those of the `spark` kernel, and those that no
other kernel would take, are rewritten by Spark itself through the same port.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from neve.core.live import LiveFile
from neve.core.model import PartitionSpec
from neve.core.plan import Plan
from neve.core.plan_words import Group, Kernel
from neve.core.work import InputFile, WorkOrder, WriteSettings
from neve.ports import TableWriter

_NAME_MAPPING = "schema.name-mapping.default"
_BLOOM = "write.parquet.bloom-filter-enabled.column."


def work_orders(
    plan: Plan, groups: Iterable[Group], live: Mapping[str, LiveFile], writer: TableWriter, specs: Sequence[PartitionSpec]
) -> list[WorkOrder]:
    """One order per group, with everything its worker needs."""
    properties, schema = writer.properties(), writer.schema_json()
    mapping = json.loads(properties[_NAME_MAPPING]) if _NAME_MAPPING in properties else None
    settings = write_settings(plan, properties)
    constants = {
        spec.spec_id: [(i, f.source_id) for i, f in enumerate(spec.fields) if f.transform == "identity"] for spec in specs
    }
    orders = []
    for group in groups:
        files = [live[path] for path in plan.paths(group)]
        name = f"neve-{uuid4().hex}"
        orders.append(
            WorkOrder(
                order_id=name,
                table=str(plan.table),
                group_id=group.group_id,
                kernels=_kernels(group.kernel, properties),
                inputs=tuple(_input(file, constants[group.spec_id]) for file in files),
                table_schema=schema,
                name_mapping=mapping,
                output_prefix=writer.data_location(files[0], name),
                write=_cut_evenly(settings, group),
            )
        )
    return orders


def _cut_evenly(settings: WriteSettings, group: Group) -> WriteSettings:
    """A group that is cut becomes files of equal size; a tenth more lets the last one take what is left over."""
    if group.outputs <= 1:
        return settings
    share = group.input_bytes * 11 // (10 * group.outputs)
    return settings.model_copy(update={"target_bytes": min(settings.target_bytes, share)})


def _input(file: LiveFile, constants: Sequence[tuple[int, int]]) -> InputFile:
    values = file.data_file.get("partition") or []
    fixed = {source_id: values[i] for i, source_id in constants if i < len(values)}
    return InputFile(path=file.path, size_bytes=file.size_bytes, records=file.records, constants=fixed)


def _kernels(first: Kernel, properties: Mapping[str, str]) -> tuple[Kernel, ...]:
    """The planned kernel and those that may step in; bloom filters survive a copy, but a re-encoding needs Iceberg's writer."""
    if first is not Kernel.COPY:
        return (first,)
    wants_bloom = any(key.startswith(_BLOOM) and value == "true" for key, value in properties.items())
    return (Kernel.COPY,) if wants_bloom else (Kernel.COPY, Kernel.ARROW)


def write_settings(plan: Plan, properties: Mapping[str, str]) -> WriteSettings:
    """The table's write properties, the policy's wish for a codec first."""
    level = properties.get("write.parquet.compression-level")
    policy = plan.policy
    return WriteSettings(
        codec=policy.compression_codec or properties.get("write.parquet.compression-codec", "zstd"),
        level=int(level) if level is not None else None,
        target_bytes=2 * policy.target_file_size_bytes,  # groups are cut to size already; rolling only guards against growth
        row_group_bytes=int(properties.get("write.parquet.row-group-size-bytes", 128 * 1024 * 1024)),
        row_group_rows=policy.row_group_rows,
        page_bytes=int(properties.get("write.parquet.page-size-bytes", 1024 * 1024)),
        page_rows=int(properties.get("write.parquet.page-row-limit", 20_000)),
        dictionary_bytes=int(properties.get("write.parquet.dict-size-bytes", 2 * 1024 * 1024)),
    )
