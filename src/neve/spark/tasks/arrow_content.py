"""Fingerprints of data files as pyarrow decodes them, in Spark's Python tasks: one file at a time, several in flight.

Called by `content` for files that Spark wrote, and for tables that Spark cannot read. Knows nothing of deletes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from neve.rewrite.content import Fingerprint, total
from neve.rewrite.live_files import LiveFile
from neve.rewrite.work_order import InputFile
from neve.spark.runtime.task_python import task_context
from neve.spark.table.bridge import TableBridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME_MAPPING = "schema.name-mapping.default"
_TASKS_PER_CORE = 4
LINEAGE = ("_row_id", "_last_updated_sequence_number")
"""Format v3's columns that say which row this is, and when it last changed."""


class FileReader:
    """Reads files of one table under its current schema. `storage` gives the properties that tasks need to open them."""

    def __init__(self, spark: SparkSession, bridge: TableBridge, storage: Callable[[], Mapping[str, str]]) -> None:
        self._spark, self._bridge, self._storage = spark, bridge, storage

    def refusal(self, files: Sequence[LiveFile]) -> str | None:
        """Why pyarrow is not to read these files, None if it may."""
        from neve.kernels.arrow.schema import unsupported
        from neve.storage import files as storage

        other = {str(file.data_file["file-format"]) for file in files} - {"parquet"}
        if other:
            return f"files are {min(other)}"
        if any("key-metadata" in file.data_file for file in files):
            return "files are encrypted"
        return unsupported(self._schema) or storage.refusal(self._storage(), [file.path for file in files])

    def fingerprint(self, files: Sequence[LiveFile], *, lineage: bool = False) -> Fingerprint:
        """The fingerprint of all rows in these files, with the row lineage that they hold if that is asked for."""
        from neve.kernels.arrow.schema import with_lineage

        if not files:
            return Fingerprint()
        schema = with_lineage(self._schema) if lineage else self._schema
        context = self._spark.sparkContext
        task = partial(_in_task, schema, self._name_mapping, dict(self._storage()))
        slices = min(len(files), _TASKS_PER_CORE * int(context.defaultParallelism))
        texts = [self._input(file).model_dump_json() for file in files]
        answers = task_context(context).parallelize(texts, slices).map(task).collect()
        return total(Fingerprint.model_validate_json(answer) for answer in answers)

    def _input(self, file: LiveFile) -> InputFile:
        values = file.data_file.get("partition") or []
        fixed = self._constants[int(file.data_file["spec-id"])]
        constants = {source_id: values[i] for i, source_id in fixed if i < len(values)}
        return InputFile(path=file.path, size_bytes=file.size_bytes, records=file.records, constants=constants)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return self._bridge.schema_json()

    @cached_property
    def _name_mapping(self) -> list[Any] | None:
        text = self._bridge.properties().get(_NAME_MAPPING)
        return None if text is None else json.loads(text)

    @cached_property
    def _constants(self) -> dict[int, list[tuple[int, int]]]:
        """Places in the partition and field ids of identity partition columns, by spec: files need not hold these columns."""
        found: dict[int, list[tuple[int, int]]] = {}
        for spec in self._bridge.table.specs().values():
            fields = enumerate(spec.fields())
            found[int(spec.specId())] = [(i, int(f.sourceId())) for i, f in fields if f.transform().isIdentity()]
        return found


def _in_task(schema: dict[str, Any], name_mapping: list[Any] | None, properties: Mapping[str, str], text: str) -> str:
    """In a Python worker: the fingerprint of one file, as JSON."""
    from neve.kernels.arrow import ArrowInput
    from neve.kernels.arrow.constants import constant
    from neve.kernels.content import fingerprint_files
    from neve.storage.files import Storage

    file = InputFile.model_validate_json(text)
    kinds = {field["id"]: field["type"] for field in schema["fields"]}
    constants = {i: constant(kinds[i], value) for i, value in file.constants.items() if i in kinds}
    given = ArrowInput(Storage(properties).source(file.path, file.size_bytes), file.records, constants=constants)
    return fingerprint_files([given], schema, name_mapping=name_mapping).model_dump_json()
