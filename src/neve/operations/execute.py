"""execute: turns groups into work orders and hands out what becomes of them. Nothing is visible to readers yet.

Called by `operations.rewrite_run`. Groups of the `copy` and `arrow` kernels travel as orders; those of the `spark` kernel, and
those that no other kernel would take, are rewritten by Spark itself through the same port.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

from neve.commit.failure import Failure
from neve.errors import VerificationError
from neve.ports import TableWriter
from neve.rewrite.group import Group, Kernel
from neve.rewrite.kernel_options import wants_bloom_filters
from neve.rewrite.live_files import DataFile, DeleteKey, LiveFile, delete_of
from neve.rewrite.plan import Plan
from neve.rewrite.work_order import DeleteFile, FailedOrder, InputFile, WorkOrder, WriteSettings
from neve.table.metrics import leaf_fields
from neve.table.nested_keys import check_provable, nested_columns
from neve.table.state import PartitionSpec

log = logging.getLogger(__name__)

_NAME_MAPPING = "schema.name-mapping.default"


def work_orders(
    plan: Plan, groups: Iterable[Group], live: Mapping[str, LiveFile], writer: TableWriter, specs: Sequence[PartitionSpec]
) -> list[WorkOrder]:
    """One order per group, with everything its worker needs. Raises if any group has none."""
    make = _Orders(plan, live, writer, specs)
    return [make.order(group) for group in groups]


def orders_or_failures(
    plan: Plan, groups: Iterable[Group], live: Mapping[str, LiveFile], writer: TableWriter, specs: Sequence[PartitionSpec]
) -> tuple[list[WorkOrder], list[FailedOrder]]:
    """The orders, and the groups of which no order can be made: these fail alone."""
    make = _Orders(plan, live, writer, specs)
    orders, failed = list[WorkOrder](), list[FailedOrder]()
    for group in groups:
        try:
            orders.append(make.order(group))
        except Exception as error:
            log.warning("group %s gets no work order", group.group_id, exc_info=error)
            failure = Failure.of(error)
            failed.append(FailedOrder(group_id=group.group_id, reason=failure.reason, traceback=failure.traceback))
    return orders, failed


class _Orders:
    """Makes orders from what all groups of a plan share."""

    def __init__(self, plan: Plan, live: Mapping[str, LiveFile], writer: TableWriter, specs: Sequence[PartitionSpec]) -> None:
        self._plan, self._live, self._writer = plan, live, writer
        self._properties, self._schema = writer.properties(), writer.schema_json()
        self._mapping, self._constants = name_mapping(self._properties), identity_fields(specs)
        self._settings = write_settings(plan, self._properties)
        self._deletes, self._lineage = _Deletes(plan, writer), has_row_lineage(plan)

    def order(self, group: Group) -> WorkOrder:
        """The order of one group."""
        plan, deletes = self._plan, self._deletes
        files = [self._live[path] for path in plan.paths(group)]
        if len(partitions_of(files)) > 1:
            raise VerificationError(
                f"Cannot rewrite partition {group.partition}: its files are of several partitions of the table",
                hint="This is a fault in Neve. Nothing of the group was written; please report it.",
            )
        name = f"neve-{uuid4().hex}"
        applied = deletes.of(files)
        deletes.check(applied.values())
        places = {key: i for i, key in enumerate(applied)}
        numbers = deletes.data_numbers if applied or self._lineage else {}
        return WorkOrder(
            order_id=name,
            table=str(plan.table),
            group_id=group.group_id,
            kernels=_kernels(group.kernel, self._properties),
            inputs=tuple(_input(file, self._constants[group.spec_id], places, numbers) for file in files),
            table_schema=self._schema,
            name_mapping=self._mapping,
            output_prefix=self._writer.data_location(files[0], name),
            write=_cut_evenly(self._settings, group),
            deletes=tuple(applied.values()),
            key_fields=deletes.key_fields(applied.values()),
            row_lineage=self._lineage,
            layout=plan.layout if group.ordered else None,
            inputs_sorted=_inputs_sorted(plan, group),
            output_spec_id=_output_spec(plan, group),
        )


def partitions_of(files: Iterable[LiveFile]) -> set[str]:
    """The specs and partition values of these files, as Iceberg writes them.

    A rewrite gives its outputs those of the first file, and readers take identity values from there: files of two partitions in
    one group would change the values of one of them.
    """
    return {json.dumps([file.data_file.get("spec-id"), file.data_file.get("partition")]) for file in files}


def has_row_lineage(plan: Plan) -> bool:
    """Whether rows of the table have ids and sequence numbers that a rewrite must keep: from format version 3 on."""
    return plan.table_format_version >= 3


def _inputs_sorted(plan: Plan, group: Group) -> bool:
    """Whether every input says that it has the layout's order; a kernel that merges them finds out whether that is so."""
    if not group.ordered or plan.layout is None or plan.layout.order_id == 0:
        return False
    return bool((plan.files.column("sort_order_id")[list(group.files)] == plan.layout.order_id).all())


def _output_spec(plan: Plan, group: Group) -> int | None:
    """The current spec for a group of an older one, if the policy brings old data to it."""
    return plan.default_spec_id if plan.policy.evolve_specs and group.spec_id != plan.default_spec_id else None


class _Deletes:
    """The deletes of a plan's files, as orders carry them; the table is asked only where there are some."""

    def __init__(self, plan: Plan, writer: TableWriter) -> None:
        self._plan, self._writer = plan, writer
        self._known: dict[DeleteKey, DeleteFile] = {}

    @cached_property
    def data_numbers(self) -> Mapping[str, int]:
        """Sequence numbers of the plan's data files."""
        files = self._plan.files
        return dict(zip(files.table.column("path").to_pylist(), files.column("sequence_number").tolist(), strict=True))

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return self._writer.sequence_numbers(self._plan.snapshot_id) if self._plan.snapshot_id is not None else {}

    def of(self, files: Iterable[LiveFile]) -> dict[DeleteKey, DeleteFile]:
        """All that apply to any of these, each once; an equality delete that applies to one applies to every older one."""
        found: dict[DeleteKey, DeleteFile] = {}
        for file in files:
            if new := file.deletes - found.keys():
                described = file.described_deletes
                found |= {key: self._delete(key, described[key]) for key in sorted(new)}
        return found

    def _delete(self, key: DeleteKey, described: DataFile) -> DeleteFile:
        if key not in self._known:
            self._known[key] = delete_of(described, self._numbers[described["file-path"]])
        return self._known[key]

    def check(self, deletes: Iterable[DeleteFile]) -> None:
        """Raises UnprovableDeletesError if no kernel could be proved right with one of these."""
        if compared := [delete.equality_ids for delete in deletes if delete.equality_ids]:
            check_provable(compared, self._nested)

    @cached_property
    def _nested(self) -> dict[int, str]:
        return nested_columns(self._writer.schemas_json())

    def key_fields(self, deletes: Iterable[DeleteFile]) -> tuple[dict[str, Any], ...]:
        """The columns that these compare; where the table has dropped one, as its last schema with it had it."""
        wanted = {field_id for delete in deletes for field_id in delete.equality_ids}
        return tuple(self._fields[field_id] for field_id in sorted(wanted))

    @cached_property
    def _fields(self) -> dict[int, dict[str, Any]]:
        return {i: field for schema in self._writer.schemas_json() for i, field in leaf_fields(schema)}


def name_mapping(properties: Mapping[str, str]) -> list[Any] | None:
    """How columns of files without field ids are found, where the table says so."""
    found: list[Any] | None = json.loads(properties.get(_NAME_MAPPING, "null"))
    return found


def identity_fields(specs: Iterable[PartitionSpec]) -> dict[int, list[tuple[int, int]]]:
    """By spec, the places of partition values that are values of a column, and the column's id."""
    return {spec.spec_id: [(i, f.source_id) for i, f in enumerate(spec.fields) if f.transform == "identity"] for spec in specs}


def identity_values(file: LiveFile, fields: Iterable[tuple[int, int]]) -> dict[int, Any]:
    """The columns of a file that its partition fixes."""
    values = file.data_file.get("partition") or []
    return {source_id: values[i] for i, source_id in fields if i < len(values)}


def _cut_evenly(settings: WriteSettings, group: Group) -> WriteSettings:
    """A group that is cut becomes files of equal size; a tenth more lets the last one take what is left over."""
    if group.outputs <= 1:
        return settings
    share = group.input_bytes * 11 // (10 * group.outputs)
    return settings.model_copy(update={"target_bytes": min(settings.target_bytes, share)})


def _input(
    file: LiveFile,
    constants: Sequence[tuple[int, int]],
    places: Mapping[DeleteKey, int],
    numbers: Mapping[str, int],
) -> InputFile:
    return InputFile(
        path=file.path,
        size_bytes=file.size_bytes,
        records=file.records,
        constants=identity_values(file, constants),
        deletes=tuple(sorted(places[key] for key in file.position_deletes)),
        sequence_number=numbers.get(file.path),
        first_row_id=file.data_file.get("first-row-id"),
    )


def _kernels(first: Kernel, properties: Mapping[str, str]) -> tuple[Kernel, ...]:
    """The planned kernel and those that may step in; bloom filters survive a copy, but a re-encoding needs Iceberg's writer."""
    if first is not Kernel.COPY:
        return (first,)
    return (Kernel.COPY,) if wants_bloom_filters(properties) else (Kernel.COPY, Kernel.ARROW)


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
