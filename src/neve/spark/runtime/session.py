"""A Spark session with Iceberg: quiet, local by default, gone when the block ends. Called by `context` and `doctor`.

Guarantees: nothing is printed on a healthy start; the JVM has ended when `open_session` returns, whether by the end of the
block, an error or Ctrl-C; nothing is left in the working directory; secrets do not appear on the JVM's command line.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import BadRequestError, EnvironmentFaultError
from neve.spark.runtime import class_archive, class_path, distribution, gateway, jars, machine
from neve.spark.runtime.coordinates import spark_coordinates
from neve.spark.runtime.java import Java, find_java
from neve.spark.tasks.staging import DELETE_CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

_SMALL_HEAP = "-XX:+UseParallelGC -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
"""A rewrite's memory belongs to the workers. Java's own choice lets the heap grow with the garbage of reading metadata, by half
again from 1,000 files with deletes to 2,000; this gives back what is free."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
"""A JVM does not start with two of them."""
_LATE_OPTIMIZER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's defaults. Most code of a run is called too seldom to repay the optimizing compiler: it took a quarter of the
CPU time of a short run, and a sixth where 77 MB were rewritten through Spark."""
_TIERS = re.compile(r"-XX:(Tier|[+-]TieredCompilation)")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

_LOG4J2 = """status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class SparkOptions:
    """How to start Spark. Memory is derived from the machine unless set; `jars` replace what would be downloaded."""

    master: str = "local[*]"
    driver_memory: str | None = None
    executor_memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    java_home: str | None = None
    class_archive: bool = True
    """Whether an archive of classes is used, where there is one and the master is local."""

    @property
    def is_local(self) -> bool:
        """Whether driver and executors share this machine."""
        return self.master.startswith("local")


@contextmanager
def open_session(
    options: SparkOptions | None = None,
    *,
    catalog_conf: Mapping[str, str] | None = None,
    needs: Collection[str] = (),
    app_name: str = "neve",
) -> Iterator[SparkSession]:
    """Starts Spark, yields the session, and stops both Spark and its JVM.

    `needs` are keys of `coordinates.BUNDLES`. One session per process at a time.
    """
    options = options or SparkOptions()
    _refuse_connect(options)
    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version, java_home=options.java_home)
    paths = spark_jars(options, needs=needs, java=java, installed=installed)
    held = paths if class_path.holds_jars(options.master, options.conf, installed.home) else ()
    wanted = wanted_archive(options, java, installed, held)
    archive = class_archive.find(wanted) if _may_share(options) else None
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neve-spark-", ignore_cleanup_errors=True)))
        conf = session_conf(
            options,
            catalog_conf or {},
            jar_paths=() if held else paths,
            scratch=scratch,
            app_name=app_name,
            java_options=(*(archive.options if archive else ()), *(_listed_once(wanted, scratch) if held else ())),
        )
        environ = jvm_environment(options, java, class_path_jars=held)
        yield stack.enter_context(gateway.running(conf, environ=environ, log=scratch / "driver.log"))


def wanted_archive(
    options: SparkOptions, java: Java, installed: distribution.Distribution, held: Collection[Path]
) -> class_archive.Wanted:
    """The archive that fits a session with these jars on its class path."""
    entries = class_path.entries(installed.home, tuple(held), options.conf)
    return class_archive.Wanted(java, installed.spark_version, entries)


def _listed_once(wanted: class_archive.Wanted, scratch: Path) -> tuple[str, ...]:
    """The class path without repetitions, for a Java that uses no archive otherwise: Spark's launcher lists slf4j-api twice."""
    if wanted.java.version <= class_archive.OLDEST_JAVA or wanted.obstacle:
        return ()
    file = scratch / "class-path.args"
    file.write_text(class_path.argument_file(wanted.entries), encoding="utf-8")
    return (f"@{file}",)


def _may_share(options: SparkOptions) -> bool:
    given = _given_options(options.conf.get("spark.driver.extraJavaOptions", ""))
    return options.class_archive and class_path.is_one_jvm(options.master) and not class_archive.names_archive(given)


def spark_jars(
    options: SparkOptions,
    *,
    needs: Collection[str],
    java: Java,
    installed: distribution.Distribution,
    check_content: bool = False,
    environ: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """NEVE_JARS, else the jars of the settings, else what the catalog needs, downloaded on first use."""
    given = jars.given_jars(environ) or jars.existing(options.jars, origin="the setting spark.jars")
    if given:
        return given
    coordinates = spark_coordinates(installed.spark_version, scala=installed.scala, needs=needs)
    return jars.resolve(coordinates, java=java, check_content=check_content, environ=environ)


def session_conf(
    options: SparkOptions,
    catalog_conf: Mapping[str, str],
    *,
    jar_paths: Collection[Path],
    scratch: Path,
    app_name: str,
    java_options: Sequence[str] = (),
) -> dict[str, str]:
    """The whole Spark configuration: ours, then the catalog's, then the user's, who has the last word."""
    (scratch / "log4j2.properties").write_text(_LOG4J2, encoding="utf-8")
    conf = {
        "spark.app.name": app_name,
        # Memory given back is paid for when it is touched again: on a virtual machine a third of a rewrite's CPU time. A worker
        # keeps the little that its tasks may use, as the JVM keeps its heap.
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
        "spark.driver.memory": options.driver_memory or machine.driver_memory(machine.memory_bytes()),
        "spark.master": options.master,
        "spark.sql.catalogImplementation": "in-memory",  # a Hive one would leave a Derby database behind
        # Iceberg keeps a delete's keys with the types that they had when it was first read. Once a column that it compares is
        # widened they equal nothing, and the spark kernel would write rows back that are deleted.
        DELETE_CACHE: "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jar_paths:
        conf["spark.jars"] = ",".join(str(path) for path in jar_paths)
    if options.executor_memory:
        conf["spark.executor.memory"] = options.executor_memory
    if options.is_local:
        # A laptop's host name often does not resolve, or resolves to an address of a network it has left.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {**catalog_conf, **options.conf}
    conf["spark.sql.extensions"] = _joined(ICEBERG_EXTENSIONS, conf.get("spark.sql.extensions", ""))
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    late = [_LATE_OPTIMIZER] if options.is_local and not _TIERS.search(_given_options(theirs)) else []
    conf["spark.driver.extraJavaOptions"] = _java_options(scratch, theirs, [*java_options, *late])
    return conf


def jvm_environment(options: SparkOptions, java: Java, *, class_path_jars: Collection[Path] = ()) -> dict[str, str]:
    """Variables for the JVM and its Python workers."""
    environ = {"JAVA_HOME": str(java.home)}
    if class_path_jars:
        environ["SPARK_DIST_CLASSPATH"] = class_path.distribution_path(class_path_jars, os.environ)
    if options.is_local:
        # Otherwise workers are whatever python3 the PATH has, without our libraries.
        environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        # The JVM that only puts the driver's command line together.
        environ["SPARK_LAUNCHER_OPTS"] = os.environ.get("SPARK_LAUNCHER_OPTS") or "-XX:TieredStopAtLevel=1"
    if python := options.conf.get("spark.pyspark.python"):
        # Spark itself reads this setting only when it starts the driver; its workers go by the variable.
        environ["PYSPARK_PYTHON"] = python
    return environ


def _java_options(scratch: Path, theirs: str, more: Sequence[str]) -> str:
    ours = (
        f"-Dlog4j2.configurationFile={scratch / 'log4j2.properties'} -Dderby.system.home={scratch} -Duser.timezone=UTC "
        "-XX:-UsePerfData"
    )
    collector = "" if _COLLECTOR.search(_given_options(theirs)) else _SMALL_HEAP
    return " ".join(part for part in (ours, *more, collector, theirs) if part)


def _given_options(theirs: str) -> str:
    """Every Java option that the user gives, in the settings or by variables that Java reads."""
    return " ".join([theirs, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])


def _joined(ours: str, theirs: str) -> str:
    return ",".join(dict.fromkeys(part for part in (ours, *theirs.split(",")) if part))


def _refuse_connect(options: SparkOptions) -> None:
    if options.master.startswith("sc://"):
        raise BadRequestError(
            f"Cannot use {options.master}: Spark Connect gives no access to Iceberg's Java API",
            hint="Name the cluster itself, such as spark://host:7077, yarn or k8s://..., or use local[*].",
        )
    if os.environ.get("SPARK_REMOTE"):
        raise EnvironmentFaultError(
            "Cannot start Spark: SPARK_REMOTE is set, which turns every session into a Spark Connect client",
            hint="Unset SPARK_REMOTE.",
        )
