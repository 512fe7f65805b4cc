"""Java and class paths for the servers that need them, found and fetched by the product's own code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from neve.errors import EnvironmentFaultError
from neve.spark.runtime import jars
from neve.spark.runtime.java import Java, find_java
from stack.errors import UnavailableError


def java() -> Java:
    """A Java that the installed Spark runs on: 17 or 21."""
    try:
        return find_java(spark_version=version("pyspark"))
    except (EnvironmentFaultError, PackageNotFoundError) as error:
        raise UnavailableError(f"Cannot use Java: {error}", hint="pip install 'neve[spark]' brings one.") from error


def newest_java() -> Java:
    """The Java of the wheel, 21, for servers that are built for nothing older."""
    hidden = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    try:
        return find_java(spark_version="4.1", environ={**hidden, "PATH": ""})
    except EnvironmentFaultError as error:
        raise UnavailableError(f"Cannot use Java 21: {error}", hint="pip install 'neve[spark]' brings it.") from error


def fetch(server: str, coordinates: Sequence[str], *, transitive: bool = True, exclusions: Sequence[str] = ()) -> list[Path]:
    """The jars of a server, from the cache or from Maven Central, with what they depend on if `transitive`."""
    try:
        return list(jars.resolve(coordinates, java=java(), transitive=transitive, exclusions=exclusions))
    except EnvironmentFaultError as error:
        raise UnavailableError(f"Cannot start {server}: {error}", hint=error.hint) from error


def class_path(paths: Sequence[Path]) -> str:
    """The jars as Java's -cp wants them."""
    return os.pathsep.join(str(path) for path in paths)
