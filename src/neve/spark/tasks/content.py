"""Proof by content: fingerprints the rows of a group before and after its rewrite, by an engine that did not write them.

Called by the verify stage through `ports.ContentVerifier`, before the commit. Spark's reader decodes the inputs, deletes
applied, and what other kernels wrote; pyarrow decodes what Spark wrote. Where only one of them can read a table, it reads both
sides, and the proof says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from neve.errors import VerificationError
from neve.rewrite.content import ContentProof, Fingerprint, total
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import DataFile, LiveFile
from neve.rewrite.work_order import WorkResult
from neve.spark.runtime.job_failure import reason_of
from neve.spark.runtime.task_python import map_in_arrow
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.arrow_content import LINEAGE, FileReader
from neve.spark.tasks.shipping import prepare
from neve.spark.tasks.staging import staged
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEAST_SPLIT_BYTES = 16 * MIB
_LINEAGE_SINCE = 3
_BASE = "first-row-id"
_A_LONG = 2**40
"""Py4J hands smaller numbers over as integers."""
_SPARK, _PYARROW = "spark", "pyarrow"
_HINT = "Nothing of it was committed; --verify metadata proves it by counts alone."


class _Unprovable(Exception):  # noqa: N818 - a reason, which `compare` turns into an error with the group's number
    pass


class ContentCheck:
    """Compares groups of one table, planned at one snapshot. `storage` gives the properties that tasks need to open files."""

    def __init__(
        self, spark: SparkSession, bridge: TableBridge, snapshot_id: int, storage: Callable[[], Mapping[str, str]]
    ) -> None:
        self._spark, self._bridge, self._snapshot_id = spark, bridge, snapshot_id
        self._files = FileReader(spark, bridge, storage)

    def compare(self, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[DataFile]) -> ContentProof:
        """The proof for one group; `outputs` are its new files as the commit would add them. Raises VerificationError."""
        try:
            return self._compare(result, inputs, [LiveFile(file) for file in outputs])
        except Exception as error:  # Spark's failures come as many types, and mean that nothing is proved
            reason = str(error) if isinstance(error, _Unprovable) else reason_of(error)
            raise VerificationError(f"Cannot prove group {result.group_id} by content: {reason}", hint=_HINT) from error

    def _compare(self, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[LiveFile]) -> ContentProof:
        began = time.monotonic()
        before_by, after_by, note = self._readers(result, inputs, outputs)
        numbered = {_BASE in file.data_file for file in inputs}
        lineage = self._keeps_lineage and before_by == _SPARK and len(numbered) == 1
        before = self._read_inputs(inputs, lineage=lineage) if before_by == _SPARK else self._files.fingerprint(inputs)
        if after_by == _SPARK:
            after = self._read(self._new_tasks(outputs, lineage=lineage and numbered == {True}), outputs, lineage=lineage)
        else:
            after = self._files.fingerprint(outputs, lineage=lineage)
        return ContentProof(
            group_id=result.group_id,
            before=before,
            after=after,
            engine=before_by if before_by == after_by else f"{before_by} before and {after_by} after",
            note=note,
            seconds=time.monotonic() - began,
        )

    def _readers(
        self, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[LiveFile]
    ) -> tuple[str, str, str | None]:
        """Who reads the inputs, who the outputs, and why that is not as independent as it should be."""
        if (trouble := prepare(self._spark.sparkContext)) is not None:
            raise _Unprovable(trouble)
        if (reason := self._unreadable) is not None:
            if any(file.deletes for file in inputs):
                raise _Unprovable(f"Spark cannot read the table ({reason}), and pyarrow does not apply deletes")
            return _PYARROW, _PYARROW, f"Spark cannot read the table: {reason}"
        if result.kernel is not Kernel.SPARK:
            return _SPARK, _SPARK, None
        if (reason := self._files.refusal(outputs)) is not None:
            return _SPARK, _SPARK, f"pyarrow cannot read what Spark wrote: {reason}"
        return _SPARK, _PYARROW, None

    @cached_property
    def _unreadable(self) -> str | None:
        """Why Spark cannot read the table, such as a column of type time; None if it can."""
        utility: Any = self._spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil
        try:
            utility.convert(self._bridge.table.schema())
        except Exception as error:  # PySpark hands Java's UnsupportedOperationException over as a type of its own
            java = getattr(error, "java_exception", None)
            return str(java.getMessage() if java is not None else error).splitlines()[0]
        return None

    @property
    def _keeps_lineage(self) -> bool:
        """Whether rows have an identity that a rewrite must keep (format v3), and the sequence numbers it needs are there."""
        return self._bridge.shape()["format version"] >= _LINEAGE_SINCE and self._bridge.knows(self._snapshot_id)

    def _read_inputs(self, inputs: Sequence[LiveFile], *, lineage: bool) -> Fingerprint:
        """With their deletes, as planned; a resumed run's snapshot may be gone, but then no input has any."""
        if self._bridge.knows(self._snapshot_id):
            tasks = self._bridge.scan_tasks(self._snapshot_id, [file.path for file in inputs])
        else:
            tasks = self._bridge.tasks(file.data_file for file in inputs)
        return self._read(tasks, inputs, lineage=lineage)

    def _new_tasks(self, outputs: Sequence[LiveFile], *, lineage: bool) -> Any:
        """Scan tasks over files that are not in the table.

        Iceberg reads no lineage at all from a file that has neither a first row id nor a number, which it is given only by a
        commit; so it gets some. They would count where a row says nothing itself, and every row does.
        """
        if not lineage:
            return self._bridge.tasks(file.data_file for file in outputs)
        tasks = self._bridge.tasks(file.data_file | {_BASE: 0} for file in outputs)
        jvm: Any = self._spark._jvm
        new_array = self._spark.sparkContext._gateway.new_array
        kinds, given = new_array(jvm.java.lang.Class, 1), new_array(jvm.java.lang.Object, 1)
        loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        kinds[0], given[0] = loader.loadClass("java.lang.Long"), _A_LONG
        number = loader.loadClass("org.apache.iceberg.BaseFile").getDeclaredMethod("setDataSequenceNumber", kinds)
        number.setAccessible(True)
        for task in tasks:
            number.invoke(task.file(), given)
        return tasks

    def _read(self, tasks: Any, files: Sequence[LiveFile], *, lineage: bool) -> Fingerprint:
        if not files:
            return Fingerprint()
        cores = int(self._spark.sparkContext.defaultParallelism)
        split = max(sum(file.size_bytes for file in files) // cores + 1, _LEAST_SPLIT_BYTES)
        with staged(self._spark, self._bridge, tasks) as set_id:
            reader = self._spark.read.format("iceberg").option("scan-task-set-id", set_id)
            frame = reader.option("split-size", str(split)).option("file-open-cost", "0").load(set_id)
            # Of a table in format v3, staged tasks bring the lineage along unasked.
            return fingerprint_frame(frame if lineage else frame.drop(*LINEAGE))


def fingerprint_frame(frame: DataFrame) -> Fingerprint:
    """The fingerprint of a DataFrame's rows, computed by its tasks."""
    # By number in between: PySpark would take the dots in a name for a path into a struct.
    numbered = frame.toDF(*(str(i) for i in range(len(frame.columns))))
    answers = map_in_arrow(numbered, partial(_in_task, frame.columns), "answer string").collect()
    return total(Fingerprint.model_validate_json(row.answer) for row in answers)


def _in_task(names: Sequence[str], batches: Iterator[Any]) -> Iterator[Any]:
    """In a Python worker: one row with the fingerprint of a partition."""
    import pyarrow as pa

    from neve.kernels.content import fingerprint

    found = fingerprint(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)
    yield pa.record_batch([pa.array([found.model_dump_json()])], ["answer"])
