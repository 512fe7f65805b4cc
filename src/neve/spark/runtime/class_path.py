"""The class path of the driver's JVM: what Spark's launcher puts on it, and where our jars go. Called by `session`.

In local mode our jars go to the end of the class path. `spark.jars` would copy them at every start and load their classes
through a class loader of its own, whose classes a class-data archive cannot hold. At the end, Spark's own version of a class
wins over one in our jars, as it does with `spark.jars`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

_PLAIN_LOCAL = re.compile(r"local(\[.*\])?")
_SUBMITTED_JARS = re.compile(r"-(jars|packages)\b")
_OWN_JARS = ("spark.jars", "spark.jars.packages")


def is_one_jvm(master: str) -> bool:
    """Whether driver and executor are the same JVM; `local-cluster` starts others."""
    return _PLAIN_LOCAL.fullmatch(master) is not None


def holds_jars(master: str, conf: Mapping[str, str], home: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Whether our jars go on the class path.

    Classes on it do not see classes in `spark.jars`. So where users name jars there, such as a storage bundle for Iceberg, ours
    stay beside theirs.
    """
    environ = os.environ if environ is None else environ
    named = any(key in conf for key in _OWN_JARS) or _SUBMITTED_JARS.search(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return is_one_jvm(master) and not named and not _defaults_name_jars(home, environ)


def entries(
    home: Path, jars: Sequence[Path], conf: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[Path, ...]:
    """The class path in the order of Spark's launcher, wildcards expanded; what does not exist is left out."""
    environ = os.environ if environ is None else environ
    texts = [
        *conf.get("spark.driver.extraClassPath", "").split(os.pathsep),
        str(_conf_directory(home, environ)),
        str(home / "jars" / "*"),
        *(environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")),
        *distribution_path(jars, environ).split(os.pathsep),
    ]
    return tuple(dict.fromkeys(path for text in texts if text for path in _expanded(text)))


def distribution_path(jars: Collection[Path], environ: Mapping[str, str]) -> str:
    """The value of SPARK_DIST_CLASSPATH, which the launcher puts at the end: the user's own, then our jars."""
    return os.pathsep.join([*filter(None, [environ.get("SPARK_DIST_CLASSPATH", "")]), *map(str, jars)])


def argument_file(paths: Sequence[Path]) -> str:
    """The content of a file of arguments that gives Java this class path; of two `-cp`, the last one counts."""
    quoted = os.pathsep.join(map(str, paths)).replace("\\", "\\\\").replace('"', '\\"')
    return f'-cp "{quoted}"\n'


def _expanded(text: str) -> Iterator[Path]:
    path = Path(text)
    if path.name == "*":
        yield from sorted(path.parent.glob("*.jar"))
    elif path.exists():
        yield path


def _conf_directory(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SPARK_CONF_DIR") or home / "conf")


def _defaults_name_jars(home: Path, environ: Mapping[str, str]) -> bool:
    try:
        text = (_conf_directory(home, environ) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^\s*spark\.jars", text, re.MULTILINE) is not None
