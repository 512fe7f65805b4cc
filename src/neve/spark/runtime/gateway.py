"""The JVM behind a session: started, watched, and ended by us. Called by `session` only.

PySpark keeps its JVM until Python exits; we end it with the session, so that a service can open one after another and a
command line leaves nothing behind. What the JVM prints goes to a log file, whose end is shown when the start fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neve.commit.failure import was_interrupted
from neve.errors import EnvironmentFaultError, NeveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOP_SECONDS = 20
_RECORDS, _RECORDING_SECONDS = "-XX:ArchiveClassesAtExit=", 300
"""A JVM that records a class archive writes it while it ends."""
_TAIL_LINES = 12
_PRIVATE = re.compile(r"^spark\.(sql\.catalog|hadoop)\.|secret|passw|token|credential", re.IGNORECASE)


@contextlib.contextmanager
def running(conf: Mapping[str, str], *, environ: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """A session with this configuration; at the end of the block the JVM has gone."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        raise EnvironmentFaultError(
            "Cannot start Spark: this process already runs a Spark session", hint="Stop that session first."
        )
    with _quiet():
        with _environment(environ):
            jvm = _launch(public(conf), log)
        try:
            with _environment(environ), _interrupts_kept():
                session = _session(conf, jvm, log)
            with _spoken():
                yield session
        finally:
            _stop(jvm)


@contextlib.contextmanager
def _spoken() -> Iterator[None]:
    """Spark's exceptions ask the JVM for their own text; here it is read while there is still somebody to ask."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        text = str(error)
        told = RuntimeError(text).with_traceback(error.__traceback__)
        raise NeveError(f"Cannot finish on Spark: {headline(text) or type(error).__name__}") from told


def headline(text: str) -> str:
    """The first line that says something; Py4J's own first line only names a variable of its own."""
    lines = (line.strip().removeprefix(": ") for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")


def public(conf: Mapping[str, str]) -> dict[str, str]:
    """The part that may stand on a command line, where every user of the machine can read it."""
    return {key: value for key, value in conf.items() if not _PRIVATE.search(key)}


def _launch(conf: Mapping[str, str], log: Path) -> Any:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    launch_conf = SparkConf(loadDefaults=False)
    launch_conf.setAll(list(conf.items()))
    with log.open("wb") as output:
        try:
            return launch_gateway(launch_conf, popen_kwargs={"stdout": output, "stderr": subprocess.STDOUT})
        except Exception as error:
            raise _start_failed(error, log) from error


def _session(conf: Mapping[str, str], jvm: Any, log: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    try:
        full = SparkConf(_jvm=jvm.jvm)
        full.setAll(list(conf.items()))
        return SparkSession(SparkContext(conf=full, gateway=jvm))
    except NeveError:
        raise
    except Exception as error:
        raise _start_failed(error, log) from error


def _start_failed(error: Exception, log: Path) -> EnvironmentFaultError:
    """The JVM's own complaint where it made one, PySpark's otherwise; then the end of what the JVM printed."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = "\n  ".join(lines[-_TAIL_LINES:])
    reason = complaint(lines) or headline(str(error)) or type(error).__name__
    return EnvironmentFaultError(
        f"Cannot start Spark: {reason}" + (f"\nThe JVM's last words:\n  {said}" if said else ""),
        hint="`neve doctor --spark` checks Java, memory, jars and the master one by one.",
    )


def complaint(lines: Sequence[str]) -> str:
    """The line in which a JVM that gave up says why."""
    for line, following in zip(lines, (*lines[1:], ""), strict=True):
        if line.startswith("Exception in thread"):
            return line.partition("Exception: ")[2] or line
        if line.startswith("Error occurred during initialization of VM"):
            return following.strip() or line
    return ""


def _stop(jvm: Any) -> None:
    """Asks Spark to stop, then the JVM to leave, then makes it leave."""
    # Py4J has one connection per thread, and after Ctrl-C ours still waits for the answer of the call that was cut off.
    asking = threading.Thread(target=_ask_to_stop, args=(jvm,), name="neve-spark-stop", daemon=True)
    asking.start()
    try:
        asking.join(_STOP_SECONDS)
    finally:
        _end(jvm.proc)
        _forget()


def _ask_to_stop(jvm: Any) -> None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")  # a JVM that has died already is what we want
        if context is not None:
            context.cancelAllJobs()
            context.stop()
    with contextlib.suppress(Exception):
        jvm.shutdown()


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """The JVM leaves when its standard input closes."""
    if process is None:
        return
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for ask in (None, process.terminate, process.kill):
        if ask:
            ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_RECORDING_SECONDS if _RECORDS in str(process.args) else _STOP_SECONDS)
            return


def _forget() -> None:
    """PySpark holds its JVM in class variables; without this the next session would talk to a dead one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """PySpark reads these from our own environment, at the start only; then they are put back."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """PySpark replaces the handler of Ctrl-C by one that calls the JVM in the middle of another call, which breaks both."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What is raised is not printed as well: Py4J logs every Ctrl-C as an error, Spark 4 failed SQL as JSON."""
    root, py4j, silent = logging.getLogger(), logging.getLogger("py4j"), logging.NullHandler()
    level = py4j.level
    py4j.setLevel(logging.CRITICAL)
    root.addFilter(_is_ours)
    root.addHandler(silent)  # without any handler, Py4J's first line would set up one that prints
    _silence_query_loggers()
    try:
        yield
    finally:
        root.removeHandler(silent)
        root.removeFilter(_is_ours)
        py4j.setLevel(level)


def _is_ours(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _silence_query_loggers() -> None:
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 has no such loggers
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
