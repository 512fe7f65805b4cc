"""The Spark that is installed: its version, its Scala, its directory. Called by `session`, `jars` and `doctor`.

Reads file names only; starts nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neve.errors import EnvironmentFaultError, MissingExtraError
from neve.spark.runtime.coordinates import SPARK_SCALA

_EXTRA = "pip install 'neve[spark]'"


@dataclass(frozen=True)
class Distribution:
    """A Spark and the PySpark that drives it."""

    home: Path
    pyspark_version: str
    spark_version: str
    scala: str


def pyspark_home() -> Path:
    """Where PySpark is installed; raises MissingExtraError where it is not."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtraError("Cannot start Spark: PySpark is not installed", hint=f"Run {_EXTRA}.")
    return Path(spec.origin).parent


def spark_home(environ: Mapping[str, str] | None = None) -> Path:
    """SPARK_HOME if set, as PySpark itself has it, else the Spark inside PySpark."""
    package = pyspark_home()
    named = (os.environ if environ is None else environ).get("SPARK_HOME")
    return Path(named) if named else package


def installed(environ: Mapping[str, str] | None = None) -> Distribution:
    """The installed Spark, checked: a version that Iceberg has a runtime for, and the same on both sides."""
    home = spark_home(environ)
    found = sorted((home / "jars").glob("spark-core_*.jar"))
    match = re.fullmatch(r"spark-core_(\d+\.\d+)-(.+)\.jar", found[0].name) if found else None
    if match is None:
        raise EnvironmentFaultError(
            f"Cannot start Spark: {home} holds no Spark", hint=f"Unset or correct SPARK_HOME, or run {_EXTRA}."
        )
    distribution = Distribution(home, _pyspark_version(), spark_version=match.group(2), scala=match.group(1))
    _check(distribution)
    return distribution


def _pyspark_version() -> str:
    """Read from PySpark's own file: importing PySpark would take half a second."""
    text = (pyspark_home() / "version.py").read_text(encoding="utf-8")
    match = re.search(r"""__version__\s*(?::\s*str)?\s*=\s*["']([^"']+)["']""", text)
    return match.group(1) if match else "0.0"


def minor(version: str) -> tuple[int, int]:
    """(4, 1) of "4.1.4"."""
    major, second = (int(part) for part in re.findall(r"\d+", version)[:2])
    return major, second


def _check(distribution: Distribution) -> None:
    if minor(distribution.spark_version) not in SPARK_SCALA:
        raise EnvironmentFaultError(
            f"Cannot start Spark {distribution.spark_version}: Iceberg has no runtime for it yet",
            hint="Install a supported one: pip install 'pyspark>=4.1,<4.2' (or 'pyspark>=3.5.7,<3.6').",
        )
    if minor(distribution.pyspark_version) != minor(distribution.spark_version):
        raise EnvironmentFaultError(
            f"Cannot start Spark: PySpark {distribution.pyspark_version} cannot drive Spark {distribution.spark_version} "
            f"in {distribution.home}",
            hint=f"Unset SPARK_HOME, or pip install 'pyspark=={distribution.spark_version}'.",
        )
