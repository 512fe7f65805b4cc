"""The command that submits a program of ours with `spark-submit`, with the session that the settings describe.

Called by `context`. The driver runs on this machine (deploy mode client). Spark's configuration is handed over in a file that
only this user can read, since catalogs' properties may hold secrets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from neve.spark.runtime import distribution
from neve.spark.runtime.java import find_java
from neve.spark.runtime.session import SparkOptions, jvm_environment, session_conf, spark_jars


@dataclass(frozen=True)
class Submission:
    """A command without the program's own arguments, and its environment."""

    command: tuple[str, ...]
    environ: Mapping[str, str]


def submission(
    options: SparkOptions, *, catalog_conf: Mapping[str, str], needs: Collection[str], program: Path, scratch: Path
) -> Submission:
    """How to submit a program. `scratch` has to stay until the program has ended."""
    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version, java_home=options.java_home)
    paths = spark_jars(options, needs=needs, java=java, installed=installed)
    conf = session_conf(options, catalog_conf, jar_paths=paths, scratch=scratch, app_name="neve")
    file = scratch / "spark.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{_escaped(key)} {_escaped(value)}\n" for key, value in sorted(conf.items())), encoding="ascii")
    command = (str(installed.home / "bin" / "spark-submit"), "--properties-file", str(file), str(program))
    return Submission(command, {**os.environ, "PYSPARK_PYTHON": sys.executable, **jvm_environment(options, java)})


def _escaped(text: str) -> str:
    """As Java reads property files: everything that is not a plain character by its UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)
