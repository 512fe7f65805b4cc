"""Every file below a place, judged by its path and age, as a DataFrame that is complete when it is handed out.

Used by `spark.maintenance.orphans`. The driver lists the first files, and all of a small table; then tasks list local disks and
S3, level by level until there are directories enough to deal out; other stores are listed by the table's own FileIO, in a
stream through the driver; or a list that others made is read. What was listed is kept: where a part of it is lost the job fails
rather than list that again at a later moment.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, EnvironmentFaultError
from neve.maintenance.orphans import OrphanRules, is_metadata
from neve.spark.maintenance.judging import is_inside, located, verdicts
from neve.spark.maintenance.reachable import few_tasks, own_session
from neve.spark.runtime.task_python import rows_of, task_context
from neve.spark.table.bridge import TableBridge
from neve.spark.table.methods import Methods
from neve.spark.table.outcome import reading
from neve.spark.tasks.shipping import prepare
from neve.storage.files import Storage, StorageEntry, refusal
from neve.table.location import Spellings, address, refuse_cut

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

Properties = Mapping[str, str]
Row = tuple[str | int | None, ...]

_SCHEMA = "verdict string, scheme string, authority string, key string, path string, size_bytes bigint, modified_ms bigint"
_DIRECTORY = "directory"
_BATCH_FILES = 10_000
_LEVELS = 4
"""Of directories that are listed one by one before whole trees are."""
_MOST_TASKS = 1_000
OLDEST_MS = 946_684_800_000
"""The year 2000: a list that says less counts in other units than milliseconds."""


def list_files(
    spark: SparkSession, root: str, rules: OrphanRules, *, storage: Callable[[], Properties], bridge: TableBridge
) -> DataFrame:
    """The files below a place, spelled as the place is, with what the rules make of them."""
    refuse_cut("the table", root)
    properties = dict(storage())
    by_tasks = refusal(properties, [root]) is None
    is_local = by_tasks and rules.root.scheme in ("", "file")
    by_driver = is_local or _lists_files(spark, bridge)
    if not (by_driver or by_tasks):
        raise BadRequestError(
            f"Cannot list {root}: the table's FileIO does not list files",
            hint="Give a list of files: `neve orphans TABLE --inventory FILE`.",
        )
    batches = _by_walking(root) if is_local else _by_file_io(spark, root, bridge)
    first = next(batches, []) if by_driver else None
    if first is not None and len(first) < _BATCH_FILES:
        return spark.createDataFrame(list(_judged(rules, first)), _SCHEMA)
    require_tasks(spark, root)
    if first is None or by_tasks:
        return _by_tasks(spark, root, rules, properties)
    chunks = [_packed(batch) for batch in chain([first], batches)]
    dealt = task_context(spark.sparkContext).parallelize(chunks, min(len(chunks), _MOST_TASKS))
    return _kept(spark, dealt.flatMap(_unpacked).mapPartitions(partial(_judged, rules)))


def list_metadata(spark: SparkSession, directory: str, rules: OrphanRules, bridge: TableBridge) -> Iterator[str]:
    """Metadata files in a directory, listed now and on the driver; none where the table's FileIO does not list."""
    is_local = rules.spellings.parse(directory).scheme in ("", "file")
    if is_local or _lists_files(spark, bridge):
        batches = _by_walking(directory) if is_local else _by_file_io(spark, directory, bridge)
        yield from (path for batch in batches for path, _, _ in batch if is_metadata(path))


def read_inventory(spark: SparkSession, file: str, rules: OrphanRules, usual: str = "") -> DataFrame:
    """The same from a list in Parquet or CSV, as far as it is of the place; a path may be there twice."""
    from pyspark.sql import functions as f

    found = located(_inventory(spark, file), rules.spellings, usual).where(is_inside(rules))
    if rules.running:
        require_tasks(spark, file)
        judged = rows_of(found.select("path", "size_bytes", "modified_ms")).mapPartitions(partial(_judged, rules))
        return with_hash(_kept(spark, judged))
    scheme = f.when(f.col("scheme") == "", "file").otherwise(f.col("scheme")).alias("scheme")
    placed = found.select(
        f.xxhash64("key").alias("hash"),
        verdicts(rules).alias("verdict"),
        *(scheme, "authority", "path", "size_bytes", "modified_ms"),
    )
    # Dealt out as it will be joined. Read now and never again: a list that is written anew must not tell of files that came
    # after the table was loaded.
    return placed.repartition(few_tasks(spark), "hash").localCheckpoint()


def with_hash(listed: DataFrame) -> DataFrame:
    """With a number for each key, by which files are compared: that two keys have the same one can only keep a file."""
    from pyspark.sql import functions as f

    return listed.withColumn("hash", f.xxhash64("key"))


def _inventory(spark: SparkSession, file: str) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    reader = own_session(spark).read().option("header", "true")
    try:
        frame = DataFrame(reader.csv(file) if file.removesuffix(".gz").endswith(".csv") else reader.parquet(file), spark)
    except PySparkException as error:
        raise BadRequestError(f"Cannot read the inventory {file}: {str(error).splitlines()[0]}") from error
    lacking = [name for name in ("path", "size", "modified") if name not in frame.columns]
    if lacking:
        hint = "It needs the columns path, size and modified (a timestamp, or milliseconds since 1970)."
        raise BadRequestError(f"Cannot use the inventory {file}: it has no column {lacking[0]}", hint=hint)
    moment = frame.schema["modified"].dataType.typeName().startswith("timestamp")
    modified = "unix_millis(CAST(modified AS TIMESTAMP))" if moment else _AS_MILLISECONDS
    return frame.selectExpr("path", "coalesce(try_cast(size AS BIGINT), 0) AS size_bytes", f"{modified} AS modified_ms")


_AS_MILLISECONDS = "coalesce(try_cast(modified AS BIGINT), unix_millis(try_cast(CAST(modified AS STRING) AS TIMESTAMP)))"


def require_tasks(spark: SparkSession, what: str) -> None:
    """Raises EnvironmentFaultError where tasks cannot run our code."""
    if reason := prepare(spark.sparkContext):
        raise EnvironmentFaultError(f"Cannot list {what}: {reason}")


def _by_tasks(spark: SparkSession, root: str, rules: OrphanRules, properties: Properties) -> DataFrame:
    """Level by level, so that no directory's files are on the driver and no task has most of the work."""
    enough = 4 * spark.sparkContext.defaultParallelism
    directories, found = [root], list[Any]()
    for level in range(1, _LEVELS + 1):
        whole = level == _LEVELS or len(directories) >= enough
        listed = _kept(spark, _dealt(spark, directories).mapPartitions(_listing(properties, rules, recursive=whole)))
        found.append(listed.where(f"verdict <> '{_DIRECTORY}'"))
        below = listed.where(f"verdict = '{_DIRECTORY}'").select("path")
        directories = [] if whole else [row.path for row in below.toLocalIterator()]
        if not directories:
            break
    return reduce(lambda one, other: one.unionAll(other), found)


def _kept(spark: SparkSession, rows: RDD[Row]) -> DataFrame:
    return spark.createDataFrame(rows, _SCHEMA, verifySchema=False).localCheckpoint()


def _dealt(spark: SparkSession, directories: list[str]) -> RDD[str]:
    """Neighbours go to different tasks, since they are often alike in size."""
    tasks = min(len(directories), _MOST_TASKS)
    dealt = [path for start in range(tasks) for path in directories[start::tasks]]
    return task_context(spark.sparkContext).parallelize(dealt, tasks)


def _listing(properties: Properties, rules: OrphanRules, *, recursive: bool) -> Callable[[Iterable[str]], Iterator[Row]]:
    """In tasks."""

    def listed(directories: Iterable[str]) -> Iterator[Row]:
        storage = Storage(properties)
        for directory in directories:
            # Arrow gives a directory again as its own child where keys have doubled slashes.
            found = (e for e in storage.entries(directory, recursive=recursive) if e.path.rstrip("/") != directory)
            yield from _judged(rules, (entry for entry in found if entry.size_bytes is not None or not recursive))

    return listed


def _judged(rules: OrphanRules, entries: Iterable[tuple[str, int | None, int | None]]) -> Iterator[Row]:
    for path, size, modified in entries:
        if size is None:
            yield (_DIRECTORY, None, None, None, path, None, None)
        elif (found := rules.judge(path, modified)) is not None:
            verdict, (scheme, authority, key) = found
            yield (verdict.value, scheme or "file", authority, key, path, size, modified)


def _by_walking(root: str) -> Iterator[list[StorageEntry]]:
    files = (entry for entry in Storage({}).entries(root, recursive=True) if entry.size_bytes is not None)
    while some := list(islice(files, _BATCH_FILES)):
        yield some


def _lists_files(spark: SparkSession, bridge: TableBridge) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway: Any = spark.sparkContext._gateway
    return bool(is_instance_of(gateway, bridge.table.io(), "org.apache.iceberg.io.SupportsPrefixOperations"))


def _by_file_io(spark: SparkSession, root: str, bridge: TableBridge) -> Iterator[list[StorageEntry]]:
    """By the catalog's own means, which know every store and grant."""
    guava, methods, io = bridge.jvm.org.apache.iceberg.relocated.com.google.common.collect, Methods(spark), bridge.table.io()
    with reading(f"list {root}"):
        files = io.listPrefix(f"{root}/").iterator()
        while files.hasNext():
            some = guava.Lists.newArrayList(guava.Iterators.limit(files, _BATCH_FILES))
            told = [methods.plain(methods.mapped(some, "io.FileInfo", name)) for name in _FILE_INFO]
            yield [StorageEntry(_as_root_spells(path, root), size, moment) for path, size, moment in zip(*told, strict=True)]


_FILE_INFO = ("location", "size", "createdAtMillis")


def _as_root_spells(path: str, root: str) -> str:
    """Hadoop puts a scheme before paths that have none, and removes dots and doubled slashes; the same file must have one name,
    whoever lists it. A path that is not below the root at all stays as it is, and is nobody's business."""
    if path.startswith(f"{root}/"):
        return path
    below = address(path).path
    homes = (address(root).path, Spellings().parse(root).key)
    return next((f"{root}/{below[len(home) + 1 :]}" for home in homes if below.startswith(f"{home}/")), path)


def _packed(batch: list[StorageEntry]) -> bytes:
    """Small, since all of them are on the driver at a time."""
    return zlib.compress(json.dumps(batch).encode(), 1)


def _unpacked(chunk: bytes) -> list[StorageEntry]:
    return [StorageEntry(*facts) for facts in json.loads(zlib.decompress(chunk))]
