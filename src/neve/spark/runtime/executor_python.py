"""What executors lack of the Python and the libraries that our tasks need. Called by `tasks.shipping` before any task of ours.

On a local master tasks run on our own interpreter instead (`task_python`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from neve.spark.runtime.job_failure import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext

NEEDS = {"numpy": "1.26", "pyarrow": "19", "pydantic": "2.12"}
"""What tasks import besides our own code, and from which version on."""

_GUIDE = "docs/guide/cluster.md"
_MOST_CHECKS = 200
_TROUBLES = (
    (
        r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)",
        "executors have Python {0}, the driver has {driver}",
        "set PYSPARK_PYTHON to a Python {driver} on the executors",
    ),
    (
        r"No module named '?(\w+)",
        "executors have Python without {0}",
        "set PYSPARK_PYTHON to an interpreter that has it, or send it along",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "executors have no {0}",
        "set PYSPARK_PYTHON to an interpreter that the executors have",
    ),
    (
        r"Error from python worker:.*?(\w+Error: [^\n]+)",
        "executors have a Python that does not start: {0}",
        "set PYSPARK_PYTHON to another interpreter",
    ),
)
"""How a failure looks, what it means, and what to do about it."""


def trouble_with_executors(context: SparkContext) -> str | None:
    """Why executors cannot run our tasks, None if they can. A few tasks for each core, since nobody knows which executor gets
    which."""
    tasks = min(_MOST_CHECKS, 3 * context.defaultParallelism)
    try:
        seen = context.parallelize(range(tasks), tasks).map(_library_versions(tuple(NEEDS))).collect()
    except Exception as error:  # Spark's failures come as many types
        return python_trouble(error) or f"executors run no Python tasks: {reason_of(error)} ({_GUIDE})"
    return lacking(seen)


def python_trouble(error: Exception) -> str | None:
    """What is wrong with the executors' Python, if a job failed because of that."""
    text = str(error)
    driver = ".".join(map(str, sys.version_info[:2]))
    for pattern, trouble, cure in _TROUBLES:
        if found := re.search(pattern, text, re.DOTALL):
            return f"{trouble.format(found[1], driver=driver)}; {cure.format(driver=driver)} ({_GUIDE})"
    return None


def lacking(seen: Iterable[Mapping[str, str | None]]) -> str | None:
    """What some executor lacks of what tasks need; `seen` are the versions that each task found."""
    seen = list(seen)
    missing = [name for name in NEEDS if any(versions[name] is None for versions in seen)]
    if missing:
        them = "them" if len(missing) > 1 else "it"
        cure = f"set PYSPARK_PYTHON to an interpreter that has {them}, or send {them} along"
        return f"executors have Python without {' and '.join(missing)}; {cure} ({_GUIDE})"
    for name, least in NEEDS.items():
        for version in sorted({str(versions[name]) for versions in seen}):
            if _numbers(version) < _numbers(least):
                cure = "set PYSPARK_PYTHON to an interpreter that has it newer, or send it along"
                return f"executors have {name} {version}, older than {least}; {cure} ({_GUIDE})"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _library_versions(names: tuple[str, ...]) -> Callable[[int], dict[str, str | None]]:
    # A function within a function is sent as it is: the executor need not import this module, which it may not have.
    def versions(_: int) -> dict[str, str | None]:
        from importlib import import_module

        found: dict[str, str | None] = {}
        for name in names:
            try:
                found[name] = str(import_module(name).__version__)
            except Exception:  # a library that is there and does not load, such as for another NumPy, is of no use either
                found[name] = None
        return found

    return versions
