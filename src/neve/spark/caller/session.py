"""A Spark session that is not ours: whether it can serve, and making it the one that Spark's own code finds.

Called by `callers` and by the job for spark-submit. What a session lacks is said before any work, with the lines to add.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError
from neve.spark.runtime.coordinates import ICEBERG_VERSION, SPARK_SCALA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_ICEBERG = (1, 11)
"""Tried on Spark 3.5: with 1.11.0 all kernels commit; 1.10 spells the JSON of scan tasks otherwise, 1.9 has none."""

_LINES = """Configure the session when it is built, such as:
  .config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-{spark}_{scala}:{iceberg}")
  .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
  .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
  .config("spark.sql.catalog.lake.type", "rest")
  .config("spark.sql.catalog.lake.uri", "https://catalog.example.com")"""


@contextmanager
def submitted_session() -> Iterator[SparkSession]:
    """The session that spark-submit configured, stopped at the end; one that already runs in this process is left running."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    session = running or SparkSession.builder.getOrCreate()
    try:
        yield session
    finally:
        if running is None:
            session.stop()


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes this session the active one of this thread.

    Catalogs and Iceberg's sources look for the active session, not for the one they were called through; they would find the
    first session of the process, with its catalogs.
    """
    session: Any = spark._jsparkSession
    before = session.getActiveSession()
    session.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            session.setActiveSession(before.get())
        else:
            session.clearActiveSession()


def refuse_unusable(spark: Any) -> None:
    """Raises BadRequestError for what is no session, or one that cannot serve."""
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise BadRequestError(
            "Cannot use this Spark session: Spark Connect gives no access to Iceberg's Java API",
            hint="Pass a session that runs beside its driver (without SPARK_REMOTE and .remote()), or run Neve as a job there.",
        )
    if not isinstance(spark, SparkSession):
        raise BadRequestError(f"Cannot use this Spark session: it is a {type(spark).__name__}, not a SparkSession")
    if _is_stopped(spark):
        raise BadRequestError("Cannot use this Spark session: it has been stopped", hint="Pass one that runs.")
    if not _has(spark, "org.apache.iceberg.spark.SparkCatalog"):
        raise BadRequestError("Cannot use this Spark session: it has no Iceberg runtime", hint=lines_to_add(spark))
    jvm: Any = spark._jvm
    version, oldest = str(jvm.org.apache.iceberg.IcebergBuild.version()), ".".join(map(str, OLDEST_ICEBERG))
    if is_too_old(version):
        reason = f"its Iceberg {version} is older than {oldest}"
        raise BadRequestError(f"Cannot use this Spark session: {reason}", hint=lines_to_add(spark))


def is_too_old(version: str) -> bool:
    """Whether this Iceberg lacks what commits go through; vendors put words of their own behind the numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST_ICEBERG


def lines_to_add(spark: SparkSession) -> str:
    """The configuration of a session of this version that has everything."""
    major, minor = (int(part) for part in str(spark.version).split(".")[:2])
    scala = SPARK_SCALA.get((major, minor), "2.13")
    return _LINES.format(spark=f"{major}.{minor}", scala=scala, iceberg=ICEBERG_VERSION)


def _is_stopped(spark: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    context: Any = spark.sparkContext
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):  # its JVM has gone
        return True


def _has(spark: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True
