"""Finds the rows behind equality deletes on Spark and writes them as vectors, however large the deletes are.

Called by rewriting, for deletes that do not fit a task, and by conversion. One plan: keys of data files and of deletes are
shuffled together and sorted, a row is gone if a newer delete stands before it among equal keys, and its position goes to the
task that writes its file's vector. Both sorts spill; nothing is broadcast but a small filter, nothing is collected but one line
per data file. No frequent key is a burden, since tasks join what is equal before it is shuffled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from neve.errors import NeveError
from neve.rewrite.equality_rows import KeyFile, KeyTask, ResolveDelete, ResolvedFile, ResolveInput, cut, key_files
from neve.rewrite.work_order import DeleteKind
from neve.spark.runtime.job_failure import reason_of
from neve.spark.runtime.task_python import map_in_arrow, task_context
from neve.spark.tasks.shipping import prepare
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from neve.spark.tasks.resolving_tasks import ReadKeys

log = logging.getLogger(__name__)

Properties = Mapping[str, str]

TASK_BYTES = 128 * MIB
PARTITION_BYTES = 32 * MIB
"""Of shuffled rows: little enough to sort beside others in a small executor."""
_MOST_TASKS, _MOST_PARTITIONS = 10_000, 20_000
_SCREEN_TASKS = 16
_ROW_BYTES = 64
_DECODED_RATIO = 4
"""How much larger keys are than the file that holds them, at a guess that only decides how finely rows are dealt out."""


class ResolvingError(NeveError):
    """Equality deletes could not be turned into positions; nothing of the table has changed."""

    code: ClassVar[str] = "resolving-failed"


class Resolver:
    """Resolves equality deletes of one table. `storage` gives the properties that tasks need to open its files."""

    def __init__(self, spark: SparkSession, storage: Properties | Callable[[], Properties]) -> None:
        self._spark = spark
        self._storage = storage if callable(storage) else lambda: storage
        self._unused: list[str] = []

    def resolve(
        self,
        data: Sequence[ResolveInput],
        deletes: Sequence[ResolveDelete],
        *,
        key_fields: Sequence[Mapping[str, Any]],
        output_prefix: str,
        name_mapping: Sequence[Any] | None = None,
        apart: bool = True,
    ) -> list[ResolvedFile]:
        """A vector for every data file that loses rows; `apart`, each in a Puffin file of its own, as they should be to stay.

        The prefix belongs to this call alone: files beginning with it that are not in the answer are `unused`.
        """
        data_files, delete_files = key_files(data, deletes)
        if not data_files:
            return []
        properties = self._checked_properties(data, deletes, output_prefix)
        from neve.spark.tasks.resolving_tasks import ReadKeys

        read = ReadKeys(properties, tuple(key_fields), name_mapping)
        kept: list[ResolvedFile] = []
        try:
            with self._screen(read, data_files, delete_files) as screen:
                reading = ReadKeys(properties, read.fields, name_mapping, screen)
                kept = self._run(reading, [*delete_files, *data_files], data, output_prefix, apart=apart)
        except NeveError:
            raise
        except Exception as error:  # Spark's failures come as many types
            raise ResolvingError(f"Cannot resolve equality deletes: {_told(error)}") from error
        finally:
            self._find_others(properties, output_prefix, {file.path for file in kept})
        return kept

    def unused(self) -> list[str]:
        """Files of task attempts that were lost, since this was last called."""
        given, self._unused = self._unused, []
        return given

    def _checked_properties(self, data: Sequence[ResolveInput], deletes: Sequence[ResolveDelete], prefix: str) -> Properties:
        """Whatever tasks would fail on is said before any is started."""
        from neve.storage.files import refusal

        properties = dict(self._storage())
        other = next((d.file for d in deletes if d.file.kind is not DeleteKind.EQUALITY or d.file.format != "parquet"), None)
        if other is not None:
            raise ResolvingError(
                f"Cannot resolve {other.path}: it holds {other.kind} deletes as {other.format}",
                hint="Only equality deletes in Parquet files are resolved; the spark kernel applies any.",
            )
        paths = [prefix, *(one.file.path for one in data), *(one.file.path for one in deletes)]
        if reason := prepare(self._spark.sparkContext) or refusal(properties, paths):
            raise ResolvingError(f"Cannot resolve equality deletes: {reason}", hint="The spark kernel applies them.")
        return properties

    @contextmanager
    def _screen(self, read: ReadKeys, data: Sequence[KeyFile], deletes: Sequence[KeyFile]) -> Iterator[Broadcast[bytes] | None]:
        """A filter of the deletes' keys, where it spares the shuffle more than reading the deletes twice costs."""
        from neve.spark.tasks.resolving_keys import Screen
        from neve.spark.tasks.resolving_tasks import either

        keys, context = sum(file.keys for file in deletes), self._spark.sparkContext
        words = Screen.words_for(keys)
        if words is None or sum(file.keys for file in data) < keys:
            yield None
            return
        share = sum(file.size_bytes for file in deletes) // _SCREEN_TASKS + MIB
        tasks = [task.model_dump_json() for task in cut(deletes, share)]
        dealt = task_context(context).parallelize(tasks, min(len(tasks), _SCREEN_TASKS))
        parts = dealt.map(partial(read.screened, words=words))
        broadcast = context.broadcast(parts.treeReduce(either))
        try:
            yield broadcast
        finally:
            broadcast.destroy()

    def _run(
        self, read: ReadKeys, files: Sequence[KeyFile], data: Sequence[ResolveInput], prefix: str, *, apart: bool
    ) -> list[ResolvedFile]:
        from neve.spark.tasks.resolving_tasks import KEYS, VECTORS, WriteVectors

        session = self._session(files)
        total = sum(file.size_bytes for file in files)
        tasks = list(cut(files, max(TASK_BYTES, total // _MOST_TASKS)))
        log.info("resolving: %s deletes and data files in %s tasks", len(files), len(tasks))
        keys = map_in_arrow(self._tasks(session, tasks), read, KEYS)
        vectors = map_in_arrow(_deleted(keys), WriteVectors(read.properties, prefix, apart), VECTORS)
        return [
            ResolvedFile(data_path=data[row.file].file.path, **{k: v for k, v in row.asDict().items() if k != "file"})
            for row in vectors.collect()
        ]

    def _session(self, files: Sequence[KeyFile]) -> SparkSession:
        """A session of its own, so that the caller's settings stay as they are."""
        session = self._spark.newSession()
        guess = sum(max(file.keys * _ROW_BYTES, (file.number is None) * file.size_bytes * _DECODED_RATIO) for file in files)
        least = 2 * int(self._spark.sparkContext.defaultParallelism)
        partitions = min(max(guess // PARTITION_BYTES, least), _MOST_PARTITIONS)
        conf = {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.adaptive.coalescePartitions.enabled": "true",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(PARTITION_BYTES),
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(partitions),
            "spark.sql.shuffle.partitions": str(partitions),
            # A row holds up to 8 KiB of positions.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        }
        for key, value in conf.items():
            session.conf.set(key, value)
        return session

    def _tasks(self, session: SparkSession, tasks: Sequence[KeyTask]) -> DataFrame:
        """One row and one partition for each task, made by the JVM: a list of Python's would take a worker more per task."""
        from pyspark.sql import DataFrame

        context: Any = session.sparkContext
        texts = context._jsc.parallelize([task.model_dump_json() for task in tasks], len(tasks)).rdd()
        dataset = session._jsparkSession.createDataset(texts, context._jvm.org.apache.spark.sql.Encoders.STRING())
        return DataFrame(dataset.toDF(), session)

    def _find_others(self, properties: Properties, prefix: str, kept: set[str]) -> None:
        """An attempt that still writes leaves its file to orphan removal."""
        from neve.storage.files import Storage

        try:
            self._unused += [path for path in Storage(properties).begins_with(f"{prefix}-") if path not in kept]
        except NeveError as error:
            log.warning("left behind: %s", error)


def _told(error: Exception) -> str:
    """What our own code said in the task, below a Python traceback within a Java one; else the failure in one line."""
    ours = re.findall(r"^neve\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return ours[-1] if ours else reason_of(error)


def _deleted(keys: DataFrame) -> DataFrame:
    """Places and positions of rows that are gone, and the names of files, each file's together and in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from neve.spark.tasks.resolving_tasks import SLOT_BITS

    place = f.col("place")
    # Newest first. What a delete leaves alone is as new as it or newer, so that it comes before the delete.
    newest_first = Window.partitionBy("key").orderBy(f.col("sequence").desc(), place.asc_nulls_last())
    before = newest_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_name = place.bitwiseAND((1 << SLOT_BITS) - 1) == 0
    marked = keys.withColumn("deleted", f.max(place.isNull()).over(before))
    gone = marked.where(place.isNotNull() & (is_name | f.col("deleted"))).select("place", "positions")
    return gone.repartition(f.shiftright("place", SLOT_BITS)).sortWithinPartitions("place")
