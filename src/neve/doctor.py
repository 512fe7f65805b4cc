"""Looks at everything that a run will need, and says how to mend what is not right. Called by `neve doctor`.

Every check ends in a `Check`, whatever happens in it; none changes anything but caches. Catalog, warehouse and state store
are asked through probes that `api.Neve` hands in; Spark is started only on request.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Any

from neve.errors import MissingExtraError, NeveError, SettingsError
from neve.outage import outage
from neve.settings.unresolved import Unresolved
from neve.spark.runtime import distribution, jars, session
from neve.spark.runtime.java import Java, find_java, submitted_home
from neve.spark.runtime.session import SparkOptions

_MIN_PYTHON = (3, 11)
_GIB = 1 << 30
_WARN_SKEW_SECONDS, _FAIL_SKEW_SECONDS = 5.0, 60.0
_WARN_FREE_BYTES, _FAIL_FREE_BYTES = 5 * _GIB, 1 * _GIB

Probe = Callable[[], str]
"""Looks at one thing: returns what it found, raises what is wrong."""

RemoteClock = Callable[[], float]
"""Seconds since the epoch, as the catalog's or the storage's clock has it."""

Opener = Callable[..., AbstractContextManager[Any]]


class Status(StrEnum):
    """How a check ended. Only `fail` stops work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class DoctorCheck:
    """One thing looked at: what was found, and what to do about it if anything; with `ok`, what other programs need."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


def run_checks(
    *,
    options: SparkOptions | None = None,
    catalog_conf: Mapping[str, str] | None = None,
    needs: Collection[str] = (),
    settings: Probe | None = None,
    probes: Mapping[str, Probe | None] | None = None,
    remote_clock: RemoteClock | None = None,
    start_spark: bool = False,
    open_session: Opener = session.open_session,
    environ: Mapping[str, str] | None = None,
) -> tuple[DoctorCheck, ...]:
    """All checks, in the order in which they build on each other. A probe that is None counts as not configured."""
    options = options or SparkOptions()
    environ = os.environ if environ is None else environ
    checks = [check_python()]
    if settings is not None:
        checks.append(_guarded("settings", settings))
    checks += _spark_checks(options, needs, environ)
    if start_spark:
        checks.append(_check_session(checks, lambda: open_session(options, catalog_conf=catalog_conf or {}, needs=needs)))
    checks += [_check_probe(name, probe) for name, probe in (probes or {}).items()]
    checks.append(check_clock(remote_clock))
    checks += [check_disk(name, path) for name, path in _disks(options, environ)]
    return tuple(checks)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> DoctorCheck:
    """Whether this Python is new enough."""
    text = ".".join(str(part) for part in version)
    if version >= _MIN_PYTHON:
        return DoctorCheck("python", Status.OK, f"{text} at {sys.executable}")
    return DoctorCheck("python", Status.FAIL, f"{text} is too old", "Install Python 3.11 or newer and make a new environment.")


def _spark_checks(options: SparkOptions, needs: Collection[str], environ: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """PySpark, then Java, then jars: each needs the one before it."""
    try:
        spark = distribution.installed(environ)
    except MissingExtraError as error:
        yield DoctorCheck(
            "spark", Status.WARN, "PySpark is not installed: looking at tables works, rewriting does not", error.hint
        )
        yield from (_skipped("java", "spark"), _skipped("jars", "spark"))
        return
    except NeveError as error:
        yield _failed("spark", error)
        yield from (_skipped("java", "spark"), _skipped("jars", "spark"))
        return
    pair = f"PySpark {spark.pyspark_version} with Spark {spark.spark_version}, Scala {spark.scala}"
    yield DoctorCheck("spark", Status.OK, pair if spark.home == distribution.pyspark_home() else f"{pair} in {spark.home}")
    try:
        java = find_java(spark_version=spark.spark_version, java_home=options.java_home, environ=environ)
    except NeveError as error:
        yield from (_failed("java", error), _skipped("jars", "java"))
        return
    yield DoctorCheck(
        "java", Status.OK, f"Java {java.version} from {java.origin}: {java.home}", _java_for_submit(java, environ)
    )
    yield _guarded("jars", lambda: _jars(options, needs, java=java, spark=spark, environ=environ))


def _java_for_submit(java: Java, environ: Mapping[str, str]) -> str | None:
    """How spark-submit and pyspark start with the Java that was found, where they would not by themselves."""
    if submitted_home(environ) == java.home:
        return None
    return f"For spark-submit and pyspark: export JAVA_HOME={quote(str(java.home))}"


def _jars(
    options: SparkOptions,
    needs: Collection[str],
    *,
    java: Java,
    spark: distribution.Distribution,
    environ: Mapping[str, str],
) -> str:
    paths = session.spark_jars(options, needs=needs, java=java, installed=spark, check_content=True, environ=environ)
    cache = jars.default_cache(environ)
    places = sorted({str(cache if cache in path.parents else path.parent) for path in paths})
    return f"{', '.join(path.name for path in paths)} in {', '.join(places)}"


def _check_session(before: Collection[DoctorCheck], opened: Callable[[], AbstractContextManager[Any]]) -> DoctorCheck:
    if any(check.status in (Status.FAIL, Status.SKIP) for check in before):
        return DoctorCheck("session", Status.SKIP, "not started, since something above is missing")

    def start() -> str:
        begun = time.monotonic()
        with opened() as spark:
            answer = spark.sql("SELECT 40 + 2 AS answer").collect()[0]["answer"]
            python = spark.sparkContext.parallelize([answer], 1).map(_python_of_a_worker).collect()[0]
            return f"Spark {spark.version} ran SQL and Python {python} in {time.monotonic() - begun:.1f} s"

    return _guarded("session", start)


def _python_of_a_worker(_answer: int) -> str:
    import platform

    return platform.python_version()


def _check_probe(name: str, probe: Probe | None) -> DoctorCheck:
    if probe is None:
        return DoctorCheck(name, Status.SKIP, "not configured")
    try:
        return DoctorCheck(name, Status.OK, probe())
    except SettingsError as error:  # the check of the settings has failed with all of them
        return DoctorCheck(name, Status.SKIP, f"not checked: {error}")
    except Exception as error:
        return _broken(name, error)


def settings_probe(unresolved: Collection[Unresolved]) -> Probe:
    """Fails with every reference of the settings that leads nowhere."""

    def check() -> str:
        if not unresolved:
            return "every reference to a secret resolves"
        told = "; ".join(f"{each.key}: {each.reason[0].lower()}{each.reason[1:]}" for each in unresolved)
        raise SettingsError(told, hint=" ".join(dict.fromkeys(each.hint for each in unresolved)))

    return check


def check_without_settings(error: NeveError, *, environ: Mapping[str, str] | None = None) -> tuple[DoctorCheck, ...]:
    """The checks of the machine itself, where settings cannot be read or name no place to work on."""

    def fail() -> str:
        raise error

    checks = run_checks(settings=fail, probes=dict.fromkeys(("catalog", "warehouse", "state store")), environ=environ)
    unread = "not checked, since the settings cannot be used"
    return tuple(replace(check, detail=unread) if check.detail == "not configured" else check for check in checks)


def check_clock(remote_clock: RemoteClock | None, *, local_clock: Callable[[], float] = time.time) -> DoctorCheck:
    """Compares the clocks: Iceberg refuses commits from a clock that is a minute behind, object stores sign with the time."""
    if remote_clock is None:
        return DoctorCheck("clock", Status.SKIP, "nothing to compare with")
    begun = local_clock()
    try:
        remote = remote_clock()
    except Exception as error:
        found = outage(error)
        return DoctorCheck("clock", Status.SKIP, f"the other clock cannot be read: {found.cause if found else error}")
    ours = (begun + local_clock()) / 2
    skew = ours - remote
    detail = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the catalog or storage"
    if abs(skew) <= _WARN_SKEW_SECONDS:
        return DoctorCheck("clock", Status.OK, detail)
    status = Status.WARN if abs(skew) <= _FAIL_SKEW_SECONDS else Status.FAIL
    return DoctorCheck("clock", status, detail, "Set the clock by NTP (timedatectl set-ntp true, or chronyd).")


def http_clock(url: str, *, timeout_seconds: float = 10) -> RemoteClock:
    """The clock of a web server, from the Date header that every answer carries, errors included."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    def read() -> float:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"Cannot ask {url} for the time: not a web address")
        try:
            with urlopen(Request(url, method="HEAD"), timeout=timeout_seconds) as answer:  # noqa: S310 (checked above)
                headers = answer.headers
        except HTTPError as error:
            headers = error.headers
        return parsedate_to_datetime(headers["Date"]).timestamp()

    return read


def file_clock(directory: Path) -> RemoteClock:
    """The clock of a file system, which on a network share is another machine's: the time of a file written there."""

    def read() -> float:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".neve-clock-") as file:
            file.write(b"0")
            file.flush()
            return Path(file.name).stat().st_mtime

    return read


def check_disk(
    name: str, path: Path, *, free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
) -> DoctorCheck:
    """Whether there is room to work in."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    bytes_free = free(there)
    detail = f"{bytes_free / _GIB:.1f} GiB free in {path}"
    if bytes_free >= _WARN_FREE_BYTES:
        return DoctorCheck(name, Status.OK, detail)
    status = Status.WARN if bytes_free >= _FAIL_FREE_BYTES else Status.FAIL
    variable = "NEVE_JARS_CACHE or XDG_CACHE_HOME" if "cache" in name else "TMPDIR (for Spark: spark.local.dir)"
    return DoctorCheck(name, status, detail, f"Free some space, or point {variable} to a larger disk.")


def _disks(options: SparkOptions, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    yield "disk for shuffles", Path(options.conf.get("spark.local.dir", "").split(",")[0] or tempfile.gettempdir()).absolute()
    yield "disk for caches", jars.default_cache(environ).absolute()


def _guarded(name: str, probe: Probe) -> DoctorCheck:
    """A doctor that dies of what it finds is no use: every exception becomes a failed check."""
    try:
        return DoctorCheck(name, Status.OK, probe())
    except Exception as error:
        return _broken(name, error)


def _broken(name: str, error: Exception) -> DoctorCheck:
    if isinstance(error, NeveError):
        return _failed(name, error)
    hint = "Run again with --debug to see where it comes from."
    return DoctorCheck(name, Status.FAIL, f"{type(error).__name__}: {error}", hint)


def _failed(name: str, error: NeveError) -> DoctorCheck:
    return DoctorCheck(name, Status.FAIL, str(error), error.hint)


def _skipped(name: str, missing: str) -> DoctorCheck:
    return DoctorCheck(name, Status.SKIP, f"not looked at, since {missing} is not usable")
